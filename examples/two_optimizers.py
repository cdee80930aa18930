"""Train a small GAN: two optimizers with one loss scale, which is updated once in each step.

python examples/two_optimizers.py
"""

import numpy as np
import tensorflow as tf

import scalekeeper

shared = scalekeeper.SharedLossScale("dynamic")
generator_optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.Adam(0.01, beta_1=0.5), shared)
critic_optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.Adam(0.01, beta_1=0.5), shared)
generator = tf.keras.Sequential([tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dense(1)])
critic = tf.keras.Sequential([tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dense(1)])


@tf.function
def step(noise, real):
    with tf.GradientTape(persistent=True) as tape:
        fake = generator(noise)
        critic_loss = tf.reduce_mean(tf.nn.softplus(critic(fake)) + tf.nn.softplus(-critic(real)))
        generator_loss = tf.reduce_mean(tf.nn.softplus(-critic(fake)))
        scaled_critic_loss = critic_optimizer.get_scaled_loss(critic_loss)
        scaled_generator_loss = generator_optimizer.get_scaled_loss(generator_loss)
    with shared.step():
        for optimizer, loss, model in (
            (critic_optimizer, scaled_critic_loss, critic),
            (generator_optimizer, scaled_generator_loss, generator),
        ):
            gradients = optimizer.get_unscaled_gradients(tape.gradient(loss, model.trainable_variables))
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))


tf.random.set_seed(0)
random = np.random.RandomState(0)
critic(generator(random.randn(1, 4).astype("float32")))  # makes the variables, outside of the traced step
means = []
for _ in range(300):
    noise = random.randn(64, 4).astype("float32")
    means.append(float(tf.reduce_mean(generator(noise))))
    step(noise, 3 + random.randn(64, 1).astype("float32"))
print(f"mean {means[0]:.2f} -> {np.mean(means[-50:]):.2f}, real 3, {shared.loss_scale.state()}")
