"""A small model whose gradients overflow as float16 ones do, so that going on shows scale, counter and multiplier."""

import numpy as np
import tensorflow as tf

from scalekeeper_test_support.installed_keras import IS_KERAS_3

DATA = np.random.RandomState(0).randn(8, 3).astype("float32")


@tf.custom_gradient
def in_half_precision(values):
    """What is larger than float16 holds is infinite, on the way back."""

    def backwards(grads):
        return tf.where(tf.abs(grads) > 65504.0, grads * np.float32(np.inf), grads)

    return tf.identity(values), backwards


def build(names=("d1", "d2")):
    """Two layers with the same weights each time."""
    inputs = tf.keras.Input((3,), name="inputs")
    hidden = tf.keras.layers.Dense(4, activation="tanh", name=names[0])(inputs)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, name=names[1])(hidden))
    rng = np.random.RandomState(1)
    for weight in model.weights:
        weight.assign(rng.randn(*weight.shape).astype("float32"))
    return model


def train(model, steps, first=0):
    """So many steps with the model's optimizer; what comes back is what changes from step to step."""
    optimizer = model.optimizer
    variables = [weight.value if IS_KERAS_3 else weight for weight in model.trainable_weights]

    @tf.function
    def step(number):
        with tf.GradientTape() as tape:
            outputs = in_half_precision(model(DATA + tf.cast(number, tf.float32)))
            loss = optimizer.get_scaled_loss(tf.reduce_mean(tf.square(outputs)) * 4.0)
        grads = optimizer.get_unscaled_gradients(tape.gradient(loss, variables))
        optimizer.apply_gradients(zip(grads, model.trainable_weights))

    history = []
    for number in range(first, first + steps):
        step(tf.constant(number))
        state = {"scale": float(optimizer.loss_scale()), "iterations": int(optimizer.iterations.numpy())}
        told = optimizer.telemetry
        skips = {"skips": (told.steps, told.skipped, told.skipped_in_a_row, told.last_skipped_step)}
        history.append({**state, **optimizer.loss_scale.state(), **skips})
    return history


def weights_of(model):
    return [weight.numpy() for weight in model.weights]
