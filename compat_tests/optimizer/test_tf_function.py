"""The members that come from TF1's graphs, `get_gradients`, `get_updates` and `minimize`, inside a `tf.function`."""

import pytest
import tensorflow as tf

from scalekeeper.optimizer import LossScaleOptimizer

pytestmark = pytest.mark.filterwarnings("ignore")

VANISHING = 2.0**-29  # float16 rounds it to zero


def half_precision_loss(variable, factor):
    return tf.cast(tf.cast(variable, tf.float16), tf.float32) * factor


def wrapped(optimizers, step=0.25, gradient=VANISHING, **options):
    return LossScaleOptimizer(optimizers.SGD(step / gradient, **options), "dynamic")


def test_get_gradients_are_unscaled(optimizers):
    """A gradient that float16 loses without scaling comes out exact."""
    variable, optimizer = tf.Variable(1.0), wrapped(optimizers)

    @tf.function
    def gradients():
        loss = half_precision_loss(variable, VANISHING)
        return [tf.gradients(loss, variable)[0], optimizer.get_gradients(loss, [variable])[0]]

    assert [gradient.numpy() for gradient in gradients()] == [0.0, VANISHING]


def test_get_updates_applies_and_skips(optimizers):
    """Weight and scale step by step: applied, skipped with the scale halved, applied."""
    variable, optimizer = tf.Variable(1.0), wrapped(optimizers, gradient=1.0)

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def step(factor):
        optimizer.get_updates(variable * factor, [variable])

    found = []
    for factor in [1.0, float("inf"), 1.0]:
        step(tf.constant(factor))
        found.append((float(variable.numpy()), float(optimizer.loss_scale())))
    assert found == [(0.75, 2.0**15), (0.75, 2.0**14), (0.5, 2.0**14)]


def test_get_updates_clips_the_unscaled_gradient(optimizers):
    """A gradient of 1/8 is below the clip value of 1/4 and stays, a gradient of 4 is clipped to it."""
    variable, optimizer = tf.Variable(1.0), wrapped(optimizers, 1.0, 1.0, clipvalue=0.25)

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def step(factor):
        optimizer.get_updates(variable * factor, [variable])

    found = []
    for factor in [0.125, 4.0]:
        step(tf.constant(factor))
        found.append(float(variable.numpy()))
    assert found == [0.875, 0.625]


def test_minimize_scales_once_and_skips(optimizers):
    """`minimize` takes two exact steps around one that it skips."""
    variable, optimizer = tf.Variable(1.0), wrapped(optimizers)

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def step(factor):
        optimizer.minimize(lambda: half_precision_loss(variable, factor), [variable])

    for factor in [VANISHING, float("nan"), VANISHING]:
        step(tf.constant(factor))
    assert variable.numpy() == 0.5
    assert optimizer.loss_scale.state() == {"current_loss_scale": 2.0**14, "good_steps": 1}
