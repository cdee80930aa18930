"""`compile` and `fit` under mixed_float16 scale the loss once and unscale the gradients once.

With a scale of 2**15, float16 carries gradients from 2**-39 to just below 2. Unscaled it would lose the small ones and
keep 2; scaled twice it would overflow at 1. So which gradients train says how often the loss was scaled, and the size
of the update says how often the gradient was divided.
"""

import numpy as np
import pytest
import tensorflow as tf

from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support.installed_keras import (
    HAS_POLICIES_WITH_LOSS_SCALE,
    UPSTREAM,
    layer_policy,
    number,
    set_global_policy,
)

pytestmark = pytest.mark.filterwarnings("ignore")

VANISHING = 2.0**-29  # below 2**-25, float16 rounds to zero
LARGEST = 1.0  # 2**15 in float16; scaled twice it is 2**30, which is infinite there
OVERFLOWING = 2.0  # 2**16 in float16 is infinite; without scaling it is just 2


def sgd(step, gradient, optimizers=tf.keras.optimizers):
    """SGD that takes a step of this size for a gradient of that size."""
    return optimizers.SGD(step / gradient)


@pytest.mark.parametrize("traced", [True, False], ids=["tf_function", "eager"])
def test_without_scaling_the_gradient_vanishes(mixed_float16, one_weight, traced):
    """The gradient that the other tests train with is lost in float16 when nothing scales it."""
    trained = one_weight()
    optimizer = sgd(0.25, VANISHING)
    variables = trained.model.trainable_variables

    # by hand, as `compile` wraps a bare optimizer by itself
    def step(inputs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.cast(trained.model(inputs), tf.float32) * VANISHING)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    (tf.function(step) if traced else step)(tf.ones((1, 1)))
    assert trained.weight == 1.0


@pytest.mark.parametrize("loss_scale", ["dynamic", 2.0**15], ids=["dynamic", "fixed"])
@pytest.mark.parametrize("gradient", [VANISHING, LARGEST], ids=["vanishing", "largest"])
def test_fit_applies_exactly_the_unscaled_gradient(
    mixed_float16, one_weight, optimizers, run_eagerly, loss_scale, gradient
):
    """A gradient that float16 carries only when scaled once moves the weight by learning rate × gradient, exactly."""
    optimizer = LossScaleOptimizer(sgd(0.25, gradient, optimizers), loss_scale)
    trained = one_weight().compile(optimizer, gradient, run_eagerly)
    trained.fit()
    assert trained.weight == 0.75
    trained.fit()
    assert trained.weight == 0.5
    assert number(optimizer.iterations) == 2


def test_fit_scales_by_the_whole_scale(mixed_float16, one_weight, optimizers, run_eagerly):
    """A gradient that only scaling makes infinite is skipped, and the dynamic scale is halved."""
    optimizer = LossScaleOptimizer(sgd(0.25, OVERFLOWING, optimizers), "dynamic")
    trained = one_weight().compile(optimizer, OVERFLOWING, run_eagerly)
    trained.fit()
    assert trained.weight == 1.0
    assert optimizer.loss_scale.state() == {"current_loss_scale": 2.0**14, "good_steps": 0}
    trained.fit()
    assert trained.weight == 0.75
    assert optimizer.loss_scale.state() == {"current_loss_scale": 2.0**14, "good_steps": 1}


@pytest.mark.parametrize("gradient", [VANISHING, LARGEST], ids=["vanishing", "largest"])
def test_train_on_batch_applies_exactly_the_unscaled_gradient(mixed_float16, one_weight, run_eagerly, gradient):
    """`train_on_batch` scales once as `fit` does, and reports the loss unscaled."""
    trained = one_weight().compile(LossScaleOptimizer(sgd(0.25, gradient), "dynamic"), gradient, run_eagerly)
    batch = np.ones((1, 1), np.float32)
    losses = [float(trained.model.train_on_batch(batch, batch)) for _ in range(2)]
    assert trained.weight == 0.5
    assert losses == [gradient, 0.75 * gradient]


def test_fit_reports_the_loss_unscaled(mixed_float16, one_weight, run_eagerly):
    """The history holds the loss that the user defined, whatever it is scaled by."""
    trained = one_weight().compile(LossScaleOptimizer(sgd(0.25, 1.0), 1024), 1.0, run_eagerly)
    assert trained.fit(epochs=3).history["loss"] == [1.0, 0.75, 0.5]


@pytest.mark.parametrize("loss_scale", ["dynamic", 2.0**15, {"name": "dynamic", "initial_loss_scale": 8}])
def test_compile_keeps_our_object(mixed_float16, one_weight, optimizers, loss_scale):
    """`model.optimizer` is the very object given to `compile`, and its inner optimizer is the bare one."""
    inner = optimizers.SGD(0.25)
    optimizer = LossScaleOptimizer(inner, loss_scale)
    model = one_weight().compile(optimizer, 1.0).model
    assert model.optimizer is optimizer
    assert optimizer.inner_optimizer is inner
    assert isinstance(optimizer, UPSTREAM)
    assert not isinstance(inner, UPSTREAM)
    assert model.optimizer.loss_scale is optimizer.loss_scale
    assert number(model.optimizer.loss_scale()) == (8.0 if isinstance(loss_scale, dict) else 2.0**15)


