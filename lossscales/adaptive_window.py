"""The policy that adapts the number of finite steps after which it grows."""

from typing import Any, Dict, List, Optional

import numpy as np
from pydantic import Field, model_validator

from ..registry._plugins import loss_scales
from ..registry.field_types import GreaterThanOne, PositiveFloat, PositiveInt, broken_rule
from .contract import LossScale, LossScaleParams, grown, require_bounds, shrunk
from .report import Report, State

_PATIENCE = 3  # raises that lengthen the window, and drops that shorten it
_SHORTEST = -1  # the index of the window of one step, before the first of the list


@loss_scales.register("adaptive_window", description="float16: fast growth at the start, then stable.")
class AdaptiveWindowLossScale(LossScale):
    """A dynamic loss scale that grows after a window of finite steps, which becomes longer and shorter.

    State: ``current_loss_scale`` (float32); ``good_steps``, ``window_place``, ``raises`` and ``drops`` (int64).

    The windows, from ``minimum_window`` to ``maximum_window``, are by default 20, 30, 40, 50, 100, 200, 500 and 1000
    steps. ``window_place`` is the index of the current one in this list; -1 is a window of one step.

    - If all gradients are finite, the step is applied.
        - ``good_steps`` increases by 1.
        - When it reaches the window, it returns to 0, the scale is multiplied by ``multiplier``, up to ``maximum``,
          ``drops`` returns to 0, and ``raises`` increases by 1.
        - At the third raise, the next window of the list is taken, and ``raises`` returns to 0.
    - Otherwise the step is skipped.
        - ``good_steps`` returns to 0, the scale is divided by ``multiplier``, down to ``minimum``, and ``drops``
          increases by 1.
        - At the third drop, the window becomes one step, so that the scale recovers soon, and ``raises`` and ``drops``
          return to 0. The first window of the list is not shortened.
    - If the window cannot change, the fourth raise or drop returns that counter to 0.

    The rule is that of MindFormers' ``AdaptiveLossScaleUpdateCell`` (mindformers/wrapper/adaptive_loss_scale.py), with
    two exceptions: the list ends at ``minimum_window``, and an unknown first window is an error.

    Example:
        >>> from scalekeeper import AdaptiveWindowLossScale
        >>> loss_scale = AdaptiveWindowLossScale(initial_loss_scale=1024, minimum_window=2, initial_window=2)
        >>> for _ in range(6):
        ...     _ = loss_scale.update([1.0])
        >>> loss_scale.state()
        {'current_loss_scale': 8192.0, 'good_steps': 0, 'window_place': 1, 'raises': 0, 'drops': 0}
    """

    class Params(LossScaleParams):
        initial_loss_scale: PositiveFloat = Field(2.0**15, description="The scale of the first step.")
        initial_window: PositiveInt = Field(20, description="The window of the first step; one of the list.")
        multiplier: GreaterThanOne = Field(2.0, description="The factor by which the scale grows and backs off.")
        minimum_window: PositiveInt = Field(20, description="The first window of the list.")
        maximum_window: PositiveInt = Field(1000, description="The last window of the list.")
        minimum: PositiveFloat = Field(1.0, description="The scale never goes below this.")
        maximum: Optional[PositiveFloat] = Field(
            None, description="The scale never goes above this; null: it grows as long as it is finite."
        )

        @model_validator(mode="after")
        def _bounds_hold(self) -> "AdaptiveWindowLossScale.Params":
            require_bounds(self.initial_loss_scale, self.minimum, self.maximum)
            if self.maximum_window <= self.minimum_window:
                message = f"{self.maximum_window} is not above the minimum_window, {self.minimum_window}"
                raise broken_rule("maximum_window", message)
            windows = windows_between(self.minimum_window, self.maximum_window)
            if self.initial_window not in windows:
                listed = ", ".join(map(str, windows))
                raise broken_rule("initial_window", f"{self.initial_window} is none of the windows: {listed}")
            return self

    params: Params

    def _begin(self, params: LossScaleParams) -> None:
        super()._begin(params)
        self.windows = windows_between(self.params.minimum_window, self.params.maximum_window)
        self._by_index = [np.int64(window) for window in (1, *self.windows)]

    def initial_state(self) -> Dict[str, Any]:
        return {
            "current_loss_scale": np.float32(self.params.initial_loss_scale),
            "good_steps": np.int64(0),
            "window_place": np.int64(self.windows.index(self.params.initial_window)),
            "raises": np.int64(0),
            "drops": np.int64(0),
        }

    def next_state(self, state: State, report: Report, ops: Any) -> State:
        params, finite, none, one = self.params, report.finite, ops.int64(0), ops.int64(1)
        scale, index, good_steps = state["current_loss_scale"], state["window_place"], state["good_steps"] + one
        window = ops.pick(self._by_index, index + one)
        grows = ops.logical_and(finite, good_steps >= window)
        bad = ops.logical_not(finite)
        larger = grown(scale, params.multiplier, params.maximum, ops)
        smaller = shrunk(scale, params.multiplier, params.minimum, ops)

        raises = ops.where(grows, _next_of_four(state["raises"], ops), state["raises"])
        drops = ops.where(grows, none, ops.where(bad, _next_of_four(state["drops"], ops), state["drops"]))
        patience = ops.int64(_PATIENCE)
        has_longer = index < ops.int64(len(self.windows) - 1)
        lengthens = ops.logical_and(ops.logical_and(grows, has_longer), raises >= patience)
        shortens = ops.logical_and(ops.logical_and(bad, index > none), drops >= patience)
        is_new = ops.logical_or(lengthens, shortens)
        return {
            "current_loss_scale": ops.where(grows, larger, ops.where(bad, smaller, scale)),
            "good_steps": ops.where(ops.logical_or(grows, bad), none, good_steps),
            "window_place": ops.where(lengthens, index + one, ops.where(shortens, ops.int64(_SHORTEST), index)),
            "raises": ops.where(is_new, none, raises),
            "drops": ops.where(shortens, none, drops),
        }


def windows_between(minimum: int, maximum: int) -> List[int]:
    """Return the windows between minimum and maximum.

    From the maximum down: half of it in whole hundreds, from 100 to 50, then less by half the minimum each time.
    """
    windows, window = [maximum], float(maximum)
    while window > minimum:
        if window > 100:
            window = window // 200 * 100
        elif window == 100:
            window = 50.0
        else:
            window -= minimum / 2
        windows.append(max(int(window), minimum))
    return windows[::-1]


def _next_of_four(count: Any, ops: Any) -> Any:
    return ops.where(count >= ops.int64(_PATIENCE), ops.int64(0), count + ops.int64(1))
