"""Models saved, restored and loaded under MirroredStrategy over two logical CPUs."""

import os
import tempfile

import common
import numpy as np
import tensorflow as tf

import scalekeeper
from scalekeeper_test_support import installed_keras


def compiled(strategy, inner):
    with strategy.scope():
        layers = [tf.keras.layers.Dense(2, input_shape=(3,), name="first"), tf.keras.layers.Dense(1, name="second")]
        model = tf.keras.Sequential(layers)
        model.compile(common.ours(common.INNER_OPTIMIZERS[inner]()), "mse")
    return model


def fit(model):
    """Three batches of four; the second is bad on one replica."""
    features = np.random.RandomState(3).uniform(0.5, 1.5, [12, 3]).astype(np.float32)
    features[5] = np.inf
    model.fit(features, features[:, :1] * 2 + 1, batch_size=4, shuffle=False, verbose=0)


def seen(strategy, model):
    """Every number that training changes, on each replica."""
    optimizer = model.optimizer
    variables = {f"weight {index}": each for index, each in enumerate(model.trainable_variables)}
    variables.update((f"slot {index}", each) for index, each in enumerate(common.slots(optimizer)))
    variables.update(common.loss_scale_variables(optimizer), iterations=optimizer.iterations)
    return {name: common.on_replicas(strategy, variable) for name, variable in variables.items()}


def run(strategy, inner):
    model = compiled(strategy, inner)
    fit(model)
    found = {"saved": seen(strategy, model)}
    with tempfile.TemporaryDirectory() as folder:
        paths = {"h5": os.path.join(folder, "model.h5"), "npz": os.path.join(folder, "state.npz")}
        scalekeeper.save_model(model, paths["h5"])
        scalekeeper.save_state(model.optimizer, paths["npz"])
        paths["checkpoint"] = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(folder + "/saved")
        fit(model)
        found["gone on"] = seen(strategy, model)
        for kind, path in paths.items():
            model = compiled(strategy, inner)
            scalekeeper.restore(model, path)
            found[f"restored from {kind}"] = seen(strategy, model)
            if kind != "npz":
                fit(model)
                found[f"gone on from {kind}"] = seen(strategy, model)
        with strategy.scope():
            model = scalekeeper.load_model(paths["h5"])
        found["loaded"] = seen(strategy, model)
    return found


if __name__ == "__main__":
    mirrored = tf.distribute.MirroredStrategy(common.logical_cpus())
    installed_keras.set_global_policy("float32")
    common.answer({inner: run(mirrored, inner) for inner in common.INNER_OPTIMIZERS})
