"""The policy that tolerates a share of overflows."""

from typing import Any, Dict, Optional

import math

import numpy as np
from pydantic import Field, model_validator

from ..registry._plugins import loss_scales
from ..registry.field_types import Fraction, GreaterThanOne, PositiveFloat, PositiveInt
from .contract import LossScale, LossScaleParams, grown, require_bounds, shrunk
from .report import Report, State

_WHOLE = 2**30  # the share is compared in whole numbers, which are the same everywhere: one is 2**-30


@loss_scales.register("tolerant", aliases=("fairseq",), description="float16 with some overflows at any loss scale.")
class TolerantLossScale(LossScale):
    """Backs off only when the share of overflows since the scale last changed reaches a tolerance.

    State: ``current_loss_scale`` (float32); ``good_steps``, ``steps_since_rescale`` and ``overflows_since_rescale``
    (int64).

    - At every step, ``steps_since_rescale`` increases by 1.
    - If all gradients are finite, the step is applied.
        - ``good_steps`` increases by 1.
        - When it reaches ``increment_period``, it returns to 0, the scale is multiplied by ``multiplier``, up to
          ``maximum``, and ``steps_since_rescale`` returns to 0.
    - Otherwise the step is skipped.
        - ``good_steps`` returns to 0, and ``overflows_since_rescale`` increases by 1.
        - If ``overflows_since_rescale`` is at least ``tolerance`` times ``steps_since_rescale``, the scale is divided
          by ``multiplier``, down to ``minimum``, and both return to 0.

    The rule is that of fairseq's ``DynamicLossScaler`` (fairseq/optim/dynamic_loss_scaler.py), where growth keeps the
    earlier overflows too. fairseq calls ``minimum`` threshold. Its min_loss_scale ends the training; here the scale
    stays at the minimum, and ``stop_after_skips`` of the optimizer ends the training.

    Example:
        >>> from scalekeeper import TolerantLossScale
        >>> loss_scale = TolerantLossScale(initial_loss_scale=1024, tolerance=0.5)
        >>> for gradient in (1.0, 1.0, float("inf"), float("inf")):
        ...     _ = loss_scale.update([gradient])
        ...     print(float(loss_scale()))
        1024.0
        1024.0
        1024.0
        512.0
    """

    class Params(LossScaleParams):
        initial_loss_scale: PositiveFloat = Field(2.0**15, description="The scale of the first step.")
        increment_period: PositiveInt = Field(2000, description="Finite steps in a row after which the scale grows.")
        multiplier: GreaterThanOne = Field(2.0, description="The factor by which the scale grows and backs off.")
        tolerance: Fraction = Field(
            0.0, description="The share of overflows since the scale last changed at which it backs off."
        )
        minimum: PositiveFloat = Field(1e-4, description="The scale never goes below this.")
        maximum: Optional[PositiveFloat] = Field(
            None, description="The scale never goes above this; null: it grows as long as it is finite."
        )

        @model_validator(mode="after")
        def _bounds_hold(self) -> "TolerantLossScale.Params":
            require_bounds(self.initial_loss_scale, self.minimum, self.maximum)
            return self

    params: Params

    def initial_state(self) -> Dict[str, Any]:
        counters = ("good_steps", "steps_since_rescale", "overflows_since_rescale")
        state: Dict[str, Any] = {"current_loss_scale": np.float32(self.params.initial_loss_scale)}
        state.update((name, np.int64(0)) for name in counters)
        return state

    def next_state(self, state: State, report: Report, ops: Any) -> State:
        params, finite, none, one = self.params, report.finite, ops.int64(0), ops.int64(1)
        scale, good_steps = state["current_loss_scale"], state["good_steps"] + one
        steps = state["steps_since_rescale"] + one
        overflows = ops.where(finite, state["overflows_since_rescale"], state["overflows_since_rescale"] + one)
        is_due = ops.logical_and(finite, good_steps >= ops.int64(params.increment_period))
        # rounded down, so that a share of 1/5 reaches a tolerance of 0.2
        is_too_much = overflows * ops.int64(_WHOLE) >= steps * ops.int64(math.floor(params.tolerance * _WHOLE))
        backs_off = ops.logical_and(ops.logical_not(finite), is_too_much)
        larger = grown(scale, params.multiplier, params.maximum, ops)
        smaller = shrunk(scale, params.multiplier, params.minimum, ops)
        return {
            "current_loss_scale": ops.where(is_due, larger, ops.where(backs_off, smaller, scale)),
            "good_steps": ops.where(ops.logical_and(finite, ops.logical_not(is_due)), good_steps, none),
            "steps_since_rescale": ops.where(ops.logical_or(is_due, backs_off), none, steps),
            "overflows_since_rescale": ops.where(backs_off, none, overflows),
        }
