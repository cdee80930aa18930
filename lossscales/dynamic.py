"""The policy that grows after finite steps and backs off after overflows."""

from typing import Any, Dict, Optional

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import Literal

from ..registry._plugins import loss_scales
from ..registry.field_types import BelowOne, GreaterThanOne, PositiveFloat, PositiveInt
from .contract import LossScale, LossScaleParams, grown, require_bounds, shrunk
from .report import Report, State


@loss_scales.register("dynamic", description="float16 in general: TensorFlow's own rule.")
class DynamicLossScale(LossScale):
    """TensorFlow's dynamic loss scale, with a floor, a ceiling and hysteresis.

    State: ``current_loss_scale`` (float32) and ``good_steps`` (int64); with ``hysteresis`` > 1 also
    ``hysteresis_left`` (int64).

    - If all gradients are finite, the step is applied.
        - ``good_steps`` increases by 1.
        - When it reaches ``increment_period``, it returns to 0, and the scale is multiplied by ``growth_factor``, up
          to ``maximum``. Without a maximum, the scale stays if the product would not be finite.
    - Otherwise the step is skipped.
        - ``good_steps`` returns to 0, and ``hysteresis_left`` decreases by 1.
        - When none is left, the scale is multiplied by ``backoff_factor``, down to ``minimum``.
    - ``hysteresis_left`` returns to ``hysteresis`` when the scale grows, at every finite step, or never (``refill``);
      with ``refill_on_backoff`` also after each back-off.

    The first three parameters, and the rule with the defaults of the others, are those of TensorFlow's
    ``DynamicLossScale``. With other values it follows the rules of other libraries: see the presets ``dynamic/…``.

    Example:
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
        multiplier: GreaterThanOne = Field(2.0, description="The factor by which the scale grows and backs off.")
        minimum: PositiveFloat = Field(1.0, description="The scale never goes below this.")
        maximum: Optional[PositiveFloat] = Field(
            None, description="The scale never goes above this; null: it grows as long as it is finite."
        )
        growth_factor: Optional[GreaterThanOne] = Field(
            None, description="The factor by which the scale grows; null: the multiplier."
        )
        backoff_factor: Optional[BelowOne] = Field(
            None, description="The factor by which the scale backs off; null: 1 / multiplier."
        )
        hysteresis: PositiveInt = Field(1, description="Non-finite steps that it takes to back off.")
        refill: Literal["on_growth", "on_good_step", "never"] = Field(
            "on_growth", description="When the full number of non-finite steps is needed again to back off."
        )
        refill_on_backoff: bool = Field(False, description="Whether they are needed again after each back-off too.")

        @model_validator(mode="after")
        def _bounds_hold(self) -> "DynamicLossScale.Params":
            require_bounds(self.initial_loss_scale, self.minimum, self.maximum)
            return self

    tensorflow_parameters = ("initial_loss_scale", "increment_period", "multiplier")
    params: Params

    def initial_state(self) -> Dict[str, Any]:
        state = {"current_loss_scale": np.float32(self.params.initial_loss_scale), "good_steps": np.int64(0)}
        if self.params.hysteresis > 1:
            state["hysteresis_left"] = np.int64(self.params.hysteresis)
        return state

    def next_state(self, state: State, report: Report, ops: Any) -> State:
        params, finite = self.params, report.finite
        scale, good_steps = state["current_loss_scale"], state["good_steps"] + ops.int64(1)
        is_due = good_steps >= ops.int64(params.increment_period)
        larger = grown(scale, params.growth_factor or params.multiplier, params.maximum, ops)
        smaller = self._backed_off(scale, ops)
        counted = ops.where(is_due, ops.int64(0), ops.where(finite, good_steps, ops.int64(0)))
        if params.hysteresis == 1:
            after = ops.where(finite, ops.where(is_due, larger, scale), smaller)
            return {"current_loss_scale": after, "good_steps": counted}

        full = ops.int64(params.hysteresis)
        left = ops.where(finite, state["hysteresis_left"], state["hysteresis_left"] - ops.int64(1))
        left = ops.maximum(left, ops.int64(0))
        is_spent = ops.logical_and(left <= ops.int64(0), ops.logical_not(finite))
        if params.refill == "on_growth":
            left = ops.where(ops.logical_and(finite, is_due), full, left)
        elif params.refill == "on_good_step":
            left = ops.where(finite, full, left)
        if params.refill_on_backoff:
            left = ops.where(is_spent, full, left)
        after = ops.where(ops.logical_and(finite, is_due), larger, ops.where(is_spent, smaller, scale))
        return {"current_loss_scale": after, "good_steps": counted, "hysteresis_left": left}

    def _backed_off(self, scale: Any, ops: Any) -> Any:
        if self.params.backoff_factor is None:
            return shrunk(scale, self.params.multiplier, self.params.minimum, ops)
        return ops.maximum(scale * ops.float32(self.params.backoff_factor), ops.float32(self.params.minimum))
