"""A policy's pure step over a trace: in numbers that can be checked by hand, and both ways alike."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalekeeper import DynamicLossScale, FixedLossScale, InvalidSpecError, LossScale, Trace
from scalekeeper.registry import loss_scales
from scalekeeper.simulation import simulate, simulate_every_step

INF = float("inf")


class Listening(LossScale):
    """Keeps what it was told, for a test to look at."""

    def initial_state(self):
        return {
            "current_loss_scale": np.float32(16),
            "largest": np.float32(0),
            "zeros": np.float32(0),
        }

    @property
    def needs(self):
        return frozenset({"largest_magnitude", "zero_share"})

    def should_apply(self, state, report, ops):
        return ops.isfinite(report.largest_magnitude)

    def next_state(self, state, report, ops):
        return {**state, "largest": report.largest_magnitude, "zeros": report.zero_share}


class Countdown(LossScale):
    """Halves at every step: to 0, in the end."""

    def initial_state(self):
        return {"current_loss_scale": np.float32(2.0**-147)}

    def next_state(self, state, report, ops):
        return {"current_loss_scale": state["current_loss_scale"] * ops.float32(0.5)}


def test_a_dynamic_scale_in_numbers():
    """Overflows halve the scale and are lost, two finite steps double it."""
    trace = Trace([1, 3, 3, 1, 1, 1, INF], [1, 1, 1, 1, 1, 1, 512], limit=2048)
    result = simulate(DynamicLossScale(1024, 2), trace)
    assert result.scale.tolist() == [1024, 1024, 512, 512, 1024, 1024, 2048]
    assert result.overflowed.tolist() == [False, True, False, False, False, False, True]
    assert result.applied.tolist() == [True, False, True, True, True, True, False]
    assert result.state == {"current_loss_scale": 1024.0, "good_steps": 0}
    assert (result.steps, result.steps_lost, result.overflows, result.first_spoiled) == (7, 2, 2, None)
    assert (result.share_lost, result.mean_log2_scale) == (2 / 7, (10 * 4 + 9 * 2 + 11) / 7)
    assert (result.lowest, result.highest, result.last) == (512, 2048, 2048)
    assert result.changes == [0, 2, 4, 6]


def test_time_at_the_floor():
    """Steps taken with the minimum."""
    result = simulate(DynamicLossScale(8, minimum=2), Trace([INF] * 5, 1))
    assert result.scale.tolist() == [8, 4, 2, 2, 2]
    assert (result.floor, result.steps_at_floor, result.share_at_floor) == (2.0, 3, 0.6)


def test_a_fixed_scale_has_no_floor():
    """And applies what is not finite, unless it is told not to."""
    trace = Trace([1, INF, 1], 128)
    result = simulate(128, trace)
    assert (result.steps_lost, result.overflows, result.first_spoiled) == (0, 1, 1)
    assert (result.floor, result.steps_at_floor, result.share_at_floor) == (None, None, None)
    skipping = simulate(FixedLossScale(128, skip_nonfinite=True), trace)
    assert (skipping.steps_lost, skipping.first_spoiled) == (1, None)


def test_a_step_of_unknown_size_overflows_at_its_scale_and_above():
    """And not below, as nobody knows better."""
    trace = Trace([INF], 64)
    assert [simulate(scale, trace).overflows for scale in (32, 64, 128)] == [0, 1, 1]


def test_the_limit_can_be_another():
    """By default it is the trace's."""
    trace = Trace([1.0], limit=100)
    assert [simulate(128, trace).overflows, simulate(128, trace, 65504).overflows] == [1, 0]
    with pytest.raises(InvalidSpecError, match="limit: 0 must be a finite number above 0"):
        simulate(128, trace, 0)


def test_a_policy_is_told_what_it_needs():
    """The largest magnitude, infinite where it overflowed; zero shares where the trace has them, else 0."""
    trace = Trace([2, INF, INF], [1, 16, 32], [0.5, 0.25, 1], limit=64)
    seen = [simulate(Listening(), trace.first(steps)).state for steps in (1, 2, 3)]
    assert [state["zeros"] for state in seen] == [0.5, 0.25, 1]
    assert [state["largest"] for state in seen] == [2, INF, 2]  # 64 / 32: it did not overflow at 16
    assert simulate(Listening(), Trace([2])).state["zeros"] == 0


