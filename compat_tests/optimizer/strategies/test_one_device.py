"""OneDeviceStrategy trains as no strategy does."""

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support import installed_keras

pytestmark = pytest.mark.slow

INNER_OPTIMIZERS = {
    "SGD": lambda: tf.keras.optimizers.SGD(0.1, momentum=0.9),
    "Adam": lambda: tf.keras.optimizers.Adam(0.1),
}
if "legacy" in installed_keras.OPTIMIZERS:
    INNER_OPTIMIZERS["legacy Adam"] = lambda: installed_keras.OPTIMIZERS["legacy"].Adam(0.1)
GRADIENTS = ([1.0, 2.0], [1.0, np.nan], [0.5, 1.0], [-np.inf, 1.0], [1.0, 1.0], [2.0, 0.25])


def ours(inner):
    return LossScaleOptimizer(inner, scalekeeper.DynamicLossScale(1024, increment_period=2))


def tensorflows(inner):
    return installed_keras.upstream(inner, {"initial_loss_scale": 1024, "increment_period": 2})


def train(strategy, make, inner, function):
    """The weights, the scale and the iterations after each step."""
    with strategy.scope():
        variable, optimizer = tf.Variable([1.0, -2.0]), make(inner())
        if installed_keras.IS_KERAS_3 and make is tensorflows:
            optimizer.build([variable])  # it can't do so in a traced step

    def in_replica(grad):
        if not hasattr(optimizer, "get_unscaled_gradients"):
            grad = optimizer.scale_loss(grad)  # Keras 3's own class takes scaled ones
        optimizer.apply_gradients([(grad, variable)])

    # up to 2.1 only the older name is there
    run = getattr(strategy, "run" if hasattr(strategy, "run") else "experimental_run_v2")
    step = function(lambda grad: run(in_replica, args=(grad,)))
    found = []
    for grad in GRADIENTS:
        step(tf.constant(grad, tf.float32))
        scale = installed_keras.state_of(optimizer)["current_loss_scale"]
        found.append([*variable.numpy().tolist(), scale, int(optimizer.iterations.numpy())])
    return found


def traced(function):
    return tf.function(function, autograph=False)


def eager(function):
    return function


@pytest.mark.parametrize("function", [traced, eager])
@pytest.mark.parametrize("inner", sorted(INNER_OPTIMIZERS))
def test_one_device_equals_no_strategy(inner, function):
    """Finite and non-finite steps give the same numbers under OneDeviceStrategy and under no strategy."""
    make_inner = INNER_OPTIMIZERS[inner]
    actual = train(tf.distribute.OneDeviceStrategy("/cpu:0"), ours, make_inner, function)
    np.testing.assert_allclose(actual, train(tf.distribute.get_strategy(), ours, make_inner, function), rtol=1e-6)
    assert [scale for _, _, scale, _ in actual] == [1024.0, 512.0, 512.0, 256.0, 256.0, 512.0]
    assert actual[1][:2] == actual[0][:2]
    assert actual[3][:2] == actual[2][:2]
    assert actual[2][:2] != actual[1][:2]


@pytest.mark.parametrize("inner", sorted(INNER_OPTIMIZERS))
def test_one_device_equals_tensorflows_own_class(inner):
    """Every step gives what TensorFlow's own class gives under the same strategy."""
    actual, expected = (
        train(tf.distribute.OneDeviceStrategy("/cpu:0"), make, INNER_OPTIMIZERS[inner], traced)
        for make in (ours, tensorflows)
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_apply_gradients_outside_of_a_replica_is_refused():
    """In the scope of a strategy, but not in its ``run``, it is a StrategyError that says where to call it."""
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        variable, optimizer = tf.Variable([1.0, -2.0]), ours(tf.keras.optimizers.SGD(0.1))
        with pytest.raises(scalekeeper.StrategyError, match="in a replica context: inside strategy.run, not around it"):
            optimizer.apply_gradients([(tf.constant([1.0, 1.0]), variable)])
    assert variable.numpy().tolist() == [1.0, -2.0]
    assert optimizer.loss_scale.state() == {"current_loss_scale": 1024.0, "good_steps": 0}
