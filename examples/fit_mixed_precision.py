"""Train with Model.fit in mixed precision and choose the loss scale.

python examples/fit_mixed_precision.py  # TensorFlow 2.0 to 2.21
"""

import numpy as np
import tensorflow as tf

import scalekeeper

getattr(tf.keras.utils, "set_random_seed", tf.random.set_seed)(0)  # Keras seeds itself from 2.7 on
mixed_precision = tf.keras.mixed_precision
if hasattr(mixed_precision, "set_global_policy"):
    mixed_precision.set_global_policy("mixed_float16")
else:  # up to TensorFlow 2.3
    mixed_precision.experimental.set_policy("mixed_float16")
inputs = tf.keras.Input((4,))
hidden = tf.keras.layers.Dense(16, activation="relu")(inputs)
model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, dtype="float32")(hidden))
optimizer = scalekeeper.build(
    {"optimizer": {"name": "sgd", "learning_rate": 0.05}, "loss_scale": {"name": "dynamic", "increment_period": 20}}
)
model.compile(optimizer, loss="mse")

data = np.random.RandomState(0).randn(256, 4).astype("float32")
history = model.fit(data, data.sum(axis=1, keepdims=True), batch_size=32, epochs=10, verbose=0)
losses = history.history["loss"]
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, {optimizer.loss_scale.state()}")
