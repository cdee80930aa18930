"""Properties of every policy, for every parameter and every sequence of steps."""

import json
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scalekeeper import (
    AdaptiveWindowLossScale,
    DynamicLossScale,
    FixedLossScale,
    LogMaxLossScale,
    NoLossScale,
    Report,
    ScheduledLossScale,
    TolerantLossScale,
)
from scalekeeper.lossscales import advance
from scalekeeper.lossscales._numpy_state import OPS

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
        growth_factor=draw(st.sampled_from([None, 1.5, 4.0])),
        backoff_factor=draw(st.sampled_from([None, 0.8, 0.25])),
        hysteresis=draw(st.integers(1, 4)),
        refill=draw(st.sampled_from(["on_growth", "on_good_step", "never"])),
        refill_on_backoff=draw(st.booleans()),
    )


@st.composite
def bounded(draw, make, **parameters):
    """Any policy with a floor and a ceiling, and these parameters."""
    low, start, high = sorted(draw(st.lists(st.floats(TINY, MAX, width=32), min_size=3, max_size=3)))
    drawn = {name: draw(strategy) for name, strategy in parameters.items()}
    return make(initial_loss_scale=start, minimum=low, maximum=high, **drawn)


@st.composite
def scheduled(draw):
    boundaries = sorted(draw(st.sets(st.integers(1, 40), max_size=4)))
    values = draw(st.lists(st.floats(TINY, MAX), min_size=len(boundaries) + 1, max_size=len(boundaries) + 1))
    kind = draw(st.sampled_from(["piecewise", "linear", "exponential"]))
    return ScheduledLossScale(values, boundaries, kind, draw(st.booleans()))


periods = st.integers(1, 5)
fixed = st.builds(FixedLossScale, st.floats(1, MAX), skip_nonfinite=st.booleans())
tolerant = bounded(TolerantLossScale, increment_period=periods, tolerance=st.sampled_from([0.0, 0.2, 0.5, 1.0]))
windows = bounded(AdaptiveWindowLossScale, minimum_window=st.just(20), maximum_window=st.sampled_from([50, 200, 1000]))
betas = st.floats(0.01, 0.999)
log_max = bounded(LogMaxLossScale, beta1=betas, beta2=betas, log_max=st.floats(-30, 30))
none = st.one_of(
    st.builds(NoLossScale, st.booleans()), st.builds(NoLossScale, st.just(True), apply_after_skips=st.integers(0, 3))
)
policies = st.one_of(dynamic(), fixed, tolerant, windows, log_max, scheduled(), none)
reports = st.lists(st.booleans(), max_size=60)
magnitudes = st.lists(
    st.one_of(st.sampled_from([0.0, 1.0, math.inf, math.nan]), st.floats(TINY, 2.0**126, width=32)), max_size=60
)


def expected_states(params, finite_steps):
    """TensorFlow's published rule and ours beyond it, once more with Python's control flow instead of selections."""
    scale, good, left = np.float32(params.initial_loss_scale), 0, params.hysteresis
    growth = np.float32(params.growth_factor or params.multiplier)
    backoff = np.float32(params.backoff_factor or np.float32(1) / np.float32(params.multiplier))
    for finite in finite_steps:
        if not finite:
            good, left = 0, max(left - 1, 0)
            if left == 0:
                scale = max(scale * backoff, np.float32(params.minimum))
                if params.refill_on_backoff:
                    left = params.hysteresis
        else:
            good += 1
            if params.refill == "on_good_step":
                left = params.hysteresis
            if good >= params.increment_period:
                good = 0
                with np.errstate(over="ignore"):
                    product = scale * growth
                if params.maximum is not None:
                    scale = min(product, np.float32(params.maximum))
                elif np.isfinite(product):
                    scale = product
                if params.refill == "on_growth":
                    left = params.hysteresis
        yield scale, good, left


@given(dynamic(), reports)
def test_dynamic_follows_the_rule_within_its_bounds(policy, finite_steps):
    """For any parameters and any steps: the published rule, bit for bit; finite, positive, between the bounds."""
    state = policy.initial_state()
    low, high = np.float32(policy.params.minimum), np.float32(policy.params.maximum or MAX)
    for finite, (scale, good, left) in zip(finite_steps, expected_states(policy.params, finite_steps)):
        state, applied = advance(policy, state, Report(finite=np.bool_(finite)))
        assert (state["current_loss_scale"], state["good_steps"]) == (scale, good)
        assert state.get("hysteresis_left", left if policy.params.hysteresis == 1 else None) == left
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


