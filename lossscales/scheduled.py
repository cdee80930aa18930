"""The policy whose loss scale is a function of the step."""

from typing import Any, Dict, FrozenSet, List

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import Annotated, Literal

from ..registry._plugins import loss_scales
from ..registry.field_types import PositiveFloat, PositiveInt, broken_rule
from ._numpy_state import OPS as NUMPY
from .contract import LossScale, LossScaleParams
from .report import Report, State


@loss_scales.register("scheduled", description="Repeating a run: a function of the step alone.")
class ScheduledLossScale(LossScale):
    """A scale that follows a schedule, whatever the gradients are.

    State: ``steps`` (int64), which increases by 1 at every step, applied or skipped.

    ``values`` has the scale at step 0 and at each of the ``boundaries``. After the last boundary the scale stays.
    Between two boundaries it depends on ``schedule``:

    - ``piecewise``: the scale stays that of the first.
    - ``linear``: it changes by the same amount at each step.
    - ``exponential``: its logarithm changes by the same amount, within 1 %, and exactly at powers of two.

    A step with non-finite gradients is skipped, unless ``skip_nonfinite`` is false.

    Example:
        >>> from scalekeeper import ScheduledLossScale
        >>> loss_scale = ScheduledLossScale(values=[64, 1024], boundaries=[4], schedule="exponential")
        >>> for _ in range(5):
        ...     print(float(loss_scale()))
        ...     _ = loss_scale.update([1.0])
        64.0
        128.0
        256.0
        512.0
        1024.0
    """

    class Params(LossScaleParams):
        values: Annotated[List[PositiveFloat], Field(min_length=1)] = Field(
            description="The scale at step 0, and at each of the boundaries."
        )
        boundaries: List[PositiveInt] = Field(description="Steps, in order, at which the scale has the next value.")
        schedule: Literal["piecewise", "linear", "exponential"] = Field(
            "piecewise", description="How the scale goes from one value to the next."
        )
        skip_nonfinite: bool = Field(True, description="Skip a step whose gradients are not all finite.")

        @model_validator(mode="after")
        def _points_fit(self) -> "ScheduledLossScale.Params":
            if len(self.values) != len(self.boundaries) + 1:
                message = (
                    f"{len(self.values)} values need {len(self.values) - 1} boundaries, but there are "
                    f"{len(self.boundaries)}: the first value is that of step 0"
                )
                raise broken_rule("boundaries", message)
            for first, second in zip(self.boundaries, self.boundaries[1:]):
                if first >= second:
                    raise broken_rule("boundaries", f"{second} comes after {first}: give them in increasing order")
            return self

    params: Params

    def _begin(self, params: LossScaleParams) -> None:
        super()._begin(params)
        self._starts = [np.int64(step) for step in (0, *self.params.boundaries)]
        self._values = [np.float32(value) for value in self.params.values]
        if self.params.schedule == "exponential":
            self._values = [NUMPY.log2(value) for value in self._values]
        self._slopes = [
            np.float32((float(after) - float(before)) / int(end - start))
            for before, after, start, end in zip(self._values, self._values[1:], self._starts, self._starts[1:])
        ] + [np.float32(0)]

    @property
    def needs(self) -> FrozenSet[str]:
        return frozenset({"finite"}) if self.params.skip_nonfinite else frozenset()

    def should_apply(self, state: State, report: Report, ops: Any) -> Any:
        return report.finite if self.params.skip_nonfinite else True

    def initial_state(self) -> Dict[str, Any]:
        return {"steps": np.int64(0)}

    def next_state(self, state: State, report: Report, ops: Any) -> State:
        return {"steps": state["steps"] + ops.int64(1)}

    def scale(self, state: State, ops: Any) -> Any:
        index = ops.count_reached(self.params.boundaries, state["steps"])
        value = ops.pick(self._values, index)
        if self.params.schedule == "piecewise":
            return value
        steps = ops.as_float32(state["steps"] - ops.pick(self._starts, index))
        value = value + ops.rounded(ops.pick(self._slopes, index) * steps)
        return ops.exp2(value) if self.params.schedule == "exponential" else value
