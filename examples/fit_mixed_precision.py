"""Train with Model.fit in mixed precision and choose the loss scale.

python examples/fit_mixed_precision.py
"""

import numpy as np
import tensorflow as tf

import scalekeeper

tf.random.set_seed(0)
mixed_precision = tf.keras.mixed_precision
if hasattr(mixed_precision, "set_global_policy"):
    mixed_precision.set_global_policy("mixed_float16")
else:  # up to TensorFlow 2.3
    mixed_precision.experimental.set_policy("mixed_float16")
model = tf.keras.Sequential(
    [
        tf.keras.layers.Dense(16, activation="relu", input_shape=(4,)),
        tf.keras.layers.Dense(1, dtype="float32"),
    ]
)
optimizer = scalekeeper.build(
    {"optimizer": {"name": "sgd", "learning_rate": 0.05}, "loss_scale": {"name": "dynamic", "increment_period": 20}}
)
model.compile(optimizer, loss="mse")

inputs = np.random.RandomState(0).randn(256, 4).astype("float32")
history = model.fit(inputs, inputs.sum(axis=1, keepdims=True), batch_size=32, epochs=10, verbose=0)
losses = history.history["loss"]
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, {optimizer.loss_scale.state()}")
