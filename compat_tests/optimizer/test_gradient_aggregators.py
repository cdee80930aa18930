"""Inner optimizers with their own aggregator or transformers, without a strategy: the decision sees the result."""

import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support import installed_keras

# the optimizers that take these arguments: OptimizerV2 from 2.4 on
MODULES = [each for each in installed_keras.OPTIMIZERS.values() if hasattr(each.SGD(1.0), "gradient_aggregator")]
pytestmark = pytest.mark.skipif(not MODULES, reason="these optimizers take neither aggregators nor transformers")
PARAMETERS = {"initial_loss_scale": 8.0, "increment_period": 100}


def wrapped_twice(make_inner):
    """The inner optimizer in scalekeeper's class and in TensorFlow's."""
    ours = LossScaleOptimizer(make_inner(), scalekeeper.DynamicLossScale(**PARAMETERS))
    return ours, installed_keras.upstream(make_inner(), PARAMETERS)


def steps(optimizer, grads, is_traced):
    """The weight, the loss scale and the iterations after each step."""
    weight = tf.Variable(0.0)

    def step(grad):
        optimizer.apply_gradients([(grad, weight)])

    step = tf.function(step, autograph=False) if is_traced else step
    found = []
    for grad in grads:
        step(tf.constant(grad))
        scale = installed_keras.state_of(optimizer)["current_loss_scale"]
        found.append((float(weight.numpy()), scale, int(optimizer.iterations.numpy())))
    return found


@pytest.mark.parametrize("is_traced", [True, False], ids=["traced", "eager"])
def test_a_nan_that_the_aggregator_makes_is_skipped(is_traced):
    """The aggregator is called before the decision, as in TensorFlow's class where that calls it there."""

    def aggregate(grads_and_vars):
        return [(tf.where(tf.equal(grad, 5.0), float("nan"), 2.0 * grad), each) for grad, each in grads_and_vars]

    for module in MODULES:
        ours, theirs = wrapped_twice(lambda module=module: module.SGD(1.0, gradient_aggregator=aggregate))
        expected = [(-2.0, 8.0, 1), (-2.0, 4.0, 2), (-8.0, 4.0, 3)]
        assert steps(ours, [1.0, 5.0, 3.0], is_traced) == expected
        if installed_keras.aggregates_first(theirs):
            assert steps(theirs, [1.0, 5.0, 3.0], is_traced) == expected


def test_an_aggregator_is_called_once_in_a_step():
    """It is not called again when the gradients are applied."""
    for module in MODULES:
        calls = []

        def aggregate(grads_and_vars, calls=calls):
            calls.append(len(list(grads_and_vars)))
            return grads_and_vars

        optimizer = LossScaleOptimizer(module.SGD(1.0, gradient_aggregator=aggregate), "dynamic")
        optimizer.apply_gradients([(tf.constant(1.0), tf.Variable(1.0)), (None, tf.Variable(1.0))])
        assert calls == [1]


def test_transformers_run_only_in_applied_steps():
    """One that counts its calls and halves gradients does so in applied steps, as in TensorFlow's class."""
    for module in MODULES:
        counts = []
        for is_ours in (True, False):
            calls = tf.Variable(0)

            def halve(grads_and_vars, calls=calls):
                calls.assign_add(1)
                return [(grad / 2.0, each) for grad, each in grads_and_vars]

            pair = wrapped_twice(lambda module=module, halve=halve: module.SGD(1.0, gradient_transformers=[halve]))
            found = steps(pair[0 if is_ours else 1], [2.0, float("inf"), 4.0], True)
            assert found == [(-1.0, 8.0, 1), (-1.0, 4.0, 2), (-3.0, 4.0, 3)]
            counts.append(calls.numpy())
        assert counts == [2, 2]
