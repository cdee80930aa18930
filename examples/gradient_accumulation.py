"""Write a training loop that adds up the gradients of several micro-batches, and applies them as one step.

python examples/gradient_accumulation.py  # TensorFlow 2.0 to 2.21

The scaled gradients are added in float32. The loss scale changes only in apply_gradients, so they all have the same
loss scale. If one micro-batch overflows, so does the sum, and the whole step is skipped.
"""

import numpy as np
import tensorflow as tf

import scalekeeper

STEPS, BATCH = 40, 32
random = np.random.RandomState(0)
data = random.randn(STEPS, BATCH, 4).astype("float32")
targets, weights = np.sin(data.sum(axis=2, keepdims=True)), random.randn(4, 16) / 2
data[7, 21] = np.inf  # in one micro-batch of the eighth step


def train(micro_batches):
    """Return the losses, the weights and the optimizer after steps of so many micro-batches each."""
    inputs = tf.keras.Input((4,))
    hidden = tf.keras.layers.Dense(16, activation="tanh", kernel_initializer=tf.constant_initializer(weights))(inputs)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, kernel_initializer="ones")(hidden))
    policy = {"name": "dynamic", "initial_loss_scale": 2.0**15, "increment_period": 16}
    optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.Adam(0.02), policy)
    variables = model.trainable_variables
    sums = [tf.Variable(tf.zeros(each.shape), trainable=False) for each in variables]

    @tf.function
    def add_gradients(inputs, targets):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(inputs) - targets) ** 2) / micro_batches
            scaled_loss = optimizer.get_scaled_loss(loss)
        for total, gradient in zip(sums, tape.gradient(scaled_loss, variables)):
            total.assign_add(tf.cast(gradient, tf.float32))
        return loss

    @tf.function
    def apply_sums():
        gradients = optimizer.get_unscaled_gradients([tf.identity(total) for total in sums])
        optimizer.apply_gradients(zip(gradients, variables))
        for total in sums:
            total.assign(tf.zeros_like(total))

    losses = []
    for step in range(STEPS):
        parts = zip(np.split(data[step], micro_batches), np.split(targets[step], micro_batches))
        losses.append(sum(float(add_gradients(*part)) for part in parts))
        apply_sums()
    return losses, model.get_weights(), optimizer


losses, accumulated, optimizer = train(micro_batches=4)
_, at_once, other = train(micro_batches=1)
difference = max(abs(a - b).max() for a, b in zip(accumulated, at_once))
found = optimizer.telemetry
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, {found.skipped} skipped, {optimizer.loss_scale.state()}")
print(f"with whole batches the weights differ by {difference:.1e}, {other.loss_scale.state()}")