@pytest.mark.skipif(not HAS_POLICIES_WITH_LOSS_SCALE, reason="the layer policies of this TensorFlow have no loss scale")
def test_the_wrapper_s_scale_counts_and_not_the_policy_s(mixed_float16, one_weight, run_eagerly):
    """A layer policy with a loss scale of its own does not change the scale of an optimizer that is wrapped already."""
    set_global_policy(layer_policy("mixed_float16", loss_scale=2.0**10))
    trained = one_weight().compile(LossScaleOptimizer(sgd(0.25, OVERFLOWING), "dynamic"), OVERFLOWING, run_eagerly)
    trained.fit()
    # scaled by 2**10 it would not overflow, and train
    assert trained.weight == 1.0


def test_a_float16_policy_of_one_layer_is_enough(one_weight, run_eagerly):
    """With no global policy a layer in mixed_float16 still trains with a gradient that vanishes unscaled."""
    trained = one_weight(dtype=layer_policy("mixed_float16"))
    trained.compile(LossScaleOptimizer(sgd(0.25, VANISHING), "dynamic"), VANISHING, run_eagerly)
    trained.fit()
    assert trained.weight == 0.75


@pytest.mark.parametrize("gradient", [VANISHING, LARGEST, OVERFLOWING])
def test_a_float32_model_trains_the_same(one_weight, run_eagerly, gradient):
    """In float32, where nothing vanishes or overflows, the update is the unscaled one too."""
    trained = one_weight().compile(LossScaleOptimizer(sgd(0.25, gradient), "dynamic"), gradient, run_eagerly)
    trained.fit()
    assert trained.weight == 0.75


def test_a_loss_in_float16_is_scaled_beyond_float16(mixed_float16, one_weight, run_eagerly):
    """A float16 loss of 4 times a scale of 2**15, which float16 can't hold, still gives the exact update."""
    trained = one_weight()
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(0.25), 2.0**15)
    # the gradient is 1 and stays finite; only the scaled loss itself, 4 × 2**15, is beyond float16
    trained.model.compile(optimizer, loss=lambda wanted, output: output + 3.0, run_eagerly=run_eagerly)
    trained.fit()
    assert trained.weight == 0.75


def test_add_loss_is_scaled_too(mixed_float16, one_weight, run_eagerly):
    """A penalty of a layer takes part in the scaling: the update is that of loss and penalty together."""
    trained = one_weight(kernel_regularizer=tf.keras.regularizers.l2(0.5))  # penalty w²/2, gradient w
    trained.compile(LossScaleOptimizer(tf.keras.optimizers.SGD(0.25), 2.0**10), 1.0, run_eagerly)
    trained.fit()
    assert trained.weight == 0.5


@pytest.mark.parametrize("traced", [True, False], ids=["tf_function", "eager"])
def test_a_training_loop_by_hand_scales_once(mixed_float16, one_weight, optimizers, traced):
    """Scaling and unscaling by the documented methods gives the same exact update as `fit`."""
    trained = one_weight()
    optimizer = LossScaleOptimizer(sgd(0.25, VANISHING, optimizers), "dynamic")
    variables = trained.model.trainable_variables

    def step(inputs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.cast(trained.model(inputs), tf.float32) * VANISHING)
            scaled_loss = optimizer.get_scaled_loss(loss)
        grads = optimizer.get_unscaled_gradients(tape.gradient(scaled_loss, variables))
        optimizer.apply_gradients(zip(grads, variables))

    step = tf.function(step) if traced else step
    for _ in range(2):
        step(tf.ones((1, 1)))
    assert trained.weight == 0.5
    assert optimizer.loss_scale.state() == {"current_loss_scale": 2.0**15, "good_steps": 2}


@pytest.mark.parametrize("traced", [True, False], ids=["tf_function", "eager"])
def test_minimize_scales_once(optimizers, traced):
    """`minimize` does all of it: scale, differentiate, unscale, apply."""
    # not a layer's variable: TensorFlow 2.0's `minimize` can't watch those of mixed_float16, with any optimizer
    variable = tf.Variable(1.0)
    optimizer = LossScaleOptimizer(sgd(0.25, VANISHING, optimizers), "dynamic")

    def loss():
        return tf.cast(tf.cast(variable, tf.float16), tf.float32) * VANISHING

    def step():
        optimizer.minimize(loss, [variable])

    step = tf.function(step) if traced else step
    for _ in range(2):
        step()
    assert variable.numpy() == 0.5
