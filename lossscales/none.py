"""The policy without a loss scale, which can still skip steps."""

from typing import Any, Dict, FrozenSet, Optional

import numpy as np
from pydantic import Field, model_validator

from ..registry._plugins import loss_scales
from ..registry.field_types import NonNegativeInt, broken_rule
from .contract import LossScale, LossScaleParams
from .report import Report, State


@loss_scales.register("none", description="bfloat16 and float32, which need no loss scale.")
class NoLossScale(LossScale):
    """The scale is 1: for bfloat16 and float32, which need none.

    State: none; with ``apply_after_skips``, ``bad_steps`` (int64), the non-finite steps in a row.

    - If all gradients are finite, the step is applied, and ``bad_steps`` returns to 0.
    - Otherwise ``bad_steps`` increases by 1.
        - By default the step is applied, as without a loss scale.
        - With ``skip_nonfinite`` it is skipped.
        - With ``apply_after_skips`` too, it is skipped while ``bad_steps`` is at most that number, and applied after
          that.

    The last is the rule of Optax's ``apply_if_finite``, where the number is called max_consecutive_errors.

    Example:
        >>> from scalekeeper import NoLossScale
        >>> policy = NoLossScale(skip_nonfinite=True, apply_after_skips=2)
        >>> [bool(policy.update([gradient])[1]) for gradient in (float("nan"), float("nan"), float("nan"), 1.0)]
        [False, False, True, True]
    """

    class Params(LossScaleParams):
        skip_nonfinite: bool = Field(False, description="Skip a step whose gradients are not all finite.")
        apply_after_skips: Optional[NonNegativeInt] = Field(
            None, description="Apply such a step all the same after so many that were skipped in a row; null: never."
        )

        @model_validator(mode="after")
        def _skips_if_it_counts_skips(self) -> "NoLossScale.Params":
            if self.apply_after_skips is not None and not self.skip_nonfinite:
                message = f"{self.apply_after_skips} has no effect without skipped steps: set skip_nonfinite to true"
                raise broken_rule("apply_after_skips", message)
            return self

    params: Params

    def scale(self, state: State, ops: Any) -> Any:
        return ops.float32(1)

    @property
    def needs(self) -> FrozenSet[str]:
        return frozenset({"finite"}) if self.params.skip_nonfinite else frozenset()

    def should_apply(self, state: State, report: Report, ops: Any) -> Any:
        if not self.params.skip_nonfinite:
            return True
        if self.params.apply_after_skips is None:
            return report.finite
        return ops.logical_or(report.finite, state["bad_steps"] >= ops.int64(self.params.apply_after_skips))

    def initial_state(self) -> Dict[str, Any]:
        return {} if self.params.apply_after_skips is None else {"bad_steps": np.int64(0)}

    def next_state(self, state: State, report: Report, ops: Any) -> State:
        if self.params.apply_after_skips is None:
            return state
        return {"bad_steps": ops.where(report.finite, ops.int64(0), state["bad_steps"] + ops.int64(1))}
