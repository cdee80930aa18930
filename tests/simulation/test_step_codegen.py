"""A step that is written out as a loop does what the step does."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalekeeper import LossScale, Trace, resolve
from scalekeeper.registry import loss_scales
from scalekeeper.simulation import simulate, simulate_every_step
from scalekeeper.simulation._step_codegen import generate_loop

INF = float("inf")
PARAMETERS = {
    "fixed": {"loss_scale_value": 64.0, "skip_nonfinite": True},
    "scheduled": {"values": [64.0, 1000.0, 3.0], "boundaries": [7, 30], "schedule": "exponential"},
}
BUILT_IN = [row.name for row in loss_scales.listing() if row.origin == "built in"]
magnitudes = st.sampled_from([0.0, 2.0**-149, 1e-38, 1e-3, 0.7, 3.0, 1e4, 1e30, INF])


def loop_of(policy):
    loop = generate_loop(policy)
    assert loop is not None
    return loop


def both(policy, largest, zero_share=None):
    """Scales, applied, overflows and last state, of the loop and of the step."""
    trace = Trace(largest, 2.0**-10, zero_share)
    straight = simulate_every_step(policy, trace)
    outputs = [np.empty(len(trace), kind) for kind in (np.float32, bool, bool)]
    sizes = trace.sizes()
    told = np.where(np.isinf(trace.largest), sizes, trace.largest).astype(np.float32).tolist()
    shares = [0.0] * len(trace) if zero_share is None else trace.zero_share.tolist()
    views = [memoryview(output) for output in outputs]
    last = loop_of(policy)(sizes.tolist(), told, shares, 65504.0, *views, lambda step: None, policy.initial_state())
    expected = [straight.scale, straight.applied, straight.overflowed]
    return [*(array.tobytes() for array in outputs), last], [*(array.tobytes() for array in expected), straight.state]


@pytest.mark.parametrize("name", BUILT_IN)
@given(largest=st.lists(magnitudes, max_size=60))
def test_every_built_in_policy_is_the_same_to_the_bit(name, largest):
    """All of them can be written out, whatever way the simulator takes."""
    found, expected = both(resolve({"name": name, **PARAMETERS.get(name, {})}), largest)
    assert found[:3] == expected[:3]
    assert list(found[3]) == list(expected[3])
    for key, value in expected[3].items():
        assert (found[3][key].dtype, found[3][key].tobytes()) == (value.dtype, value.tobytes())


class Everything(LossScale):
    """Uses each operation there is, on whatever comes."""

    def initial_state(self):
        return {"current_loss_scale": np.float32(3), "x": np.float32(1), "n": np.int64(0), "odd": np.bool_(False)}

    @property
    def needs(self):
        return frozenset({"finite", "largest_magnitude", "zero_share"})

    def next_state(self, state, report, ops):
        x, n, size = state["x"], state["n"] + ops.int64(1), report.largest_magnitude
        y = (ops.float32(1.1) / size - -x) * ops.float32(0.3) + x / (size - size)
        y = ops.where(ops.isfinite(y), y, ops.as_float32(n) - ops.float32(0.7))
        y = ops.maximum(ops.minimum(abs(y), ops.float32(1e30)), ops.sqrt(report.zero_share))
        y = ops.where(y >= ops.float32(1e-30), ops.exp2(ops.log2(y + ops.float32(1))), y)
        place = ops.count_reached([3, 9], n)
        picked = ops.pick([np.float32(0.5), np.float32(2), np.float32(0.1)], place)
        odd = ops.logical_or(ops.logical_not(state["odd"]), ops.logical_and(n < ops.int64(5), report.finite))
        root = ops.sqrt(picked - ops.float32(1))  # NaN at times, and so is what follows
        scale = ops.where(n != ops.int64(7), picked * ops.float32(7), ops.maximum(root, picked))
        after = {"current_loss_scale": scale, "x": y, "n": n, "odd": odd}
        return ops.either(
            report.finite,
            lambda: ops.either(odd, lambda: after, lambda: {**state, "n": n}),
            lambda: {**after, "x": ops.exp2(y * ops.float32(200) - ops.float32(300))},
        )


@given(st.lists(magnitudes, max_size=40), st.sampled_from([0.0, 0.1, 1.0]))
def test_every_operation_is_the_same_to_the_bit(largest, share):
    """Zeros, infinities, NaN and denormal numbers too."""
    found, expected = both(Everything(), largest, [share] * len(largest))
    assert found[:3] == expected[:3]
    for key, value in expected[3].items():
        assert found[3][key].tobytes() == value.tobytes() or (math.isnan(found[3][key]) and math.isnan(value))


class Branching(LossScale):
    """Asks a number for its truth, which a graph could not do."""

    @property
    def needs(self):
        return frozenset({"finite", "largest_magnitude"})

    def initial_state(self):
        return {"current_loss_scale": np.float32(64)}

    def next_state(self, state, report, ops):
        return dict(state) if report.finite else {"current_loss_scale": state["current_loss_scale"] / ops.float32(2)}


class Calling(Branching):
    """Calls NumPy itself."""

    def next_state(self, state, report, ops):
        return {"current_loss_scale": np.float32(np.abs(state["current_loss_scale"]))}


class Drifting(Branching):
    """Changes a type, which is refused."""

    def next_state(self, state, report, ops):
        return {"current_loss_scale": state["current_loss_scale"] > ops.float32(1)}


@pytest.mark.parametrize("policy", [Branching(), Calling(), Drifting()])
def test_what_can_not_be_watched_is_not_written_out(policy):
    """Nor guessed."""
    assert generate_loop(policy) is None


def test_such_a_step_is_taken_as_it_is():
    """With the same result, or the same error, as everywhere."""
    assert simulate(Branching(), Trace([1, INF, 1], 1)).scale.tolist() == [64, 64, 32]
    with pytest.raises(TypeError, match="from float32 into bool"):
        simulate(Drifting(), Trace([1]))
