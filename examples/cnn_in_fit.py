"""Train a CNN with fit in mixed precision: the first steps overflow, then the loss scale finds its level.

python examples/cnn_in_fit.py  # TensorFlow 2.0 to 2.21
"""

import numpy as np
import tensorflow as tf

import scalekeeper

SIZE, CLASSES = 12, 4

getattr(tf.keras.utils, "set_random_seed", tf.random.set_seed)(0)  # Keras seeds itself from 2.7 on
mixed_precision = tf.keras.mixed_precision
if hasattr(mixed_precision, "set_global_policy"):
    mixed_precision.set_global_policy("mixed_float16")
else:  # up to TensorFlow 2.3
    mixed_precision.experimental.set_policy("mixed_float16")


def stripes(count, random):
    """Return noisy images of stripes, and their directions: 0, 45, 90 or 135 degrees."""
    directions = random.randint(CLASSES, size=count)
    angles = (directions * np.pi / CLASSES)[:, None, None]
    phases = random.uniform(0, 2 * np.pi, [count, 1, 1])
    rows, columns = np.mgrid[:SIZE, :SIZE]
    images = np.sin(1.6 * (rows * np.sin(angles) + columns * np.cos(angles)) + phases)
    images += random.normal(0, 0.3, images.shape)
    return images[..., None].astype("float32"), directions


layers = tf.keras.layers
inputs = tf.keras.Input((SIZE, SIZE, 1))
features = layers.Conv2D(8, 5, activation="relu")(inputs)
features = layers.Conv2D(16, 3, strides=2, activation="relu")(features)
features = layers.GlobalAveragePooling2D()(features)
model = tf.keras.Model(inputs, layers.Dense(CLASSES, activation="softmax", dtype="float32")(features))
optimizer = scalekeeper.LossScaleOptimizer(
    tf.keras.optimizers.Adam(0.01), {"name": "dynamic", "initial_loss_scale": 2.0**24, "increment_period": 10}
)
model.compile(optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])

random = np.random.RandomState(0)
history = model.fit(
    *stripes(320, random),
    validation_data=stripes(64, random),
    batch_size=32,
    epochs=6,
    verbose=0,
    callbacks=[scalekeeper.LossScaleLogger()],
).history
found = optimizer.telemetry
print(f"loss {history['loss'][0]:.3f} -> {history['loss'][-1]:.3f}, accuracy {history['val_accuracy'][-1]:.2f}")
print(f"{found.skipped} of {found.steps} steps skipped, loss scale after each epoch: {history['loss_scale']}")
