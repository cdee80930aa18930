"""A loss scale that grows only while gradients underflow."""

from typing import Any, Dict, FrozenSet, Mapping

import numpy as np
from pydantic import Field

from scalekeeper import LossScale, LossScaleParams, Report


class UnderflowLossScale(LossScale):
    """Doubles when too many gradients have been zero for some steps in a row; halves at each overflow.

    State: ``current_loss_scale`` (float32), ``low_steps`` (int64).
    A step whose gradients are all finite is applied; if more than ``zero_share`` of them are zero, ``low_steps`` is one
      more, and else it goes back to 0;
      when it reaches ``patience``, it goes back to 0 and the scale is doubled, never above ``maximum``.
    Any other step is skipped, ``low_steps`` goes back to 0, and the scale is halved, never below ``minimum``.

    A dynamic scale grows until gradients overflow, and loses a step each time. This one stays where few gradients are
    lost to float16's smallest number. Gradients that are zero by themselves, such as those behind a ReLU, count too:
    choose ``zero_share`` above their share.
    """

    class Params(LossScaleParams):
        initial_loss_scale: float = Field(1024.0, gt=0, description="The scale of the first step.")
        zero_share: float = Field(0.5, ge=0, lt=1, description="The share of zeros above which gradients underflow.")
        patience: int = Field(20, ge=1, description="Steps in a row with too many zeros after which the scale grows.")
        minimum: float = Field(1.0, gt=0, description="The scale never goes below this.")
        maximum: float = Field(2.0**24, gt=0, description="The scale never goes above this.")

    params: Params

    @property
    def needs(self) -> FrozenSet[str]:
        return frozenset({"finite", "zero_share"})

    def initial_state(self) -> Dict[str, Any]:
        return {"current_loss_scale": np.float32(self.params.initial_loss_scale), "low_steps": np.int64(0)}

    def next_state(self, state: Mapping[str, Any], report: Report, ops: Any) -> Dict[str, Any]:
        params, scale, none = self.params, state["current_loss_scale"], ops.int64(0)
        is_low = ops.logical_and(report.finite, report.zero_share > ops.float32(params.zero_share))
        low_steps = ops.where(is_low, state["low_steps"] + ops.int64(1), none)
        grows = low_steps >= ops.int64(params.patience)
        larger = ops.minimum(scale * ops.float32(2), ops.float32(params.maximum))
        smaller = ops.maximum(scale * ops.float32(0.5), ops.float32(params.minimum))
        return {
            "current_loss_scale": ops.where(report.finite, ops.where(grows, larger, scale), smaller),
            "low_steps": ops.where(grows, none, low_steps),
        }
