"""What holds for every policy, every parameter and every sequence of steps."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scalekeeper import DynamicLossScale, FixedLossScale, Report
from scalekeeper.lossscales import advance

MAX = float(np.finfo(np.float32).max)
TINY = float(np.finfo(np.float32).tiny)


@st.composite
def dynamic(draw):
    """Any dynamic policy whose bounds hold."""
    numbers = sorted(draw(st.lists(st.floats(TINY, MAX, width=32), min_size=3, max_size=3)))
    return DynamicLossScale(
        initial_loss_scale=numbers[1],
        increment_period=draw(st.integers(1, 5)),
        multiplier=draw(st.one_of(st.just(2.0), st.floats(1.0 + 2**-23, 2.0**126, width=32))),
        minimum=numbers[0],
        maximum=draw(st.sampled_from([numbers[2], None])),
    )


fixed = st.builds(FixedLossScale, st.floats(1, MAX), skip_nonfinite=st.booleans())
reports = st.lists(st.booleans(), max_size=60)


def expected_states(params, finite_steps):
    """TensorFlow's published rule, written once more with Python's control flow instead of selections."""
    scale, good = np.float32(params.initial_loss_scale), 0
    multiplier = np.float32(params.multiplier)
    for finite in finite_steps:
        if not finite:
            shrunk = scale * (np.float32(1) / multiplier)
            np.testing.assert_allclose(shrunk, scale / multiplier, rtol=3e-7, atol=TINY)
            scale, good = max(shrunk, np.float32(params.minimum)), 0
        elif good + 1 < params.increment_period:
            good += 1
        else:
            with np.errstate(over="ignore"):
                product = scale * multiplier
            if np.isfinite(product):
                scale = product
            if params.maximum is not None:
                scale = min(scale, np.float32(params.maximum))
            good = 0
        yield scale, good


@given(dynamic(), reports)
def test_dynamic_follows_the_rule_within_its_bounds(policy, finite_steps):
    """For any parameters and any steps: the published rule, bit for bit; finite, positive, between the bounds."""
    state = policy.initial_state()
    low, high = np.float32(policy.params.minimum), np.float32(policy.params.maximum or MAX)
    for finite, (scale, good) in zip(finite_steps, expected_states(policy.params, finite_steps)):
        state, applied = advance(policy, state, Report(finite=np.bool_(finite)))
        assert (state["current_loss_scale"], state["good_steps"]) == (scale, good)
        assert state["current_loss_scale"].dtype == np.float32
        assert state["good_steps"].dtype == np.int64
        assert bool(applied) is finite
        assert low <= policy.scale(state, None) <= high
        assert math.isfinite(policy.scale(state, None))
        assert policy.scale(state, None) > 0


@given(fixed, st.lists(st.sampled_from([0.0, -3.0, np.inf, -np.inf, np.nan]), max_size=20))
def test_fixed_never_changes(policy, gradients):
    """For any value and any gradients: the same scale, and a skip only where it was asked for."""
    for gradient in gradients:
        before = policy()
        applied = policy.update([np.array([gradient])])[1]
        assert bool(applied) is (math.isfinite(gradient) or not policy.params.skip_nonfinite)
        assert policy() == before == np.float32(policy.params.loss_scale_value)


@given(st.one_of(dynamic(), fixed))
def test_config_round_trip_is_the_identity(policy):
    """from_config(get_config()) has the same configuration, and so the same behaviour."""
    again = type(policy).from_config(policy.get_config())
    assert again.get_config() == policy.get_config()
    assert again.initial_state() == policy.initial_state()


@given(dynamic(), st.floats(TINY, MAX, width=32), st.integers(0, 2**63 - 1))
def test_any_state_round_trips(policy, scale, good_steps):
    """What state() gave, load_state() takes, exactly, on an object that has a life of its own already."""
    policy.load_state({"current_loss_scale": scale, "good_steps": good_steps})
    other = type(policy).from_config(policy.get_config())
    other.update([np.array([np.nan])])
    other.load_state(policy.state())
    assert other.state() == {"current_loss_scale": scale, "good_steps": good_steps}


@given(dynamic(), reports, reports)
def test_saving_and_loading_in_the_middle_changes_nothing(policy, before, after):
    """A run that is saved, loaded and continued is the run that never stopped."""
    straight = type(policy).from_config(policy.get_config())
    for finite in before:
        policy.update([np.array([1.0 if finite else np.inf])])
    resumed = type(policy).from_config(policy.get_config())
    resumed.load_state(policy.state())
    for finite in after:
        resumed.update([np.array([1.0 if finite else np.inf])])
    for finite in before + after:
        straight.update([np.array([1.0 if finite else np.inf])])
    assert resumed.state() == straight.state()
