"""dynamic/keras3 beside Keras 3's real LossScaleOptimizer, on JAX: no TensorFlow is near."""

import os
import sys

os.environ["KERAS_BACKEND"] = "jax"

import jax
import jax.numpy as jnp
import keras
import numpy as np

from scalekeeper import resolve


def theirs(gradients, growth_steps, room):
    """The scale before each step, and whether the inner optimizer's counter moved: one compiled loop."""
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.0), dynamic_growth_steps=growth_steps)
    weight = keras.Variable(np.float32(0))
    optimizer.build([weight])
    variables = [variable.value for variable in optimizer.variables]
    (scale_place,) = (place for place, each in enumerate(optimizer.variables) if each is optimizer.dynamic_scale)
    (count_place,) = (
        place for place, each in enumerate(optimizer.variables) if each is optimizer.inner_optimizer.iterations
    )

    def step(carried, gradient):
        weights, state = carried
        scale = state[scale_place]
        gradient = jnp.where(scale > room, jnp.inf, gradient * scale)
        weights, following = optimizer.stateless_apply(state, [gradient], weights)
        return (weights, following), (scale, following[count_place] != state[count_place])

    loop = jax.jit(lambda: jax.lax.scan(step, ([weight.value], variables), jnp.asarray(gradients)))
    scales, applied = loop()[1]
    return [(float(scale), bool(each)) for scale, each in zip(np.asarray(scales), np.asarray(applied))]


def test_the_real_loss_scale_optimizer(sequence, ours):
    """The same scale and the same decision at each of 5,000 steps."""
    number, gradients = sequence
    spec = {"name": "dynamic/keras3", "increment_period": 8 + number}
    assert ours(spec, gradients) == theirs(gradients, 8 + number, 2.0**26)


def test_the_defaults_are_those_of_the_class():
    """Taken from the installed library; and TensorFlow was not needed for that."""
    optimizer, params = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()), resolve("dynamic/keras3").params
    assert (params.initial_loss_scale, params.increment_period) == (
        optimizer.initial_scale,
        optimizer.dynamic_growth_steps,
    )
    assert "tensorflow" not in sys.modules
