"""Train in two processes with MultiWorkerMirroredStrategy: an overflow in one of them is skipped by both.

python examples/two_workers.py

Without TF_CONFIG, the program starts itself twice, as the two workers of a cluster on this machine.
"""

import json
import os
import socket
import subprocess
import sys

STEPS, BATCH = 40, 16


def start_workers():
    """Start one process for each worker; return whether one has failed."""
    sockets = [socket.socket() for _ in range(2)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    tasks = [{"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}} for index in range(2)]
    variables = [dict(os.environ, TF_CONFIG=json.dumps(task)) for task in tasks]
    processes = [subprocess.Popen([sys.executable, __file__], env=each) for each in variables]
    return any([process.wait() for process in processes])


def train(index):
    """Train on the data of one worker."""
    import numpy as np
    import tensorflow as tf

    import scalekeeper

    strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
    with strategy.scope():
        inputs = tf.keras.Input((4,))
        model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, kernel_initializer="zeros")(inputs))
        policy = {"name": "dynamic", "initial_loss_scale": 1024, "increment_period": 10}
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
        targets = data.sum(axis=1, keepdims=True)
        if (number, index) == (14, 1):
            targets[3] = np.inf
        losses.append(float(step(tf.constant(data), tf.constant(targets))))
    weights = np.round(model.get_weights()[0].ravel(), 4)
    print(f"worker {index}: loss {losses[0]:.3f} -> {losses[-1]:.1e}, skipped {optimizer.telemetry.skipped}, {weights}")


if "TF_CONFIG" in os.environ:
    train(json.loads(os.environ["TF_CONFIG"])["task"]["index"])
else:
    sys.exit(start_workers())
