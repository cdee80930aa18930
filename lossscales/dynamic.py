"""A loss scale that grows while all goes well and backs off when gradients overflow."""

from typing import Any, Dict, Optional

import numpy as np
from pydantic import Field, model_validator

from ..registry.fields import GreaterThanOne, PositiveFloat, PositiveInt, broken_rule
from ..registry.plugins import loss_scales
from .contract import LossScale, LossScaleParams
from .report import Report, State


@loss_scales.register("dynamic")
class DynamicLossScale(LossScale):
    """TensorFlow's dynamic loss scale, with a floor and a ceiling.

    State: ``current_loss_scale`` (float32), ``good_steps`` (int64).
    A step whose gradients are all finite is applied, and
      ``good_steps`` is one more;
      when it reaches ``increment_period``, it goes back to 0 and the scale is multiplied by ``multiplier``: never
      above ``maximum``, and not at all where the product would not be finite.
    Any other step is skipped, and
      ``good_steps`` goes back to 0;
      the scale is divided by ``multiplier``, never below ``minimum``.

    >>> from scalekeeper import DynamicLossScale
    >>> loss_scale = DynamicLossScale(initial_loss_scale=1024, increment_period=2)
    >>> bool(loss_scale.update([float("inf")])[1])
    False
    >>> loss_scale.state()
    {'current_loss_scale': 512.0, 'good_steps': 0}
    """

    class Params(LossScaleParams):
        initial_loss_scale: PositiveFloat = Field(2.0**15, description="The scale of the first step.")
        increment_period: PositiveInt = Field(2000, description="Finite steps in a row after which the scale grows.")
        multiplier: GreaterThanOne = Field(2.0, description="What the scale is multiplied or divided by.")
        minimum: PositiveFloat = Field(1.0, description="The scale never goes below this.")
        maximum: Optional[PositiveFloat] = Field(
            None, description="The scale never goes above this; null: it grows as long as it is finite."
        )

        @model_validator(mode="after")
        def _bounds_hold(self) -> "DynamicLossScale.Params":
            ceiling = float("inf") if self.maximum is None else self.maximum
            if self.minimum > ceiling:
                raise broken_rule("minimum", f"{self.minimum:g} is above the maximum, {ceiling:g}")
            if not self.minimum <= self.initial_loss_scale <= ceiling:
                bounds = f"between the minimum, {self.minimum:g}, and the maximum, {ceiling:g}"
                message = f"the initial scale, {self.initial_loss_scale:g}, is not {bounds}: give one that is"
                raise broken_rule("initial_loss_scale", message)
            return self

    tensorflow_parameters = ("initial_loss_scale", "increment_period", "multiplier")
    params: Params

    def initial_state(self) -> Dict[str, Any]:
        return {"current_loss_scale": np.float32(self.params.initial_loss_scale), "good_steps": np.int64(0)}

    def next_state(self, state: State, report: Report, ops: Any) -> State:
        scale, good_steps = state["current_loss_scale"], state["good_steps"] + ops.int64(1)
        multiplier = ops.float32(self.params.multiplier)
        is_due = good_steps >= ops.int64(self.params.increment_period)

        grown = scale * multiplier
        grown = ops.where(ops.isfinite(grown), grown, scale)
        if self.params.maximum is not None:
            grown = ops.minimum(grown, ops.float32(self.params.maximum))
        # not scale / multiplier: a graph optimizer makes this product of it, which may differ in the last bit
        shrunk = ops.maximum(scale * (ops.float32(1) / multiplier), ops.float32(self.params.minimum))

        return {
            "current_loss_scale": ops.where(report.finite, ops.where(is_due, grown, scale), shrunk),
            "good_steps": ops.where(ops.logical_and(report.finite, ops.logical_not(is_due)), good_steps, ops.int64(0)),
        }
