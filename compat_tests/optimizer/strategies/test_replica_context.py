"""Steps in which replicas can't meet in one graph, as ``merge_call`` has them do.

TensorFlow has such steps on GPUs only, where XLA compiles the function given to ``strategy.run``. Two logical CPUs
stand in for them: the strategy is made to say that it does without ``merge_call``, as TensorFlow's own tests do, and
each replica's step is a function of its own, in which ``merge_call`` is an error. Neither XLA nor a GPU takes part.
"""

import numpy as np
import pytest
import tensorflow as tf

from scalekeeper_test_support import installed_keras

pytestmark = [
    pytest.mark.slow("py310-tf210", "py311-tf215", "py313-tf221-tfkeras"),
    pytest.mark.skipif(
        not hasattr(tf.distribute.get_strategy().extended, "_use_merge_call"),
        reason="up to 2.4 no strategy does without merge_call",
    ),
    pytest.mark.skipif(
        tf.__version__.startswith("2.13."), reason="2.13 hangs in such a step on CPUs, also with an optimizer alone"
    ),
]
# Keras 3's optimizers write the first replica's count of iterations to all, by merge_call, in every step
CAN_INNER_OPTIMIZERS = not installed_keras.IS_KERAS_3
needs_inner_optimizers = pytest.mark.skipif(not CAN_INNER_OPTIMIZERS, reason="Keras 3's optimizers need merge_call")


@pytest.fixture(scope="module")
def found(run_scenario):
    return run_scenario("replica_context")


def test_what_the_bare_optimizer_can(found):
    """With no loss scale such a step works, but for Keras 3's optimizers."""
    if CAN_INNER_OPTIMIZERS:
        assert found["bare_error"] is None
    else:
        assert "merge_call" in found["bare_error"]["message"]


@needs_inner_optimizers
def test_all_steps_equal_a_training_without_a_strategy(found, inner_name):
    """A NaN on either replica makes both skip; the good steps and the scale are those of the rule, on both."""
    loop = found[inner_name]
    assert [state["is_good"] for state in loop["reference"]][:5] == [True, False, True, False, True]
    for step, (state, expected) in enumerate(zip(loop["ours"]["states"], loop["reference"])):
        np.testing.assert_allclose(state["kernel"], [expected["kernel"]] * 2, rtol=1e-6, atol=1e-6, err_msg=str(step))
        for name in ("good_steps", "iterations"):
            assert state[name] == [expected[name]] * 2, (step, name)
        assert state["current_loss_scale"] == [expected["scale"]] * 2, step


@needs_inner_optimizers
def test_all_steps_equal_those_of_tensorflows_own_class(found, inner_name):
    """Every number of every step is what TensorFlow's own class gives."""
    ours_and_theirs = [found[inner_name][wrapper]["states"] for wrapper in ("ours", "tensorflow")]
    for step, (ours, theirs) in enumerate(zip(*ours_and_theirs)):
        assert ours.keys() == theirs.keys()
        for name in ours:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-6, atol=1e-6, err_msg=str((step, name)))


@needs_inner_optimizers
def test_optimizers_that_share_a_loss_scale(found):
    """Each skips on both replicas, and the loss scale is updated once in a step, on both."""
    decisions = [[True, True], [False, True], [True, False], [True, True], [True, True]]
    assert [each for each, _, _ in found["shared_steps"]["steps"]] == [[each] * 2 for each in decisions]
    assert found["shared_steps"]["steps"][-1][1] == [[[-9.0]] * 2, [[-8.0]] * 2]
    assert found["shared_steps"]["steps"][-1][2] == {"current_loss_scale": 4.0, "good_steps": 0}


def test_a_policy_that_decides_in_update_is_refused(found):
    """It can't see the gradients of the other replicas there, and the error says what to do."""
    assert found["own_update_error"]["type"] == "StrategyError"
    assert "OwnUpdate decides in update(), which can't see all replicas" in found["own_update_error"]["message"]
    assert "leave out jit_compile=True" in found["own_update_error"]["message"]
