"""TF1 graph mode, in a process of its own: graph_mode.py runs the scenarios, these tests hold their results."""

import json
import os

import pytest

from scalekeeper_test_support import script_runner
from scalekeeper_test_support.installed_keras import IS_KERAS_3

if IS_KERAS_3:
    pytest.skip("Keras 3 has no TF1 graph mode", allow_module_level=True)


@pytest.fixture(scope="module")
def results():
    """Name → result of each scenario; they share one process."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "graph_mode.py")
    return json.loads(script_runner.run(script))


@pytest.fixture
def result(results):
    """A scenario's result; its traceback, if it failed, is this test's message."""

    def of(name):
        if "error" in results[name]:
            pytest.fail(results[name]["error"], pytrace=False)
        return results[name]["result"]

    return of


def test_the_scenarios_run_in_graph_mode(result):
    """Eager execution is off in the process that the other results come from."""
    assert result("is_graph_mode") is True


def test_without_scaling_the_gradient_vanishes(result):
    """The gradient that the other tests train with is lost in float16 when nothing scales it."""
    assert result("fit_without_scaling") == 1.0


def test_fit_with_a_fixed_scale_applies_exactly_the_unscaled_gradient(result):
    """Two steps of 0.25 each, with a gradient that only scaling keeps from vanishing."""
    assert result("fit_fixed") == 0.5


def test_fit_with_a_dynamic_scale_applies_exactly_the_unscaled_gradient(result):
    """Two steps of 0.25 each, counted by the policy and the iterations; `model.optimizer` is our object."""
    assert result("fit_dynamic") == [0.5, {"current_loss_scale": 2.0**15, "good_steps": 2}, 2, True]


def test_an_overflow_during_fit_skips_one_step(result):
    """The bad batch changes no weight and halves the scale; the three around it train."""
    assert result("fit_with_an_overflow") == [0.25, {"current_loss_scale": 2.0**14, "good_steps": 2}]


def test_a_constraint_is_applied_after_the_update(result):
    """An update that would take the weight below zero leaves it at zero."""
    assert result("fit_with_a_constraint") == 0.0


def test_callbacks_reach_through_the_wrapper(result):
    """The scheduler's rates are the steps taken, and the checkpoint of the last epoch brings its weight back."""
    assert result("fit_with_callbacks") == [{"weight": 0.125, "loss": [1.0, 0.5, 0.25]}, 0.125]


def test_train_on_batch_applies_exactly_the_unscaled_gradient(result):
    """`train_on_batch` scales once, and reports the loss unscaled."""
    assert result("train_on_batch") == [0.5, [2.0**-29, 0.75 * 2.0**-29]]


def test_an_embedding_adds_up_a_row_that_was_read_twice(result):
    """A sparse gradient is unscaled once: row 1 moves by 0.5, the others stay."""
    assert result("fit_embedding") == [1.0, 0.5, 1.0, 1.0]


def test_get_gradients_are_unscaled_and_get_updates_applies_them(result):
    """A gradient that vanishes for the inner optimizer alone comes out exact, and so do the two updates."""
    assert result("gradients_and_updates") == {
        "gradient": 2.0**-29,
        "unscaled": 0.0,
        "weights": [0.75, 0.5],
        "scale": 2.0**15,
    }


def test_get_updates_skips_an_overflow(result):
    """Weight and scale step by step: applied, skipped with the scale halved, applied."""
    assert result("updates_with_an_overflow") == [[0.75, 2.0**15], [0.75, 2.0**14], [0.5, 2.0**14]]


def test_get_updates_clips_the_unscaled_gradient(result):
    """A gradient of 1/8 is below the clip value of 1/4 and stays, a gradient of 4 is clipped to it."""
    assert result("updates_with_clipping") == [0.875, 0.625]


def test_minimize_scales_once(result):
    """The op that `minimize` returns does all of it, each time it is run."""
    assert result("minimize") == 0.5


@pytest.mark.parametrize("way", ["restored", "loaded"])
def test_a_saved_model_comes_back_whole(result, way):
    """Weights, slots, iterations, scale and counter are those that were saved, not the initial ones."""
    found = result("save_and_go_on")
    assert found[way] == found["saved"]
    assert found["saved"]["loss_scale"]["state"] == {"current_loss_scale": 2.0**23, "good_steps": 1}
    assert any(any(values) for values in found["saved"]["slots"]["second/bias"].values())


@pytest.mark.parametrize("policy", ["fixed", "dynamic"])
@pytest.mark.parametrize("inner", ["sgd", "adam"])
def test_fit_equals_tensorflow_s_own_class(result, inner, policy):
    """Three epochs leave equal losses, weights, slots, scale and iterations, bit for bit."""
    both = result(f"equal_{inner}_{policy}")
    assert both["ours"] == both["theirs"]
    if policy == "dynamic":
        assert both["ours"]["scale"] < 2.0**24, "no step was skipped: the data do not test anything"
