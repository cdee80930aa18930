"""Move a project from TensorFlow 2.3 to Keras 3: the model in code, its checkpoint, and its H5 file.

python examples/move_to_keras_3.py  # TensorFlow 2.16 to 2.21 with Keras 3

TensorFlow 2.3.4 wrote the files with its own LossScaleOptimizer; they are among the golden files of the tests.
"""

import os
import tarfile
import tempfile

import numpy as np
import tensorflow as tf

import scalekeeper

HERE = os.path.dirname(os.path.abspath(__file__))
WRITTEN = os.path.join(HERE, "..", "compat_tests", "golden", "files", "tensorflow", "tf23.tar.xz")
# the data of the project
INPUTS = np.float32([[0.5, -0.25], [-0.75, 0.5], [0.25, 1.0], [1.0, -0.5]])
TARGETS = np.float32([[0.5], [-1.0], [0.75], [0.25]])


def build_model():
    """The code of the project; what has changed is the class of the optimizer.

    It was tf.keras.mixed_precision.experimental.LossScaleOptimizer, with a DynamicLossScale of TensorFlow.
    """
    inputs = tf.keras.Input((2,))
    hidden = tf.keras.layers.Dense(4, name="d1")(inputs)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, name="d2")(hidden))
    policy = scalekeeper.DynamicLossScale(initial_loss_scale=1024, increment_period=3)
    model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.Adam(0.01), policy), loss="mse")
    return model


def describe(name, model):
    loss = model.evaluate(INPUTS, TARGETS, verbose=0)
    print(f"{name}: loss {loss:.6f}, {int(model.optimizer.iterations)} steps, {model.optimizer.loss_scale.state()}")


with tempfile.TemporaryDirectory() as folder:
    with tarfile.open(WRITTEN) as archive:
        archive.extractall(folder, filter="data")
    checkpoint, h5 = (os.path.join(folder, "dynamic-adam", name) for name in ("checkpoint", "model.h5"))
    moved = os.path.join(folder, "moved.keras")

    model = build_model()
    report = scalekeeper.restore(model, checkpoint)  # everything, also the loss scale
    describe(f"checkpoint, complete: {report.complete}", model)
    scalekeeper.convert(h5, moved, "keras3")
    converted = scalekeeper.load_model(moved)  # a warning tells what TensorFlow's H5 file does not hold
    describe("converted H5 file", converted)

    for each in (model, converted):
        each.fit(INPUTS, TARGETS, epochs=20, shuffle=False, verbose=0)
    describe("20 steps later", model)
    difference = max(abs(a - b).max() for a, b in zip(model.get_weights(), converted.get_weights()))
    print(f"the weights of both differ by {difference:.1e}")
