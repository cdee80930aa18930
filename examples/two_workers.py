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


def start_workers():
    with socket.socket() as first, socket.socket() as second:
        for each in (first, second):
            each.bind(("127.0.0.1", 0))  # a free port
        cluster = {"worker": ["{}:{}".format(*each.getsockname()) for each in (first, second)]}
    roles = [json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}) for index in range(2)]
    processes = [subprocess.Popen([sys.executable, __file__], env=dict(os.environ, TF_CONFIG=role)) for role in roles]
    return max(abs(code) for code in [process.wait() for process in processes])


def train(index):
    experimental = tf.distribute.experimental  # where the strategy is up to TensorFlow 2.3
    strategy = getattr(tf.distribute, "MultiWorkerMirroredStrategy", experimental.MultiWorkerMirroredStrategy)()
    with strategy.scope():
        inputs = tf.keras.Input((4,))
        model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, kernel_initializer="zeros")(inputs))
        policy = scalekeeper.DynamicLossScale(initial_loss_scale=1024, increment_period=4)
        optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.2), policy)

    def in_replica(inputs, targets):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(inputs) - targets) ** 2) / strategy.num_replicas_in_sync
            scaled_loss = optimizer.get_scaled_loss(loss)
        gradients = optimizer.get_unscaled_gradients(tape.gradient(scaled_loss, model.trainable_variables))
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    step, losses = tf.function(lambda *data: strategy.run(in_replica, args=data)), []
    random = np.random.RandomState(index)  # each worker has data of its own
    for number in range(20):
        data, noise = random.randn(16, 4), np.inf if (number, index) == (14, 1) else 0.1
        targets = data @ [[1], [2], [3], [4]] + noise * random.rand(16, 1)
        losses.append(float(step(tf.constant(data, tf.float32), tf.constant(targets, tf.float32))))
    weights, found = model.get_weights()[0].ravel().tolist(), optimizer.telemetry
    training = f"loss {losses[0]:.2f} -> {losses[-1]:.4f}, {found.skipped} skipped, loss scale {found.loss_scale:.0f}"
    print(f"worker {index}: {training}, weights {weights}")


if "TF_CONFIG" not in os.environ:
    sys.exit(start_workers())
train(json.loads(os.environ["TF_CONFIG"])["task"]["index"])
