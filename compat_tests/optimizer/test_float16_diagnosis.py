"""``diagnose`` names the layer of each seeded fault, finds nothing in healthy models, and changes nothing."""

import math
import random
import warnings

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper import ArgumentError, ArgumentTypeError, LossScaleOptimizer, diagnose
from scalekeeper_test_support.installed_keras import global_policy, upstream, variables_of

pytestmark = pytest.mark.usefixtures("mixed_float16")

layers = tf.keras.layers
SAMPLES, FEATURES = 8, 4
LONG = 70_000  # more ones than float16 can add up


def data(scale=1.0, shape=(FEATURES,)):
    x = np.random.RandomState(0).uniform(0.5, 1.5, (SAMPLES, *shape)).astype("float32") * np.float32(scale)
    return x, np.ones((SAMPLES, 1), np.float32)


class Computing(layers.Layer):
    """A layer without weights that computes a function of its input."""

    def __init__(self, function, name):
        super().__init__(name=name)
        self.function = function

    def call(self, inputs):
        return self.function(inputs)


class GroupNormalizing(layers.Layer):
    """A group normalization that computes in the type of its input."""

    def call(self, inputs):
        groups = tf.reshape(inputs, (-1, 2, FEATURES // 2))
        mean = tf.reduce_mean(groups, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(groups), axis=-1, keepdims=True) - tf.square(mean)
        return tf.reshape((groups - mean) * tf.math.rsqrt(variance + 1e-3), (-1, FEATURES))


def dense(name, **options):
    return layers.Dense(FEATURES, name=name, **options)


def identity(name, factor=1.0, **options):
    """A dense layer that multiplies its input by a number."""
    return dense(name, kernel_initializer=tf.keras.initializers.Identity(factor), **options)


def sequential(*inside, loss="mse", loss_scale="dynamic", input_shape=(FEATURES,)):
    model = tf.keras.Sequential(
        [tf.keras.Input(input_shape, name="data"), *inside, layers.Dense(1, dtype="float32", name="out")]
    )
    return compiled(model, loss, loss_scale)


def compiled(model, loss="mse", loss_scale="dynamic"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.compile(LossScaleOptimizer(tf.keras.optimizers.Adam(1e-3), loss_scale), loss=loss)
    return model


# Faults: each returns a model, x, y


def epsilon_that_vanishes():
    def normalized(inputs):
        deviation = tf.math.reduce_std(inputs, axis=-1, keepdims=True)
        return (inputs - tf.reduce_mean(inputs, axis=-1, keepdims=True)) / (deviation + 1e-8)

    x, y = data()
    x[2] = 1.0
    return sequential(Computing(normalized, "normalized"), dense("after")), x, y


def sum_of_many():
    total = Computing(lambda inputs: tf.reduce_sum(inputs, axis=-1, keepdims=True) / 256.0, "total")
    x = np.ones((2, LONG), np.float32)
    return sequential(total, dense("after"), input_shape=(LONG,)), x, np.ones((2, 1), np.float32)


def softmax_of_many():
    x = np.zeros((2, LONG), np.float32)
    last = Computing(lambda inputs: tf.reduce_max(inputs, axis=-1, keepdims=True), "last")
    return sequential(layers.Softmax(name="softmax"), last, input_shape=(LONG,)), x, np.ones((2, 1), np.float32)


def exploding_group_normalization():
    x, y = data(400.0)
    return sequential(identity("before"), GroupNormalizing(name="group"), dense("after")), x, y


def bad_sample():
    x, y = data()
    x[5, 1] = 1e6
    return sequential(dense("first"), dense("second")), x, y


def log_of_zero():
    x, y = data()
    x[1] = 0.0
    return sequential(identity("before"), Computing(tf.math.log, "log"), dense("after")), x, y


def scale_too_high():
    large = Computing(lambda inputs: inputs * 1000.0, "large")
    inside = (identity("before", 1e-3), large, identity("after"))
    return (sequential(*inside, loss_scale=2.0**13), *data())


def scale_too_low():
    small = Computing(lambda inputs: inputs * 1e-4, "small")
    inside = (identity("first"), small, small_copy("small_again"), identity("after"))
    return (sequential(*inside, loss_scale=1), *data())


def small_copy(name):
    return Computing(lambda inputs: inputs * 1e-4, name)


def vanishing_layer():
    inputs = tf.keras.Input((FEATURES,), name="data")
    small = identity("vanishing")(inputs)
    for number in range(3):
        small = small_copy(f"small_{number}")(small)
    both = layers.Add(name="both")([small, identity("other")(inputs)])
    outputs = layers.Dense(1, dtype="float32", name="out")(both)
    return (compiled(tf.keras.Model(inputs, outputs)), *data())


def loss_that_overflows():
    def exponential(wanted, output):
        return tf.exp(tf.abs(tf.cast(output, tf.float32)) * 1e4)

    return (sequential(identity("first"), loss=exponential), *data())


def division():
    x, y = data(1e-3)
    divided = Computing(lambda inputs: inputs / tf.square(inputs * 0.1), "divided")
    return sequential(identity("before"), divided, dense("after")), x, y


def frozen_layer():
    return (sequential(dense("first"), dense("frozen", trainable=False), dense("after")), *data())


def nan_in_data():
    x, y = data()
    x[3, 1] = np.nan
    return sequential(dense("first"), dense("second")), x, y


def exploding_rnn():
    x, y = data(shape=(16, FEATURES))
    cell = layers.SimpleRNN(
        FEATURES,
        activation="relu",
        kernel_initializer="ones",
        recurrent_initializer=tf.keras.initializers.Identity(3.0),
        name="rnn",
    )
    return sequential(cell, dense("after"), input_shape=(16, FEATURES)), x, y


# fault → the layer that it is in, and the kinds of findings that name it
FAULTS = {
    epsilon_that_vanishes: ("normalized", {"constant", "nonfinite"}),
    sum_of_many: ("total", {"overflow", "nonfinite"}),
    softmax_of_many: ("softmax", {"overflow"}),
    exploding_group_normalization: ("group", {"overflow"}),
    bad_sample: ("data", {"data"}),
    log_of_zero: ("log", {"nonfinite"}),
    scale_too_high: ("large", {"loss_scale_too_high"}),
    scale_too_low: ("first", {"vanishing_gradients"}),
    vanishing_layer: ("vanishing", {"vanishing_gradients"}),
    loss_that_overflows: ("loss", {"nonfinite"}),
    division: ("divided", {"divisor", "nonfinite", "overflow"}),
    frozen_layer: ("frozen", {"frozen"}),
    nan_in_data: ("data", {"data"}),
    exploding_rnn: ("rnn", {"overflow"}),
}


@pytest.mark.parametrize("fault", list(FAULTS), ids=lambda fault: fault.__name__)
def test_seeded_fault(fault):
    """The first finding names the layer of the fault, and findings of the expected kinds name it too."""
    model, x, y = fault()
    found = diagnose(model, x, y)
    layer, kinds = FAULTS[fault]
    assert found.findings[0].layer == layer, str(found)
    assert kinds <= {each.kind for each in found.findings if each.layer == layer}, str(found)