@given(policies)
def test_config_round_trip_is_the_identity(policy):
    """from_config(get_config()) has the same configuration, and so the same behaviour; JSON can carry it."""
    again = type(policy).from_config(json.loads(json.dumps(policy.get_config())))
    assert again.get_config() == policy.get_config()
    assert again.initial_state() == policy.initial_state()


@given(policies, magnitudes)
def test_every_policy_keeps_its_types_and_a_scale_that_can_be_used(policy, sizes):
    """For any gradients: the scale is a float32, finite, positive and within the bounds; no state is NaN."""
    low, high = getattr(policy.params, "minimum", TINY), getattr(policy.params, "maximum", None) or MAX
    for size in sizes:
        policy.update([np.array([size], np.float32)])
        scale = policy()
        assert scale.dtype == np.float32
        assert np.float32(low) <= scale <= np.float32(high)
        assert all(math.isfinite(value) for value in policy.state().values())


@given(dynamic(), st.floats(TINY, MAX, width=32), st.integers(0, 2**63 - 1))
def test_any_state_round_trips(policy, scale, good_steps):
    """``load_state()`` restores the result of ``state()`` exactly, on an object that has a life of its own already."""
    state = dict(policy.state(), current_loss_scale=scale, good_steps=good_steps)
    policy.load_state(state)
    other = type(policy).from_config(policy.get_config())
    other.update([np.array([np.nan])])
    other.load_state(policy.state())
    assert other.state() == state


@given(policies, magnitudes, magnitudes)
def test_saving_and_loading_in_the_middle_changes_nothing(policy, before, after):
    """A run that is saved, loaded and continued is the run that never stopped."""
    straight = type(policy).from_config(policy.get_config())
    for size in before:
        policy.update([np.array([size], np.float32)])
    resumed = type(policy).from_config(policy.get_config())
    resumed.load_state(json.loads(json.dumps(policy.state())))
    for size in after:
        resumed.update([np.array([size], np.float32)])
    for size in before + after:
        straight.update([np.array([size], np.float32)])
    assert resumed.state() == straight.state()


def report_of(size):
    return Report(finite=np.isfinite(np.float32(size)), largest_magnitude=np.float32(abs(size)))


# without -0, of which NumPy's own minimum and 0 are one or the other, by the processor
NUMBERS = st.one_of(st.sampled_from([0.0, math.inf, -math.inf, math.nan]), st.floats(width=32)).map(
    lambda number: np.float32(number or 0.0)
)


@given(NUMBERS, NUMBERS, st.booleans().map(np.bool_), st.booleans().map(np.bool_))
def test_short_ways_give_what_numpy_gives(one, other, first, second):
    """The operations on scalars equal NumPy's own functions, in value and type, for NaN and infinity too."""
    pairs = [
        (OPS.minimum(one, other), np.minimum(one, other)),
        (OPS.maximum(one, other), np.maximum(one, other)),
        (OPS.isfinite(one), np.isfinite(one)),
        (OPS.where(first, one, other), np.where(first, one, other)[()]),
        (OPS.logical_and(first, second), np.logical_and(first, second)),
        (OPS.logical_or(first, second), np.logical_or(first, second)),
        (OPS.logical_not(first), np.logical_not(first)),
    ]
    for actual, expected in pairs:
        np.testing.assert_equal(actual, expected)
        assert type(actual) is type(expected)


@given(st.floats(TINY, MAX, width=32).map(np.float32))
def test_the_logarithm(value):
    """Within 0.009 of the true one, exact at powers of two, and its inverse brings the number back within 1 %."""
    log, exponent = OPS.log2(value), math.frexp(value)[1] - 1
    assert abs(math.log2(value) - float(log)) <= 0.009
    assert OPS.log2(np.float32(2.0**exponent)) == exponent
    assert OPS.exp2(np.float32(exponent)) == 2.0**exponent
    if log < 128:  # which is what the largest numbers are rounded to
        np.testing.assert_allclose(OPS.exp2(log), value, rtol=0.01)
