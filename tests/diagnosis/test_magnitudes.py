"""Numbers rounded to float16, counted and compared with NumPy's own float16."""

import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from scalekeeper.diagnosis._magnitudes import (
    MOST_SAMPLED,
    Magnitudes,
    largest_magnitude,
    power_of_two,
    power_text,
    stride,
)


def spread(*values, dtype=np.float32):
    counted = Magnitudes()
    counted.observe(np.array(values, dtype))
    return counted.spread()


def test_limits_of_float16():
    """65504 fits and the next number does not; 2^-25 becomes 0 and the next number does not."""
    above = np.nextafter(np.float32(65504), np.float32(np.inf))
    tiny = np.nextafter(np.float32(2.0**-25), np.float32(1))
    found = spread(65504, -above, 2.0**-25, -tiny, 2.0**-14, 0.0, 1.0, 2.0**-149)
    assert (found.elements, found.counted, found.nonfinite) == (8, 8, 0)
    assert found.overflow == 1 / 8
    assert found.underflow == 2 / 8  # 2^-25 is a tie, which rounds to the even 0
    assert found.zero == 1 / 8
    assert found.subnormal == 2 / 8  # 2^-14 is the smallest normal number: it shares the last bin with those below
    assert found.largest == float(above)


@hypothesis.given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
def test_underflow_is_that_of_numpy(values):
    """The share that rounds to zero is exactly what NumPy's conversion gives."""
    array = np.array(values, np.float32)
    with np.errstate(over="ignore"):
        half = array.astype(np.float16)
    found = spread(*values)
    assert found.underflow == pytest.approx(np.count_nonzero((half == 0) & (array != 0)) / len(values))
    assert found.zero == pytest.approx(np.count_nonzero(array == 0) / len(values))
    assert found.overflow == pytest.approx(np.count_nonzero(np.abs(array) > 65504) / len(values))
    assert found.largest == np.max(np.abs(array))


def test_nonfinite_numbers_are_counted_apart():
    """NaN and infinities are counted and take no part in the other figures."""
    found = spread(np.nan, np.inf, -np.inf, 2.0, 4.0)
    assert (found.nonfinite, found.counted, found.largest, found.smallest) == (3, 2, 4.0, 1.0)
    only = spread(np.nan)
    assert (only.nonfinite, only.counted, only.largest, only.smallest) == (1, 0, 0.0, None)
    assert only.largest_scale() is only.smallest_scale(0.0) is None


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("values", "expected"), [((1, -3, 2), 3.0), ((0, 0), 0.0), ((1, -np.inf), math.inf), ((np.inf, np.nan), math.nan)]
)
def test_largest_magnitude(values, expected, dtype):
    """It is that of NumPy for each type, NaN before infinity."""
    assert largest_magnitude(np.array(values, dtype)) == pytest.approx(expected, nan_ok=True)


@hypothesis.given(st.lists(st.floats(2.0**-60, 2.0**14, width=32), min_size=1, max_size=30), st.integers(-20, 60))
def test_loss_scales(values, power):
    """At the largest scale nothing overflows and at twice it something does; at the smallest one nothing is lost."""
    found, array = spread(*values), np.array(values, np.float32).astype(np.float64)
    largest, smallest = found.largest_scale(), found.smallest_scale(0.0)
    assert np.max(array) * largest <= 65504 < np.max(array) * largest * 2
    with np.errstate(over="ignore"):
        kept, lost = ((array * scale).astype(np.float16) for scale in (smallest, smallest / 4))
    assert kept.all()
    assert not lost.all()
    share = np.count_nonzero((array * 2.0**power) <= 2.0**-25) / len(values)
    assert found.lost_at(2.0**power) == pytest.approx(share)


def test_large_arrays_are_sampled():
    """The largest magnitude and the share above the range are those of all elements, the rest those of a sample."""
    array = np.full(10 * MOST_SAMPLED, 2.0**-30, np.float32)
    array[12345] = 1e6
    counted = Magnitudes()
    counted.observe(array.reshape(10, -1))
    found = counted.spread()
    assert found.largest == 1e6
    assert found.overflow == 1 / array.size
    assert found.counted <= MOST_SAMPLED < found.elements == array.size
    assert found.underflow > 0.99


@pytest.mark.parametrize("channels", [3, 5, 7, 16, 64, 96, 512])
def test_a_sample_sees_all_channels(channels):
    """The distance of sampled elements shares no factor with the size of the last dimension."""
    array = np.zeros((400 * MOST_SAMPLED // channels // 40, channels), np.float32)
    step = stride(array.size)
    assert {index % channels for index in range(0, array.size, step)} == set(range(channels))


def test_powers_as_text():
    """Powers of two are written as such, other numbers with three digits."""
    assert [power_text(each) for each in (1024.0, 2.0**-3, 1000.0, None)] == ["2^10", "2^-3", "1e+03", "-"]
    assert [power_of_two(each) for each in (1.0, 1.9, 0.3)] == [1.0, 1.0, 0.25]
