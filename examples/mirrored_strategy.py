"""Train with fit under MirroredStrategy in float16: the replicas skip the same steps, and stay equal.

python examples/mirrored_strategy.py  # TensorFlow 2.2 to 2.21

The program splits the CPU into two devices, so it runs on any machine. With GPUs, leave the devices out.
"""

import numpy as np
import tensorflow as tf

import scalekeeper

DEVICES = ["/cpu:0", "/cpu:1"]

getattr(tf.keras.utils, "set_random_seed", tf.random.set_seed)(0)  # Keras seeds itself from 2.7 on
(cpu,) = tf.config.experimental.list_physical_devices("CPU")
parts = [tf.config.experimental.VirtualDeviceConfiguration() for _ in DEVICES]
tf.config.experimental.set_virtual_device_configuration(cpu, parts)
mixed_precision = tf.keras.mixed_precision
if hasattr(mixed_precision, "set_global_policy"):
    mixed_precision.set_global_policy("mixed_float16")
else:  # up to TensorFlow 2.3
    mixed_precision.experimental.set_policy("mixed_float16")

strategy = tf.distribute.MirroredStrategy(DEVICES)
with strategy.scope():
    inputs = tf.keras.Input((4,))
    hidden = tf.keras.layers.Dense(16, activation="relu")(inputs)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, dtype="float32")(hidden))
    policy = {"name": "dynamic", "initial_loss_scale": 4096, "increment_period": 7}
    optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.Adam(0.02), policy)
    model.compile(optimizer, loss="mae")

random = np.random.RandomState(0)
data = random.randn(256, 4).astype("float32")
targets = np.abs(data).sum(axis=1, keepdims=True)
poisoned = data.copy()
poisoned[91] = 1e6  # more than float16 holds; it is in the third batch, in the half of the second replica


def mean_error():
    return float(tf.reduce_mean(tf.abs(model(data) - targets)))


@tf.function
def weights_of_replica():
    return tf.concat([tf.reshape(each, [-1]) for each in model.trainable_variables], axis=0)


before = mean_error()
model.fit(poisoned, targets, batch_size=32, epochs=6, shuffle=False, verbose=0)
replicas = [each.numpy().tolist() for each in strategy.experimental_local_results(strategy.run(weights_of_replica))]
found = optimizer.telemetry
print(f"error {before:.3f} -> {mean_error():.3f}, {found.skipped} of {found.steps} steps skipped")
print(f"{len(replicas)} replicas with equal weights: {replicas[0] == replicas[1]}, {optimizer.loss_scale.state()}")
