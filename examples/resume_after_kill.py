"""Kill a float16 run, resume it from its last file, and compare it with a run that was never killed.

python examples/resume_after_kill.py  # TensorFlow 2.0 to 2.21
"""

import os
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow as tf

import scalekeeper

STEPS, SAVED_EVERY, KILLED_AFTER = 30, 10, 24
data = np.random.RandomState(0).randn(STEPS, 32, 4).astype("float32")
targets = np.abs(data).sum(axis=2, keepdims=True)


def build_model():
    getattr(tf.keras.utils, "set_random_seed", tf.random.set_seed)(0)  # Keras seeds itself from 2.7 on
    mixed_precision = tf.keras.mixed_precision
    if hasattr(mixed_precision, "set_global_policy"):
        mixed_precision.set_global_policy("mixed_float16")
    else:  # up to TensorFlow 2.3
        mixed_precision.experimental.set_policy("mixed_float16")
    inputs = tf.keras.Input((4,))
    hidden = tf.keras.layers.Dense(16, activation="relu", name="hidden")(inputs)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, dtype="float32", name="output")(hidden))
    policy = {"name": "dynamic", "initial_loss_scale": 2.0**20, "increment_period": 4}
    model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.Adam(0.05), policy), loss="mse")
    return model


def train(path, killed_after=None):
    """Train from the file, or from the beginning if there is none."""
    model = build_model()
    if os.path.exists(path):
        scalekeeper.restore(model, path)
    first, losses = model.optimizer.telemetry.steps, []
    for step in range(first, STEPS):
        losses.append(float(model.train_on_batch(data[step], targets[step])))
        if (step + 1) % SAVED_EVERY == 0:
            scalekeeper.save_model(model, path)
        if step + 1 == killed_after:
            os.kill(os.getpid(), 9)  # as a machine that is taken away
    training, found = f"steps {first} to {STEPS}: loss {losses[0]:.4f} -> {losses[-1]:.4f}", model.optimizer.telemetry
    print(f"{training}, {found.skipped} skipped, loss scale {found.loss_scale:.0f}")
    return losses


if len(sys.argv) > 1:  # the process to be killed
    train(sys.argv[1], KILLED_AFTER)
with tempfile.TemporaryDirectory() as folder:
    killed, whole = os.path.join(folder, "killed.keras"), os.path.join(folder, "whole.keras")
    code = subprocess.Popen([sys.executable, os.path.abspath(__file__), killed]).wait()
    losses, resumed = train(whole), train(killed)
    same = resumed == losses[-len(resumed) :]
    print(f"exit code {code}, same losses: {same}, same files: {scalekeeper.verify(whole, killed).equal}")
