"""``model.fit`` in mixed precision under MirroredStrategy over two logical CPUs."""

import common
import numpy as np
import tensorflow as tf

import scalekeeper
from scalekeeper.optimizer import LossScaleOptimizer

INITIAL_SCALE = 256
WRAPPERS = {
    "ours": lambda inner: LossScaleOptimizer(inner, scalekeeper.DynamicLossScale(INITIAL_SCALE)),
    "tensorflow": lambda inner: tf.keras.mixed_precision.experimental.LossScaleOptimizer(
        inner, tf.train.experimental.DynamicLossScale(INITIAL_SCALE)
    ),
}


def data():
    """Four batches of four, of which each replica gets two: batch 1 is bad on replica 1, batch 2 on replica 0."""
    features = np.random.RandomState(3).uniform(0.5, 1.5, [16, 3]).astype(np.float32)
    targets = features.sum(axis=1, keepdims=True)
    features[7] = features[8] = 1e30  # finite, but not as a float16
    return features, targets


def fit(strategy, wrapper, inner, batches):
    rows = np.concatenate([np.arange(4 * batch, 4 * batch + 4) for batch in batches])
    features, targets = (array[rows] for array in data())
    with strategy.scope():
        first = tf.keras.layers.Dense(2, kernel_initializer=tf.constant_initializer(0.25), input_shape=(3,))
        second = tf.keras.layers.Dense(1, kernel_initializer=tf.constant_initializer(0.5), dtype="float32")
        model = tf.keras.Sequential([first, second])
        optimizer = WRAPPERS[wrapper](common.INNER_OPTIMIZERS[inner]())
        model.compile(optimizer, "mse")
    model.fit(features, targets, batch_size=4, epochs=1, shuffle=False, verbose=0)
    variables = [getattr(each, "_variable", each) for each in model.trainable_variables]
    return {
        "is_the_compiled": model.optimizer is optimizer,
        "compute_dtype": str(model.layers[0].output.dtype.name),
        "weights": [common.on_replicas(strategy, each) for each in variables],
        "scale": float(optimizer.loss_scale()),
        "iterations": common.on_replicas(strategy, optimizer.iterations),
    }


if __name__ == "__main__":
    mirrored = tf.distribute.MirroredStrategy(common.two_logical_cpus())
    tf.keras.mixed_precision.experimental.set_policy("mixed_float16")
    found = {
        inner: {wrapper: fit(mirrored, wrapper, inner, [0, 1, 2, 3]) for wrapper in WRAPPERS}
        for inner in common.INNER_OPTIMIZERS
    }
    found["SGD"]["good batches only"] = fit(mirrored, "ours", "SGD", [0, 3])
    common.answer(found)
