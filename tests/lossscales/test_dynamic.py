"""The dynamic loss scale, step by step, in numbers that can be checked by hand."""

import numpy as np
import pytest

from scalekeeper import DynamicLossScale, InvalidSpecError, Report
from scalekeeper.lossscales import advance

GOOD, BAD = [np.array([1.0, -2.0])], [np.array([1.0, np.inf])]


def after(loss_scale, *steps):
    """The state after each step, as (scale, good steps)."""
    states = []
    for grads in steps:
        loss_scale.update(grads)
        states.append((loss_scale.state()["current_loss_scale"], loss_scale.state()["good_steps"]))
    return states


def test_defaults_are_tensorflows():
    """Without arguments it is TensorFlow's DynamicLossScale: 2**15, grown by 2 after 2000 good steps."""
    policy = DynamicLossScale()
    assert policy.get_config() == {"initial_loss_scale": 32768.0, "increment_period": 2000, "multiplier": 2.0}
    others = {name: value for name, value in policy.params.model_dump().items() if name not in policy.get_config()}
    assert others == {
        "minimum": 1.0,
        "maximum": None,
        "growth_factor": None,
        "backoff_factor": None,
        "hysteresis": 1,
        "refill": "on_growth",
        "refill_on_backoff": False,
    }
    assert DynamicLossScale(hysteresis=2).get_config() == {**policy.get_config(), "hysteresis": 2}


def test_call_gives_a_float32_scalar():
    """Calling it gives the current scale as a float32 scalar."""
    scale = DynamicLossScale(initial_loss_scale=8)()
    assert (scale, scale.dtype, scale.shape) == (8.0, np.dtype("float32"), ())


def test_grows_after_the_period_and_counts_anew():
    """The scale grows on the last step of each period of good steps."""
    loss_scale = DynamicLossScale(initial_loss_scale=8, increment_period=2)
    assert after(loss_scale, GOOD, GOOD, GOOD, GOOD) == [(8, 1), (16, 0), (16, 1), (32, 0)]


def test_backs_off_at_once_and_counts_anew():
    """One non-finite step divides the scale and forgets the good steps before it."""
    loss_scale = DynamicLossScale(initial_loss_scale=8, increment_period=3)
    assert after(loss_scale, GOOD, GOOD, BAD, GOOD) == [(8, 1), (8, 2), (4, 0), (4, 1)]


@pytest.mark.parametrize(("grads", "expected"), [(GOOD, True), (BAD, False), ([np.array([np.nan])], False)])
def test_a_bad_step_is_skipped(grads, expected):
    """update says whether the step is applied: only when every gradient is finite."""
    update_op, should_apply = DynamicLossScale().update(grads)
    assert (update_op, bool(should_apply)) == (None, expected)


def test_no_gradient_at_all_is_no_overflow():
    """None among the gradients stands for a variable without one, and empty gradients hold nothing bad."""
    assert bool(DynamicLossScale().update([None, np.zeros((0,)), np.array([1.0])])[1])


def test_floor():
    """It never goes below the minimum, and lands on it exactly."""
    loss_scale = DynamicLossScale(initial_loss_scale=6, minimum=2.5)
    assert after(loss_scale, BAD, BAD, BAD) == [(3, 0), (2.5, 0), (2.5, 0)]


def test_ceiling():
    """It never goes above the maximum, and lands on it exactly."""
    loss_scale = DynamicLossScale(initial_loss_scale=8, increment_period=1, maximum=20)
    assert after(loss_scale, GOOD, GOOD, GOOD) == [(16, 0), (20, 0), (20, 0)]


def test_without_a_ceiling_it_stays_finite():
    """Where the product would overflow float32, the scale stays, and the count starts anew, as in TensorFlow."""
    loss_scale = DynamicLossScale(initial_loss_scale=2.0**126, increment_period=1)
    assert after(loss_scale, GOOD, GOOD, GOOD) == [(2.0**127, 0), (2.0**127, 0), (2.0**127, 0)]


def test_multiplier():
    """The multiplier is used both ways."""
    loss_scale = DynamicLossScale(initial_loss_scale=8, increment_period=1, multiplier=4)
    assert after(loss_scale, GOOD, BAD, BAD) == [(32, 0), (8, 0), (2, 0)]


