"""A step that XLA compiles gives what the same step gives without it."""

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support import installed_keras

pytestmark = pytest.mark.filterwarnings("ignore")

INNER_OPTIMIZERS = {
    "SGD": lambda: tf.keras.optimizers.SGD(0.1),
    "momentum": lambda: tf.keras.optimizers.SGD(0.1, momentum=0.9),
    "Adam": lambda: tf.keras.optimizers.Adam(0.1),
}
if "legacy" in installed_keras.OPTIMIZERS:
    INNER_OPTIMIZERS["legacy Adam"] = lambda: installed_keras.OPTIMIZERS["legacy"].Adam(0.1)
FEATURES = ([1.0, 2.0], [1.0, np.nan], [0.5, 1.0], [np.inf, 1.0], [1.0, -np.inf], [1.0, 1.0], [2.0, 0.25])


def uncompiled(step):
    return tf.function(step, autograph=False)


def train(make_function, inner):
    """The weights, the state and the iterations after each step."""
    policy = scalekeeper.DynamicLossScale(1024, increment_period=2)
    variable, optimizer = tf.Variable([1.0, -2.0]), LossScaleOptimizer(inner(), policy)
    # XLA compiles no function that makes variables: a step of zeros makes them all, and changes nothing
    optimizer.apply_gradients([(tf.zeros([2]), variable)])
    policy.load_state({"current_loss_scale": 1024.0, "good_steps": 0})
    optimizer.iterations.assign(0)

    def step(features):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(variable * features))
            scaled_loss = optimizer.get_scaled_loss(loss)
        grads = optimizer.get_unscaled_gradients(tape.gradient(scaled_loss, [variable]))
        optimizer.apply_gradients(zip(grads, [variable]))
        return loss

    function, found = make_function(step), []
    for features in FEATURES:
        function(tf.constant(features, tf.float32))
        found.append((variable.numpy().tolist(), optimizer.loss_scale.state(), int(optimizer.iterations.numpy())))
    return found


@pytest.mark.parametrize("inner", sorted(INNER_OPTIMIZERS))
def test_a_compiled_step_equals_the_uncompiled_one(inner):
    """Weights, scale, counter and iterations are the same after good steps and after bad ones."""
    actual, expected = (train(make, INNER_OPTIMIZERS[inner]) for make in (installed_keras.compiled, uncompiled))
    assert [state for _, state, _ in actual] == [state for _, state, _ in expected]
    assert [iterations for _, _, iterations in actual] == [iterations for _, _, iterations in expected]
    weights, expected_weights = ([weights for weights, _, _ in found] for found in (actual, expected))
    np.testing.assert_allclose(weights, expected_weights, rtol=1e-5, atol=1e-6)
    assert np.isfinite(weights).all()
    assert expected[-1][1] == {"current_loss_scale": 256.0, "good_steps": 0}


def test_a_compiled_step_counts_what_it_skips():
    """XLA leaves out the operation that would stop the run, and the counters tell: one asks whether it is stuck."""
    options = {"attribute_overflows": True, "stop_after_skips": 2, "watch": ["largest_magnitude", "zero_share"]}
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(0.5), "dynamic", **options)
    variable = tf.Variable([1.0, -2.0], name="only")
    optimizer.apply_gradients([(tf.zeros([2]), variable)])

    def step(grads):
        optimizer.apply_gradients([(grads, variable)])
        return tf.reduce_sum(grads)

    function = installed_keras.compiled(step)
    for grads in ([1.0, 0.0], [np.nan, 1.0], [np.inf, 1.0], [np.inf, 1.0]):
        function(tf.constant(grads, tf.float32))
    told = optimizer.telemetry
    assert (told.steps, told.skipped, told.skipped_in_a_row, told.last_skipped_step) == (5, 3, 3, 5)
    assert told.overflows == {"only": 3}
    assert (told.largest_magnitude, told.zero_share) == (np.inf, 0.0)
    with pytest.raises(scalekeeper.TooManySkipsError, match="3 steps in a row were skipped"):
        optimizer.raise_if_stuck()


def test_whether_a_function_can_be_compiled_is_known():
    """``tf.function`` compiles from 2.1 on; in 2.0 it does not know the argument, and says so."""
    if tuple(map(int, tf.__version__.split(".")[:2])) >= (2, 1):
        function = tf.function(lambda value: value + 1.0, **{installed_keras.COMPILES[0]: True})
        assert float(function(tf.constant(1.0))) == 2.0
    else:
        with pytest.raises(TypeError, match="unexpected keyword argument 'experimental_compile'"):
            tf.function(lambda value: value + 1.0, experimental_compile=True)
