"""Train a small GAN in float16: two optimizers with one loss scale, which is updated once in each step.

python examples/two_optimizers.py  # TensorFlow 2.0 to 2.21
"""

import numpy as np
import tensorflow as tf

import scalekeeper

STEPS, BATCH = 200, 32

getattr(tf.keras.utils, "set_random_seed", tf.random.set_seed)(0)  # Keras seeds itself from 2.7 on
mixed_precision = tf.keras.mixed_precision
if hasattr(mixed_precision, "set_global_policy"):
    mixed_precision.set_global_policy("mixed_float16")
else:  # up to TensorFlow 2.3
    mixed_precision.experimental.set_policy("mixed_float16")
policy = {"name": "dynamic", "initial_loss_scale": 2.0**24, "increment_period": 50}
shared = scalekeeper.SharedLossScale(policy)
generator_optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.Adam(0.01, beta_1=0.5), shared)
critic_optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.Adam(0.01, beta_1=0.5), shared)


def network(width):
    inputs = tf.keras.Input((width,))
    hidden = tf.keras.layers.Dense(16, activation="relu")(inputs)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(1, dtype="float32")(hidden))


generator, critic = network(4), network(1)


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
    return tf.reduce_mean(fake)


random, means, scales = np.random.RandomState(0), [], [float(shared.loss_scale())]
for _ in range(STEPS):
    noise, real = random.randn(BATCH, 4).astype("float32"), 3 + random.randn(BATCH, 1).astype("float32")
    means.append(float(step(noise, real)))
    scales.append(float(shared.loss_scale()))
halved, doubled = (int(np.sum(np.divide(scales[1:], scales[:-1]) == factor)) for factor in (0.5, 2))
skipped = [optimizer.telemetry.skipped for optimizer in (critic_optimizer, generator_optimizer)]
print(f"mean {means[0]:.2f} -> {np.mean(means[-50:]):.2f}, real 3")
print(f"skipped steps {skipped}; loss scale {scales[0]:.0f} -> {scales[-1]:.0f}, {halved} halved, {doubled} doubled")
