"""The policy that follows the largest magnitude of the gradients."""

from typing import Any, Dict, FrozenSet, Tuple

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import Annotated

from ..registry._plugins import loss_scales
from ..registry.field_types import FLOAT32_TINY, BelowOne, NonNegativeFloat, PositiveFloat
from .contract import LossScale, LossScaleParams, require_bounds
from .report import Report, State


@loss_scales.register("log_max", description="float16 with few skipped steps.")
class LogMaxLossScale(LossScale):
    """Lowers the scale before gradients overflow, by the statistics of their largest magnitude.

    State (float32): ``current_loss_scale``; ``mean``, ``slow_mean`` and ``mean_of_squares``, the decaying sums of x, x
    and x² with ``beta1``, ``beta2`` and ``beta2``; ``beta1_power`` and ``beta2_power``, which correct the sums at the
    start.

    - If all gradients are finite, the step is applied; x is log2 of their largest magnitude, unscaled.
    - Otherwise the step is skipped; x is ``log_max`` - log2(scale) + 1, which is log2 of twice the largest magnitude
      that the scale allows.
    - With the corrected sums, the scale becomes 2 to the power of ``log_max - (mean + overflow_std_dev * deviation)``,
      between ``minimum`` and ``maximum``.
    - After an overflow the scale is at most half of what it was: the mean is raised by as much as that takes.
    - A step whose gradients are all zero changes nothing.

    The rule is OpenSeq2Seq's ``LogMaxScaler`` (open_seq2seq/optimizers/automatic_loss_scaler.py), except for
    overflows: there x was ``2 ** log_max`` instead of its logarithm, and one overflow lowered the scale to its
    minimum. log2 is that of ``ops``, within 0.009 of the true one, so that the step gives the same result everywhere,
    to the last bit.

    Example:
        >>> from scalekeeper import LogMaxLossScale
        >>> loss_scale = LogMaxLossScale()
        >>> for gradient in (4.0, 4.0, 8.0, float("inf")):
        ...     _ = loss_scale.update([gradient])
        ...     print(round(float(loss_scale())))
        16384
        16384
        4714
        722
    """

    class Params(LossScaleParams):
        initial_loss_scale: PositiveFloat = Field(1.0, description="The scale of the first step.")
        log_max: Annotated[float, Field(ge=-126, le=128)] = Field(
            16.0, description="log2 of what the scaled gradients should stay below: 16 for float16."
        )
        beta1: BelowOne = Field(0.99, description="How slowly the mean forgets.")
        beta2: BelowOne = Field(0.999, description="How slowly the deviation forgets.")
        overflow_std_dev: NonNegativeFloat = Field(
            3.09, description="Deviations above the mean that must fit: 3.09 is one step of a thousand that does not."
        )
        minimum: PositiveFloat = Field(1.0, description="The scale never goes below this.")
        maximum: PositiveFloat = Field(2.0**24, description="The scale never goes above this.")

        @model_validator(mode="after")
        def _bounds_hold(self) -> "LogMaxLossScale.Params":
            require_bounds(self.initial_loss_scale, self.minimum, self.maximum)
            return self

    params: Params

    def _begin(self, params: LossScaleParams) -> None:
        super()._begin(params)
        # computed from the float32 betas, so that the weights add up to 1
        self._share1 = float(np.float32(1) - np.float32(self.params.beta1))
        self._share2 = float(np.float32(1) - np.float32(self.params.beta2))

    @property
    def needs(self) -> FrozenSet[str]:
        return frozenset({"finite", "largest_magnitude"})

    def initial_state(self) -> Dict[str, Any]:
        sums = {name: np.float32(0) for name in ("mean", "slow_mean", "mean_of_squares")}
        powers = {name: np.float32(1) for name in ("beta1_power", "beta2_power")}
        return {"current_loss_scale": np.float32(self.params.initial_loss_scale), **sums, **powers}

    def next_state(self, state: State, report: Report, ops: Any) -> State:
        largest = report.largest_magnitude
        # subnormal numbers count as zero, which they are on some devices
        is_positive = ops.logical_and(report.finite, largest >= ops.float32(FLOAT32_TINY))
        return ops.either(  # type: ignore[no-any-return]
            report.finite,
            lambda: ops.either(
                is_positive,
                lambda: self._after_good_step(state, ops.log2(ops.where(is_positive, largest, ops.float32(1))), ops),
                lambda: state,
            ),
            lambda: self._after_overflow(state, ops),
        )

    def _after_good_step(self, state: State, sample: Any, ops: Any) -> State:
        sums, _, log_next = self._sums_and_log_scale(state, sample, ops)
        return {"current_loss_scale": self._within_bounds(ops.exp2(log_next), ops), **sums}

    def _after_overflow(self, state: State, ops: Any) -> State:
        params, one, rounded = self.params, ops.float32(1), ops.rounded
        scale = state["current_loss_scale"]
        log_scale = ops.log2(scale)
        no_room = rounded(ops.float32(params.log_max + 1) - log_scale)
        sums, weight, log_next = self._sums_and_log_scale(state, no_room, ops)
        shortfall = ops.maximum(rounded(log_next - rounded(log_scale - one)), ops.float32(0))
        sums["mean"] = sums["mean"] + rounded(shortfall * weight)
        following = ops.minimum(ops.exp2(rounded(log_next - shortfall)), scale * ops.float32(0.5))
        return {"current_loss_scale": self._within_bounds(following, ops), **sums}

    def _sums_and_log_scale(self, state: State, sample: Any, ops: Any) -> Tuple[Dict[str, Any], Any, Any]:
        """Return the decaying sums with this sample, the weight of the mean, and log2 of the loss scale."""
        params, one, rounded = self.params, ops.float32(1), ops.rounded
        beta1, beta2 = ops.float32(params.beta1), ops.float32(params.beta2)
        share1, share2 = ops.float32(self._share1), ops.float32(self._share2)
        mean = _decayed(state["mean"], beta1, ops) + rounded(share1 * sample)
        slow_mean = _decayed(state["slow_mean"], beta2, ops) + rounded(share2 * sample)
        squares = _decayed(state["mean_of_squares"], beta2, ops) + rounded(share2 * rounded(sample * sample))
        beta1_power = _decayed(state["beta1_power"], beta1, ops)
        beta2_power = _decayed(state["beta2_power"], beta2, ops)
        weight1, weight2 = one - beta1_power, one - beta2_power

        typical = rounded(slow_mean / weight2)
        variance = rounded(squares / weight2) - rounded(typical * typical)
        deviation = ops.sqrt(ops.maximum(variance, ops.float32(0)))
        cutoff = rounded(mean / weight1) + rounded(ops.float32(params.overflow_std_dev) * deviation)
        sums = {
            "mean": mean,
            "slow_mean": slow_mean,
            "mean_of_squares": squares,
            "beta1_power": beta1_power,
            "beta2_power": beta2_power,
        }
        return sums, weight1, rounded(ops.float32(params.log_max) - rounded(cutoff))

    def _within_bounds(self, scale: Any, ops: Any) -> Any:
        return ops.minimum(ops.maximum(scale, ops.float32(self.params.minimum)), ops.float32(self.params.maximum))


def _decayed(value: Any, beta: Any, ops: Any) -> Any:
    """Return the product, with 0 for subnormal numbers, which some devices flush to zero."""
    product = ops.rounded(value * beta)
    return ops.where(abs(product) >= ops.float32(FLOAT32_TINY), product, ops.float32(0))
