"""The magnitudes of many numbers, counted by powers of two, and what float16 would make of them."""

from typing import Any, Dict, NamedTuple, Optional

import math

import numpy as np

LARGEST = 65504.0  # of float16
SMALLEST_NORMAL = 2.0**-14
ROUNDS_TO_ZERO = 2.0**-25  # half of the smallest subnormal number, 2^-24; a tie is rounded to zero
MOST_SAMPLED = 2**15  # elements of one array that are counted; the largest magnitude is that of all
_BINS = 512
_ZEROS, _OFFSET = 511, 127  # the bin of zeros; bin b has the magnitudes in (2^(b-127), 2^(b-126)]


class Spread(NamedTuple):
    """The magnitudes of the numbers of one kind in one layer, and what float16 would make of them.

    Attributes:
        elements: The number of elements.
        counted: The number of finite elements that the shares are computed from: all, or a sample of large arrays.
        largest: The largest finite magnitude; 0.0 if there is none.
        smallest: A lower bound of the smallest magnitude above zero: a power of two; None if there is none.
        nonfinite: The number of elements that are NaN or infinite.
        zero: The share of elements that are zero already.
        overflow: The share of elements above 65504.
        underflow: The share that rounds to zero in float16: magnitudes above 0, up to 2^-25.
        subnormal: The share that becomes a subnormal float16 number, with fewer digits: above 2^-25, up to 2^-14. A
            device that flushes subnormal numbers makes these zero, too.
        powers: Power of two p → the number of counted elements in (2^p, 2^(p+1)].

    Example:
        >>> from scalekeeper.diagnosis import Spread
        >>> shares = {"zero": 0.0, "overflow": 0.0, "underflow": 1 / 3, "subnormal": 0.0}
        >>> spread = Spread(3, 3, 2.0, 2.0**-30, 0, **shares, powers={-30: 1, 0: 2})
        >>> spread.largest_scale(), spread.lost_at(1.0) == 1 / 3, spread.lost_at(1024.0)
        (16384.0, True, 0.0)
    """

    elements: int
    counted: int
    largest: float
    smallest: Optional[float]
    nonfinite: int
    zero: float
    overflow: float
    underflow: float
    subnormal: float
    powers: Dict[int, int]

    def lost_at(self, loss_scale: float) -> float:
        """Return the share of the elements that are not zero and would round to zero, multiplied by a loss scale.

        Args:
            loss_scale: The loss scale.
        """
        total = sum(self.powers.values())
        limit = math.log2(ROUNDS_TO_ZERO / loss_scale)
        lost = sum(count for power, count in self.powers.items() if power + 1 <= limit)
        return lost / total if total else 0.0

    def largest_scale(self) -> Optional[float]:
        """Return the largest power of two that multiplies all elements within float16's range; None if all are 0."""
        return power_of_two(LARGEST / self.largest) if self.largest > 0 else None

    def smallest_scale(self, share: float) -> Optional[float]:
        """Return the smallest power of two at which at most this share of the elements rounds to zero.

        Args:
            share: The share, from 0 to 1.
        """
        total, seen = sum(self.powers.values()), 0
        for power in sorted(self.powers):
            seen += self.powers[power]
            if seen > share * total:
                return ROUNDS_TO_ZERO * 2.0**-power  # more than half of the smallest number for all in this bin
        return None

    def for_json(self) -> Dict[str, Any]:
        """Return plain values for JSON."""
        return {**self._asdict(), "powers": {str(power): count for power, count in sorted(self.powers.items())}}


class Magnitudes:
    """Counts the magnitudes of arrays that are observed one after the other."""

    def __init__(self) -> None:
        self.elements = self.nonfinite = self.above = 0
        self.largest = 0.0
        self._bins = np.zeros(_BINS, np.int64)

    def observe(self, array: Any, largest: Optional[float] = None) -> None:
        """Count an array of floating-point numbers.

        Args:
            array: The array.
            largest: The result of :func:`largest_magnitude` for it, if that is known.
        """
        flat = np.ravel(array)
        if not flat.size:
            return
        largest = largest_magnitude(flat) if largest is None else largest
        self.elements += flat.size
        if not math.isfinite(largest):
            finite = flat[np.isfinite(flat)]
            self.nonfinite += flat.size - finite.size
            flat = finite
            if not flat.size:
                return
            largest = largest_magnitude(flat)
        self.largest = max(self.largest, largest)
        if largest > LARGEST:
            self.above += int(np.count_nonzero(np.abs(flat) > LARGEST))
        sample = np.ascontiguousarray(flat[:: stride(flat.size)], np.float32)
        bits = (sample.view(np.uint32) & np.uint32(0x7FFFFFFF)) - np.uint32(1)  # 0 wraps around, into the last bin
        self._bins += np.bincount(bits >> np.uint32(23), minlength=_BINS)

    def spread(self) -> Spread:
        """Return what was counted."""
        counted = int(self._bins.sum())
        powers = {number - _OFFSET: int(count) for number, count in enumerate(self._bins[:_ZEROS]) if count}
        lost = sum(count for power, count in powers.items() if 2.0 ** (power + 1) <= ROUNDS_TO_ZERO)
        small = sum(count for power, count in powers.items() if 2.0 ** (power + 1) <= SMALLEST_NORMAL)
        share = 1 / counted if counted else 0.0
        return Spread(
            self.elements,
            counted,
            self.largest,
            2.0 ** min(powers) if powers else None,
            self.nonfinite,
            int(self._bins[_ZEROS]) * share,
            self.above / self.elements if self.elements else 0.0,
            lost * share,
            (small - lost) * share,
            powers,
        )


def largest_magnitude(array: Any) -> float:
    """Return the largest magnitude of an array that is not empty: NaN if one is NaN, infinity if one is infinite."""
    if array.dtype == np.float16:  # NumPy is slow at comparing these; their bits are in the same order
        bits = np.max(np.ascontiguousarray(array).view(np.uint16) & np.uint16(0x7FFF))
        return math.nan if bits > 0x7C00 else float(np.uint16(bits).view(np.float16))
    if array.dtype.kind != "f":  # bfloat16
        array = array.astype(np.float32)
    with np.errstate(invalid="ignore"):
        highest, lowest = float(np.max(array)), float(np.min(array))
    return math.nan if math.isnan(highest) or math.isnan(lowest) else max(highest, -lowest)


def stride(size: int) -> int:
    """Return the distance of sampled elements, which shares no factor with common sizes of the last dimension."""
    step = -(-size // MOST_SAMPLED)
    while step > 1 and math.gcd(step, 210) > 1:
        step += 1
    return step


def power_of_two(bound: float) -> float:
    """Return the largest power of two that is at most a positive bound."""
    return math.ldexp(1.0, math.frexp(bound)[1] - 1)


def power_text(value: Optional[float]) -> str:
    """Return a power of two as ``2^10``, another number with three digits, and None as ``-``."""
    if value is None:
        return "-"
    mantissa, exponent = math.frexp(value)
    return f"2^{exponent - 1}" if mantissa == 0.5 else f"{value:.3g}"
