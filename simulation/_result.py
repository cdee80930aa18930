"""The result of a simulation."""

from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np

from ..lossscales.contract import LossScale


class Simulation(NamedTuple):
    """The result of a policy on a trace.

    Attributes:
        policy: The policy.
        scale: The loss scale of each step.
        applied: Whether each step was applied.
        overflowed: Whether the gradients of each step overflowed.
        state: The final state.
        limit: The largest representable gradient.

    Example:
        >>> import scalekeeper
        >>> result = scalekeeper.simulate("dynamic", scalekeeper.Trace([1.0, 4.0, 1.0]))
        >>> result.steps, result.steps_lost, result.lowest, result.changes
        (3, 1, 16384.0, [0, 2])
    """

    policy: LossScale
    scale: Any
    applied: Any
    overflowed: Any
    state: Dict[str, Any]
    limit: float

    @property
    def steps(self) -> int:
        """The number of steps."""
        return len(self.scale)

    @property
    def steps_lost(self) -> int:
        """The number of skipped steps."""
        return self.steps - int(np.count_nonzero(self.applied))

    @property
    def share_lost(self) -> float:
        """The share of steps that were skipped."""
        return self.steps_lost / self.steps if self.steps else 0.0

    @property
    def overflows(self) -> int:
        """The number of steps whose gradients were not all finite."""
        return int(np.count_nonzero(self.overflowed))

    @property
    def first_spoiled(self) -> Optional[int]:
        """The first step that was applied with non-finite gradients, which makes the weights NaN; or None."""
        spoiled = self.overflowed & self.applied
        return int(spoiled.argmax()) if spoiled.any() else None

    @property
    def mean_log2_scale(self) -> Optional[float]:
        """The mean of log2 of the loss scale."""
        if not self.steps:
            return None
        with np.errstate(divide="ignore"):
            return float(np.log2(self.scale, dtype=np.float64).mean())

    @property
    def floor(self) -> Optional[float]:
        """The ``minimum`` of the policy, or None."""
        minimum = getattr(self.policy.params, "minimum", None)
        return None if minimum is None else float(np.float32(minimum))

    @property
    def steps_at_floor(self) -> Optional[int]:
        """The number of steps at the ``minimum`` of the policy, or None."""
        return None if self.floor is None else int(np.count_nonzero(self.scale <= np.float32(self.floor)))

    @property
    def share_at_floor(self) -> Optional[float]:
        """The share of steps at the ``minimum`` of the policy, or None."""
        at_floor = self.steps_at_floor
        return None if at_floor is None else at_floor / self.steps if self.steps else 0.0

    @property
    def lowest(self) -> Optional[float]:
        """The lowest loss scale; None without steps."""
        return float(self.scale.min()) if self.steps else None

    @property
    def highest(self) -> Optional[float]:
        """The highest loss scale; None without steps."""
        return float(self.scale.max()) if self.steps else None

    @property
    def last(self) -> Optional[float]:
        """The loss scale of the last step; None without steps."""
        return float(self.scale[-1]) if self.steps else None

    @property
    def changes(self) -> List[int]:
        """The first step, and every step whose scale differs from that of the step before."""
        if not self.steps:
            return []
        return [0, *(np.flatnonzero(self.scale[1:] != self.scale[:-1]) + 1).tolist()]

    def summary(self) -> Dict[str, Any]:
        """Return the results as plain values for JSON."""
        names = (
            "steps",
            "steps_lost",
            "share_lost",
            "overflows",
            "first_spoiled",
            "mean_log2_scale",
            "floor",
            "steps_at_floor",
            "share_at_floor",
            "lowest",
            "highest",
            "last",
        )
        return {name: _for_json(getattr(self, name)) for name in names}

    def __repr__(self) -> str:
        return f"Simulation of {self.policy!r}: {self.steps_lost} of {self.steps} steps lost"


def _for_json(value: Any) -> Any:
    """Return None for infinity and NaN, which JSON does not have."""
    return None if isinstance(value, float) and not np.isfinite(value) else value
