"""The policy with a constant loss scale."""

from typing import Any, FrozenSet, List

from pydantic import Field

from ..registry._plugins import loss_scales
from ..registry.field_types import AtLeastOne
from .contract import LossScale, LossScaleParams, Parameter
from .report import Report, State


@loss_scales.register("fixed", aliases=("static",), description="A known loss scale, the same at each step.")
class FixedLossScale(LossScale):
    """The same scale at every step.

    At every step, the loss is multiplied by ``loss_scale_value``, and the gradients are divided by it. Non-finite
    gradients are applied like any others, as in TensorFlow's own ``FixedLossScale``, and make the weights NaN. With
    ``skip_nonfinite``, such a step is skipped.

    Example:
        >>> from scalekeeper import FixedLossScale
        >>> float(FixedLossScale(128)())
        128.0
    """

    class Params(LossScaleParams):
        loss_scale_value: AtLeastOne = Field(description="The loss scale.")
        skip_nonfinite: bool = Field(False, description="Skip a step whose gradients are not all finite.")

    tensorflow_parameters = ("loss_scale_value",)
    params: Params
    _loss_scale_value = Parameter("loss_scale_value")  # which Keras of 2.4 reads

    def scale(self, state: State, ops: Any) -> Any:
        return ops.float32(self.params.loss_scale_value)

    @property
    def needs(self) -> FrozenSet[str]:
        return frozenset({"finite"}) if self.params.skip_nonfinite else frozenset()

    def should_apply(self, state: State, report: Report, ops: Any) -> Any:
        return report.finite if self.params.skip_nonfinite else True

    def next_state(self, state: State, report: Report, ops: Any) -> State:
        return state

    def _shown_parameters(self) -> List[str]:
        shown = super()._shown_parameters()
        return [each.partition("loss_scale_value=")[2] or each for each in shown]  # as in TensorFlow
