"""A trace, and which of its steps overflow where."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalekeeper import InvalidSpecError, Trace

INF = float("inf")
float32s = st.floats(0, 2.0**100, width=32)
scales = st.floats(2.0**-100, 2.0**100, width=32)


def test_columns_are_float32_and_can_not_be_changed():
    """Numbers of any type are accepted; without a scale it is 1."""
    trace = Trace([1, 2.5])
    assert (trace.largest.dtype, trace.scale.tolist(), trace.zero_share) == (np.float32, [1.0, 1.0], None)
    with pytest.raises(ValueError, match="read-only"):
        trace.largest[0] = 3


def test_nan_is_not_finite():
    """NaN says the same as inf."""
    assert Trace([float("nan"), 1]).largest.tolist() == [INF, 1.0]


def test_a_known_size_overflows_above_the_limit():
    """65504 is the largest number of float16: at it nothing overflows, above it everything."""
    trace = Trace([1.0, 2.0, 0.0])
    assert trace.overflows_at(32752).tolist() == [False, False, False]
    assert trace.overflows_at(32753).tolist() == [False, True, False]
    assert trace.overflows_at(2.0**127).tolist() == [True, True, False]


@pytest.mark.parametrize("scale", [0.0, INF, float("nan")])
def test_a_scale_that_spoils_everything(scale):
    """0 and infinity turn even a gradient of 0 into NaN."""
    assert Trace([0.0]).overflows_at(scale).tolist() == [True]


@given(scales, st.floats(1, 2.0**20, width=32))
def test_an_unknown_size_overflows_from_the_scale_at_which_it_did(recorded, limit):
    """At the scale of the recording and above; at the next smaller float32, not any more."""
    trace = Trace([INF], [recorded], limit=limit)
    below = np.nextafter(np.float32(recorded), np.float32(0))
    above = np.nextafter(np.float32(recorded), np.float32(INF))
    assert [trace.overflows_at(scale).item() for scale in (below, recorded, above)] == [False, True, True]


@given(float32s, scales)
def test_a_known_size_is_compared_exactly(largest, scale):
    """As with fractions, which round nothing."""
    from fractions import Fraction

    expected = Fraction(largest) * Fraction(scale) > 65504
    assert Trace([largest]).overflows_at(scale).item() is expected


def test_the_first_steps():
    """Every column is cut, and limit and facts stay."""
    trace = Trace([1, 2, 3], [4, 5, 6], [0, 0.5, 1], limit=7, facts={"model": "small"}).first(2)
    assert (trace.largest.tolist(), trace.scale.tolist(), trace.zero_share.tolist()) == ([1, 2], [4, 5], [0, 0.5])
    assert (trace.limit, trace.facts) == (7.0, {"model": "small"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"largest": [1, -1]}, "largest[1]: -1 is not a magnitude, which is 0 or more (inf: not finite)"),
        ({"largest": [1], "scale": [0]}, "scale[0]: 0 is not a scale, which is finite and above 0"),
        ({"largest": [1], "scale": INF}, "scale[0]: inf is not a scale, which is finite and above 0"),
        ({"largest": [1, 1], "scale": [1]}, "scale: 1 values for 2 steps: give one for each"),
        ({"largest": [1], "zero_share": [1.5]}, "zero_share[0]: 1.5 is not a share, which is between 0 and 1"),
        ({"largest": [1e39]}, "largest[0]: 1e+39 is larger than float32 holds (3.4e38)"),
        ({"largest": [1], "scale": [1e-50]}, "scale[0]: 1e-50 is smaller than float32 holds (1.4e-45)"),
        ({"largest": ["one"]}, "largest: ['one'] must be numbers, one for each step"),
        ({"largest": [[1]]}, "largest: an array of shape (1, 1) must have one dimension: one number for each step"),
        ({"largest": [1], "limit": 0}, "limit: 0 must be a finite number above 0"),
    ],
)
def test_what_is_no_trace_is_refused(arguments, message):
    """The column, the step counted from 0, and what is allowed."""
    with pytest.raises(InvalidSpecError) as caught:
        Trace(**arguments)
    assert str(caught.value) == message
