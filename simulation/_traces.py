"""Traces: the magnitude of the gradients of a run, step by step."""

from typing import Any, Dict, Mapping, Optional, Tuple

import numbers
import os

import numpy as np

from ..registry._argument_checks import unexpected
from ..registry.errors import InvalidSpecError, Problem, shown

FLOAT16_LARGEST = 65504.0
MOST_STEPS = 20_000_000  # 240 MB
COLUMNS = ("largest", "scale", "zero_share")

# An unknown size is taken as a little more than the limit at the scale where it overflowed: more than float64 rounds
# away, and less than float32's next smaller scale would need.
_A_LITTLE_MORE = 1.0 + 2.0**-40


class Trace:
    """The gradients of a run, one entry for each step.

    Args:
        largest: The largest magnitude among the unscaled gradients of each step; inf where they were not all finite.
        scale: The loss scale of each step, or of all.
        zero_share: The share of gradients that were 0 in each step, or None.
        limit: The largest number of the type of the gradients: 65504 for float16.
        facts: Facts about the run, as plain values for JSON.

    Raises:
        InvalidSpecError: A value is not valid.

    Example:
        >>> from scalekeeper import Trace
        >>> trace = Trace([0.5, float("inf"), 2.0], scale=[1024, 65536, 32768])
        >>> len(trace), trace.overflows_at(32768).tolist(), trace.overflows_at(65536).tolist()
        (3, [False, False, True], [False, True, True])
    """

    def __init__(
        self,
        largest: Any,
        scale: Any = 1.0,
        zero_share: Any = None,
        *,
        limit: float = FLOAT16_LARGEST,
        facts: Optional[Mapping[str, Any]] = None,
    ) -> None:
        self.largest = _column("largest", largest)
        steps = len(self.largest)
        if steps > MOST_STEPS:
            raise _wrong(("largest",), f"{steps} steps are more than a trace may have ({MOST_STEPS})")
        self.scale = _column("scale", np.full(steps, scale) if np.ndim(scale) == 0 else scale)
        self.zero_share = None if zero_share is None else _column("zero_share", zero_share)
        for name in COLUMNS:
            values = getattr(self, name)
            if values is not None:
                _require_length(name, values, steps)
                _require_values(name, values)
        self.limit = checked_limit(limit)
        if facts is not None and not isinstance(facts, Mapping):
            raise _wrong(("facts",), f"{shown(facts)} must be a mapping of names to plain values")
        self.facts: Dict[str, Any] = dict(facts or {})

    def __len__(self) -> int:
        return len(self.largest)

    def __repr__(self) -> str:
        return f"Trace of {len(self)} steps, {np.count_nonzero(np.isinf(self.largest))} of them not finite"

    def first(self, steps: int) -> "Trace":
        """Return a trace of the first steps.

        Args:
            steps: The number of steps.
        """
        share = None if self.zero_share is None else self.zero_share[:steps]
        return Trace(self.largest[:steps], self.scale[:steps], share, limit=self.limit, facts=self.facts)

    def sizes(self, limit: Optional[float] = None) -> "np.ndarray[Any, Any]":
        """Return the largest magnitude of each step in float64: it overflows where ``size * scale > limit``.

        The size of a non-finite step is unknown. It gets the smallest size that overflows at the scale of the step.

        Args:
            limit: The largest representable gradient. Defaults to the limit of the trace.
        """
        limit = self.limit if limit is None else limit
        unknown = limit / self.scale.astype(np.float64) * _A_LITTLE_MORE
        # the product of two float32 numbers is exact in float64, and so is the comparison
        return np.where(np.isinf(self.largest), unknown, self.largest.astype(np.float64))

    def overflows_at(self, scale: float, limit: Optional[float] = None) -> "np.ndarray[Any, Any]":
        """Return which steps overflow at a constant loss scale.

        Args:
            scale: The loss scale.
            limit: The largest representable gradient. Defaults to the limit of the trace.
        """
        limit = self.limit if limit is None else limit
        return overflowing(self.sizes(limit), float(np.float32(scale)), limit)


def require_trace(given: Any, call: str) -> None:
    """Raise :class:`ArgumentTypeError` unless an argument is a :class:`Trace`."""
    if not isinstance(given, Trace):
        instead = "" if isinstance(given, (str, os.PathLike)) else "; Trace([1.0, …]) makes one of numbers"
        raise unexpected(f"{call} with read_trace(path) or a Trace", "a Trace", given, instead)


def checked_limit(limit: Any) -> float:
    """Return the largest representable gradient as a float, or raise an error if it is not a finite number above 0."""
    is_number = isinstance(limit, numbers.Real) and not isinstance(limit, bool)
    if not is_number or not 0 < float(limit) < np.inf:
        raise _wrong(("limit",), f"{shown(limit)} must be a finite number above 0")
    return float(limit)


def overflowing(sizes: "np.ndarray[Any, Any]", scale: float, limit: float) -> "np.ndarray[Any, Any]":
    """Return which sizes overflow. Every step overflows at a loss scale that is 0 or not finite."""
    if not 0 < scale < np.inf:
        return np.ones(len(sizes), dtype=bool)
    overflows: np.ndarray[Any, Any] = sizes * scale > limit
    return overflows


def _column(name: str, values: Any) -> "np.ndarray[Any, Any]":
    try:
        given = np.asarray(values)
        if given.dtype.kind not in "fiub":
            raise ValueError
        with np.errstate(all="ignore"):
            column = given.astype(np.float32)
    except (TypeError, ValueError):
        raise _wrong((name,), f"{shown(values)} must be numbers, one for each step") from None
    if column.ndim != 1:
        raise _wrong((name,), f"an array of shape {column.shape} must have one dimension: one number for each step")
    if given.dtype.kind == "f" and given.dtype.itemsize > 4:  # 1e39 was finite, and 1e-50 was not 0
        _require_same(name, given, np.isinf(column) & ~np.isinf(given), "larger than float32 holds (3.4e38)")
        if name == "scale":
            _require_same(name, given, (column == 0) & (given > 0), "smaller than float32 holds (1.4e-45)")
    if name == "largest":
        column[np.isnan(column)] = np.inf
    column.setflags(write=False)
    return column


def _require_same(name: str, given: Any, wrong: Any, what: str) -> None:
    if wrong.any():
        index = int(wrong.argmax())
        raise _wrong((name, index), f"{given[index]:g} is {what}")


def _require_length(name: str, values: "np.ndarray[Any, Any]", steps: int) -> None:
    if len(values) != steps:
        raise _wrong((name,), f"{len(values)} values for {steps} steps: give one for each")


def _require_values(name: str, values: "np.ndarray[Any, Any]") -> None:
    if name == "largest":
        fine, rule = values >= 0, "a magnitude, which is 0 or more (inf: not finite)"
    elif name == "scale":
        fine, rule = (values > 0) & np.isfinite(values), "a scale, which is finite and above 0"
    else:
        fine, rule = (values >= 0) & (values <= 1), "a share, which is between 0 and 1"
    if not fine.all():
        index = int((~fine).argmax())
        raise _wrong((name, index), f"{values[index]:g} is not {rule}")


def _wrong(path: Tuple[Any, ...], message: str) -> InvalidSpecError:
    return InvalidSpecError([Problem(path, message, "value")])