def test_a_restored_count_past_the_period_grows_at_the_next_good_step():
    """A counter from a run with a longer period still leads to growth (under Keras 3's own class it never would)."""
    loss_scale = DynamicLossScale(initial_loss_scale=8, increment_period=3)
    loss_scale.load_state({"current_loss_scale": 8.0, "good_steps": 10})
    assert after(loss_scale, GOOD) == [(16, 0)]


def test_the_step_is_pure():
    """next_state leaves the state it was given as it was."""
    loss_scale = DynamicLossScale(initial_loss_scale=8)
    state = loss_scale.initial_state()
    advance(loss_scale, state, Report(finite=np.bool_(False)))
    assert state == {"current_loss_scale": 8.0, "good_steps": 0}
    assert loss_scale.state() == {"current_loss_scale": 8.0, "good_steps": 0}


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"minimum": 4, "maximum": 2, "initial_loss_scale": 3}, "minimum"),
        ({"minimum": 4, "initial_loss_scale": 3}, "initial_loss_scale"),
        ({"maximum": 1024}, "initial_loss_scale"),
    ],
)
def test_bounds_that_contradict_each_other_are_refused(arguments, field):
    """minimum <= initial_loss_scale <= maximum, or an error that names the field to change."""
    with pytest.raises(InvalidSpecError) as caught:
        DynamicLossScale(**arguments)
    assert [(problem.path, problem.kind) for problem in caught.value.problems] == [((field,), "rule")]


def test_positional_arguments_as_in_tensorflow():
    """The arguments have TensorFlow's names and order."""
    config = DynamicLossScale(1024.0, 3, 4.0).get_config()
    assert (config["initial_loss_scale"], config["increment_period"], config["multiplier"]) == (1024.0, 3, 4.0)


def test_growth_and_backoff_of_their_own():
    """Each replaces the multiplier on its side."""
    loss_scale = DynamicLossScale(8, 1, growth_factor=3, backoff_factor=0.25)
    assert after(loss_scale, GOOD, BAD, BAD) == [(24, 0), (6, 0), (1.5, 0)]


def test_a_ceiling_is_reached_where_the_product_is_infinite():
    """The scale does not stay below it."""
    loss_scale = DynamicLossScale(2.0**127, 1, maximum=3e38)
    assert after(loss_scale, GOOD) == [(np.float32(3e38), 0)]


@pytest.mark.parametrize(
    ("refill", "refill_on_backoff", "expected"),
    [
        ("on_growth", False, [8, 8, 4, 2, 4, 4, 2]),
        ("on_growth", True, [8, 8, 4, 4, 8, 8, 4]),
        ("on_good_step", False, [8, 8, 8, 4, 8, 8, 4]),
        ("never", False, [8, 8, 4, 2, 4, 2, 1]),
    ],
)
def test_hysteresis(refill, refill_on_backoff, expected):
    """Two non-finite steps back off, with a good one between them or not; the third good step in a row grows."""
    loss_scale = DynamicLossScale(8, 2, hysteresis=2, refill=refill, refill_on_backoff=refill_on_backoff)
    steps = (BAD, GOOD, BAD, BAD, [GOOD, GOOD], BAD, BAD)
    found = []
    for step in steps:
        for grads in step if isinstance(step[0], list) else [step]:
            loss_scale.update(grads)
        found.append(loss_scale.state()["current_loss_scale"])
    assert found == expected


def test_hysteresis_is_state_only_where_there_is_some():
    """At the default the state is TensorFlow's."""
    assert list(DynamicLossScale().state()) == ["current_loss_scale", "good_steps"]
    assert DynamicLossScale(hysteresis=3).state()["hysteresis_left"] == 3


@pytest.mark.parametrize("factor", [0, 1, 1.5, -0.5, 0.99999999, "0.5"])
def test_a_backoff_factor_is_between_0_and_1(factor):
    """In float32 too."""
    with pytest.raises(InvalidSpecError, match="backoff_factor"):
        DynamicLossScale(backoff_factor=factor)
