"""Train a transformer with fit in mixed precision: it learns to reverse a sequence.

python examples/transformer_in_fit.py  # TensorFlow 2.0 to 2.21
"""

import numpy as np
import tensorflow as tf

import scalekeeper

LENGTH, TOKENS, WIDTH, HEADS = 6, 8, 32, 2

getattr(tf.keras.utils, "set_random_seed", tf.random.set_seed)(0)  # Keras seeds itself from 2.7 on
mixed_precision = tf.keras.mixed_precision
if hasattr(mixed_precision, "set_global_policy"):
    mixed_precision.set_global_policy("mixed_float16")
else:  # up to TensorFlow 2.3
    mixed_precision.experimental.set_policy("mixed_float16")
layers = tf.keras.layers


class Attention(layers.Layer):
    """Self-attention, in TensorFlow's operations: Keras has a layer for it from 2.4 on."""

    def call(self, inputs):
        batch = tf.shape(inputs)[0]
        heads = tf.reshape(inputs, [batch, LENGTH, 3 * HEADS, WIDTH // HEADS])
        queries, keys, values = tf.split(tf.transpose(heads, [0, 2, 1, 3]), 3, axis=1)
        scores = tf.matmul(queries, keys, transpose_b=True) / (WIDTH / HEADS) ** 0.5
        weights = tf.cast(tf.nn.softmax(tf.cast(scores, tf.float32)), values.dtype)
        return tf.reshape(tf.transpose(tf.matmul(weights, values), [0, 2, 1, 3]), [batch, LENGTH, WIDTH])


class Positions(layers.Layer):
    """Adds a trained vector to each position."""

    def build(self, input_shape):
        self.vectors = self.add_weight(name="vectors", shape=[LENGTH, WIDTH], initializer="random_normal")

    def call(self, inputs):
        return inputs + tf.cast(self.vectors, inputs.dtype)


inputs = tf.keras.Input((LENGTH,), dtype="int32")
stream = Positions()(layers.Embedding(TOKENS, WIDTH)(inputs))
attended = layers.Dense(WIDTH)(Attention()(layers.Dense(3 * WIDTH)(stream)))
stream = layers.LayerNormalization(dtype="float32")(layers.add([stream, attended]))
stream = layers.add([stream, layers.Dense(WIDTH)(layers.Dense(2 * WIDTH, activation="relu")(stream))])
model = tf.keras.Model(inputs, layers.Dense(TOKENS, activation="softmax", dtype="float32")(stream))
policy = {"name": "dynamic", "initial_loss_scale": 2.0**24, "increment_period": 10}
optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.Adam(0.01), policy)
model.compile(optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])

tokens = np.random.RandomState(0).randint(TOKENS, size=[768, LENGTH])
options = {"batch_size": 32, "epochs": 5, "verbose": 0, "callbacks": [scalekeeper.LossScaleLogger()]}
history = model.fit(tokens, tokens[:, ::-1], validation_split=1 / 6, **options).history
found = optimizer.telemetry
print(f"loss {history['loss'][0]:.3f} -> {history['loss'][-1]:.3f}, accuracy {history['val_accuracy'][-1]:.2f}")
print(f"{found.skipped} of {found.steps} steps skipped, loss scale after each epoch: {history['loss_scale']}")
