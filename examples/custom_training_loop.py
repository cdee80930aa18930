"""Write a training loop: scale the loss, unscale the gradients, apply them.

python examples/custom_training_loop.py  # TensorFlow 2.0 to 2.21
"""

import numpy as np
import tensorflow as tf

import scalekeeper

optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.Adam(0.05), "dynamic")
model = tf.keras.Sequential([tf.keras.layers.Dense(8, activation="tanh"), tf.keras.layers.Dense(1)])


@tf.function
def step(inputs, targets):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(inputs) - targets) ** 2)
        scaled_loss = optimizer.get_scaled_loss(loss)
    scaled_gradients = tape.gradient(scaled_loss, model.trainable_variables)
    gradients = optimizer.get_unscaled_gradients(scaled_gradients)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


getattr(tf.keras.utils, "set_random_seed", tf.random.set_seed)(0)  # Keras seeds itself from 2.7 on
inputs = np.random.RandomState(0).randn(64, 4).astype("float32")
targets = inputs.sum(axis=1, keepdims=True)
model(inputs)  # makes the variables, outside of the traced step
losses = [float(step(inputs, targets)) for _ in range(100)]
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, {optimizer.loss_scale.state()}")
