"""``model.fit`` in mixed precision under MirroredStrategy over two logical CPUs."""

import common
import numpy as np
import tensorflow as tf

import scalekeeper
from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support import installed_keras

INITIAL_SCALE = 256
WRAPPERS = {
    "ours": lambda inner: LossScaleOptimizer(inner, scalekeeper.DynamicLossScale(INITIAL_SCALE)),
    "tensorflow": lambda inner: installed_keras.upstream(inner, {"initial_loss_scale": INITIAL_SCALE}),
}


# two rows of each batch go to each replica: row 7 belongs to batch 1 on replica 1, row 8 to batch 2 on replica 0
BAD_ROWS = (7, 8)
BAD_ROWS_ON_FIRST_REPLICA = (5, 8)


def data(bad_rows):
    """Four batches of four."""
    features = np.random.RandomState(3).uniform(0.5, 1.5, [16, 3]).astype(np.float32)
    targets = features.sum(axis=1, keepdims=True)
    features[list(bad_rows)] = 1e30  # finite, but not as a float16
    return features, targets


def fit(strategy, wrapper, inner, batches, bad_rows=BAD_ROWS):
    rows = np.concatenate([np.arange(4 * batch, 4 * batch + 4) for batch in batches])
    features, targets = (array[rows] for array in data(bad_rows))
    with strategy.scope():
        first = tf.keras.layers.Dense(2, kernel_initializer=tf.constant_initializer(0.25), input_shape=(3,))
        second = tf.keras.layers.Dense(1, kernel_initializer=tf.constant_initializer(0.5), dtype="float32")
        model = tf.keras.Sequential([first, second])
        optimizer = WRAPPERS[wrapper](common.INNER_OPTIMIZERS[inner]())
        model.compile(optimizer, "mse")
    model.fit(features, targets, batch_size=4, epochs=1, shuffle=False, verbose=0)
    return {
        "is_the_compiled": model.optimizer is optimizer,
        "compute_dtype": tf.as_dtype(model.layers[0].output.dtype).name,
        "weights": [common.on_replicas(strategy, each) for each in model.trainable_variables],
        "scale": installed_keras.state_of(optimizer)["current_loss_scale"],
        "iterations": common.on_replicas(strategy, optimizer.iterations),
    }


if __name__ == "__main__":
    mirrored = tf.distribute.MirroredStrategy(common.logical_cpus())
    installed_keras.set_global_policy("mixed_float16")
    found = {
        inner: {wrapper: fit(mirrored, wrapper, inner, [0, 1, 2, 3]) for wrapper in WRAPPERS}
        for inner in common.INNER_OPTIMIZERS
    }
    for inner, results in found.items():
        # where TensorFlow's own class has to do as ours does
        results["comparable"] = dict(results)
        if installed_keras.LOOKS_AT_FIRST_REPLICA_ONLY:
            rows = BAD_ROWS_ON_FIRST_REPLICA
            results["comparable"] = {wrapper: fit(mirrored, wrapper, inner, [0, 1, 2, 3], rows) for wrapper in WRAPPERS}
    found["SGD"]["good batches only"] = fit(mirrored, "ours", "SGD", [0, 3])
    common.answer(found)
