"""Train in two processes with MultiWorkerMirroredStrategy: an overflow in one of them is skipped by both.

python examples/two_workers.py  # TensorFlow 2.2 to 2.21

Without TF_CONFIG, it starts itself twice, as the two workers of a cluster on this machine.
"""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import tensorflow as tf

import scalekeeper

STEPS, BATCH = 20, 16


def start_workers():
    """Start one process for each worker; return whether one has failed."""
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))  # a free port
        second.bind(("127.0.0.1", 0))
        cluster = {"worker": ["{}:{}".format(*each.getsockname()) for each in (first, second)]}
    roles = [json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}) for index in range(2)]
    command = [sys.executable, os.path.abspath(__file__)]
    processes = [subprocess.Popen(command, env=dict(os.environ, TF_CONFIG=role)) for role in roles]
    return any([process.wait() for process in processes])


def train(index):
    """Train as one worker, on data of its own."""
    # up to TensorFlow 2.3 it is experimental
    distribute = tf.distribute if hasattr(tf.distribute, "MultiWorkerMirroredStrategy") else tf.distribute.experimental
    strategy = distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        inputs = tf.keras.Input((4,))
        model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, kernel_initializer="zeros")(inputs))
        policy = {"name": "dynamic", "initial_loss_scale": 1024, "increment_period": 4}
        optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.2), policy)

    def in_replica(inputs, targets):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(inputs) - targets) ** 2) / strategy.num_replicas_in_sync
            scaled_loss = optimizer.get_scaled_loss(loss)
        gradients = optimizer.get_unscaled_gradients(tape.gradient(scaled_loss, model.trainable_variables))
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    step, losses = tf.function(lambda *data: strategy.run(in_replica, args=data)), []
    random = np.random.RandomState(index)
    for number in range(STEPS):
        data = random.randn(BATCH, 4).astype("float32")
        noise = np.inf if (number, index) == (14, 1) else 0.1
        targets = data @ np.float32([[1], [2], [3], [4]]) + noise * random.rand(BATCH, 1).astype("float32")
        losses.append(float(step(tf.constant(data), tf.constant(targets, tf.float32))))
    weights = ", ".join(f"{each:.6f}" for each in model.get_weights()[0].ravel())
    skipped, scale = optimizer.telemetry.skipped, float(optimizer.loss_scale)
    print(f"worker {index}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, skipped {skipped}, scale {scale:.0f}, {weights}")


if "TF_CONFIG" in os.environ:
    train(json.loads(os.environ["TF_CONFIG"])["task"]["index"])
else:
    sys.exit(start_workers())