def test_a_scale_of_0_loses_every_step():
    """Dividing by it makes NaN."""
    result = simulate(Countdown(), Trace([0.0] * 20))
    assert result.scale[2:5].tolist() == [2.0**-149, 0.0, 0.0]
    assert result.overflowed.tolist() == [False] * 3 + [True] * 17
    assert result.mean_log2_scale == -INF
    assert result.summary()["mean_log2_scale"] is None


def test_a_trace_without_steps():
    """Nothing is lost, and there is no scale to speak of."""
    result = simulate("dynamic", Trace([]))
    assert result.summary() == {
        "steps": 0,
        "steps_lost": 0,
        "share_lost": 0.0,
        "overflows": 0,
        "first_spoiled": None,
        "mean_log2_scale": None,
        "floor": 1.0,
        "steps_at_floor": 0,
        "share_at_floor": 0.0,
        "lowest": None,
        "highest": None,
        "last": None,
    }


def test_what_has_no_pure_step_is_refused():
    """A class in TensorFlow's own style can't be simulated."""

    class Own:
        def __call__(self):
            return 1.0

        def update(self, grads):
            return None, True

    with pytest.raises(InvalidSpecError, match="can't be simulated: it has no pure step"):
        simulate(Own(), Trace([1]))


def test_the_policys_own_state_is_left_alone():
    """A simulation starts from the initial state, and leaves the object as it was."""
    policy = DynamicLossScale(1024)
    policy.update([INF])
    assert simulate(policy, Trace([INF])).scale.tolist() == [1024]
    assert policy.state()["current_loss_scale"] == 512


def test_progress_is_told():
    """Now and then, and never more than there is."""
    told = []
    simulate("dynamic", Trace(np.ones(120_000)), progress=told.append)
    assert told[0] <= 1
    assert 2 <= len(told) <= 4
    assert told == sorted(told)


# The short cuts

pieces = st.tuples(st.sampled_from([0.0, 0.5, 1.0, 3.0, 1000.0, 1e30, INF]), st.sampled_from([1, 2, 3, 7, 40, 300]))


@st.composite
def traces(draw):
    """Stretches of equal steps, long enough to be jumped over, and single ones."""
    parts = draw(st.lists(pieces, min_size=1, max_size=8))
    largest = np.concatenate([np.full(count, size, np.float32) for size, count in parts])
    scale = draw(st.sampled_from([1.0, 2.0**-140, 64.0, 2.0**100]))
    return Trace(largest, scale, limit=draw(st.sampled_from([100.0, 65504.0])))


@st.composite
def policies(draw):
    """Dynamic and fixed ones, and every registered one that needs no parameters."""
    dynamic = st.builds(
        DynamicLossScale,
        initial_loss_scale=st.just(64.0),
        increment_period=st.sampled_from([1, 2, 5, 30, 2000]),
        multiplier=st.sampled_from([2.0, 3.0, 1.1]),
        minimum=st.sampled_from([1.0, 2.0**-126, 16.0]),
        maximum=st.sampled_from([None, 64.0, 4096.0]),
    )
    fixed = st.builds(FixedLossScale, st.sampled_from([1.0, 128.0, 1e30]), skip_nonfinite=st.booleans())
    named = [row.name for row in loss_scales.listing() if row.plugin and row.plugin.needs_nothing]
    return draw(dynamic | fixed | st.sampled_from([*named]).map(loss_scales.resolve))


@given(policies(), traces())
def test_short_cuts_change_nothing(policy, trace):
    """Scale, applied, overflows and the last state are those of the pure step at every step, bit for bit."""
    short, straight = simulate(policy, trace), simulate_every_step(policy, trace)
    assert short.scale.tobytes() == straight.scale.tobytes()
    assert short.applied.tobytes() == straight.applied.tobytes()
    assert short.overflowed.tobytes() == straight.overflowed.tobytes()
    assert list(short.state) == list(straight.state)
    for name, value in straight.state.items():
        assert (short.state[name].dtype, short.state[name].tobytes()) == (value.dtype, value.tobytes())


def test_it_needs_no_tensorflow():
    """Neither simulating nor reading a trace imports it, also where it is installed."""
    code = """
import sys, scalekeeper
scalekeeper.simulate("dynamic", scalekeeper.Trace([1.0]))
print(sorted({"tensorflow", "keras", "tf_keras", "matplotlib", "h5py"} & set(sys.modules)))
"""
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
