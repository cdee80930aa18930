"""The wrapper under the models and data that Keras trains: each weight moves by its own exact gradient."""

import numpy as np
import pytest
import tensorflow as tf

from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support.installed_keras import number

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("mixed_float16")]

ONES = np.ones((4, 1), np.float32)


def one_number(**options):
    """A layer whose only weight is 1."""
    return tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", **options)


def output_itself(wanted, output):
    return tf.cast(output, tf.float32)


def wrapped(step=0.25):
    return LossScaleOptimizer(tf.keras.optimizers.SGD(step), "dynamic")


def numbers(model):
    return [weight.item() for weight in model.get_weights()]


class WithUnusedWeight(tf.keras.Model):
    """A model of the user's own class, with one weight that has no part in the output."""

    def __init__(self):
        super().__init__()
        self.used = one_number()
        self.unused = one_number()
        self.unused.build((None, 1))

    def call(self, inputs):
        return self.used(inputs)


def test_a_weight_without_a_gradient_stays(run_eagerly):
    """A subclassed model trains the weight that has a gradient and leaves the one that has none."""
    model = WithUnusedWeight()
    model.compile(wrapped(), loss=output_itself, run_eagerly=run_eagerly)
    model.fit(ONES, ONES, verbose=0)
    assert (model.used.kernel.numpy().item(), model.unused.kernel.numpy().item()) == (0.75, 1.0)


def test_a_frozen_layer_stays(run_eagerly):
    """A layer that is not trainable keeps its weight; the other one moves."""
    model = tf.keras.Sequential([one_number(input_shape=(1,), trainable=False), one_number()])
    model.compile(wrapped(), loss=output_itself, run_eagerly=run_eagerly)
    model.fit(ONES, ONES, verbose=0)
    assert [layer.get_weights()[0].item() for layer in model.layers] == [1.0, 0.75]


def test_two_outputs_with_loss_weights(run_eagerly):
    """Each output's weight moves by its loss weight × the gradient."""
    inputs = tf.keras.Input((1,))
    outputs = [one_number(name="first")(inputs), one_number(name="second")(inputs)]
    model = tf.keras.Model(inputs, outputs)
    model.compile(wrapped(), loss=[output_itself, output_itself], loss_weights=[1.0, 0.5], run_eagerly=run_eagerly)
    model.fit(ONES, [ONES, ONES], verbose=0)
    assert numbers(model) == [0.75, 0.875]


def test_sample_weights(run_eagerly):
    """Sample weights of 2 and 0 in equal parts give the gradient that all ones give."""
    model = tf.keras.Sequential([one_number(input_shape=(1,))])
    model.compile(wrapped(), loss=output_itself, run_eagerly=run_eagerly)
    model.fit(ONES, ONES, sample_weight=np.array([2.0, 0.0, 2.0, 0.0], np.float32), verbose=0)
    assert numbers(model) == [0.75]


def test_a_dataset_with_validation(run_eagerly):
    """Training from a dataset takes one step for each batch, and validation takes none."""
    optimizer = wrapped(0.125)
    model = tf.keras.Sequential([one_number(input_shape=(1,))])
    model.compile(optimizer, loss=output_itself, run_eagerly=run_eagerly)
    dataset = tf.data.Dataset.from_tensor_slices((ONES, ONES)).batch(2)
    history = model.fit(dataset, validation_data=dataset, epochs=2, verbose=0).history
    assert numbers(model) == [0.5]
    assert history["val_loss"] == [0.75, 0.5]
    assert number(optimizer.iterations) == 4
    assert optimizer.loss_scale.state()["good_steps"] == 4


def test_evaluate_and_predict_leave_the_scale_alone(run_eagerly):
    """Both give the unscaled values and change neither weights nor loss-scale state."""
    optimizer = wrapped()
    model = tf.keras.Sequential([one_number(input_shape=(1,))])
    model.compile(optimizer, loss=output_itself, run_eagerly=run_eagerly)
    before = optimizer.loss_scale.state()
    assert model.evaluate(ONES, ONES, verbose=0) == 1.0
    assert model.predict(ONES).ravel().tolist() == [1.0] * 4
    assert optimizer.loss_scale.state() == before
    assert numbers(model) == [1.0]


def test_batch_normalization_keeps_its_averages_at_a_skipped_step(run_eagerly):
    """The forward pass of a skipped step still counts for moving averages, as with any optimizer; weights stay."""
    norm = tf.keras.layers.BatchNormalization(momentum=0.5, scale=False, center=False)
    model = tf.keras.Sequential([one_number(input_shape=(1,)), norm])
    # each of the four outputs has a gradient of 2**20 / 4, which is infinite in float16
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(0.25), {"name": "dynamic", "initial_loss_scale": 2.0**20})
    model.compile(optimizer, loss=output_itself, run_eagerly=run_eagerly)
    model.fit(ONES, ONES, verbose=0)
    assert model.layers[0].get_weights()[0].item() == 1.0
    assert norm.moving_mean.numpy().item() == 0.5
    assert optimizer.loss_scale.state()["current_loss_scale"] == 2.0**19


@pytest.mark.skipif(not hasattr(tf.keras.Model, "train_step"), reason="Keras calls train_step since TensorFlow 2.2")
def test_a_train_step_of_the_user_s_own(run_eagerly):
    """A train_step that scales and unscales by the documented methods, inside fit, gives the exact update."""

    class OwnStep(tf.keras.Sequential):
        def train_step(self, data):
            inputs, _ = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.cast(self(inputs, training=True), tf.float32)) * 2.0**-29
                scaled_loss = self.optimizer.get_scaled_loss(loss)
            grads = self.optimizer.get_unscaled_gradients(tape.gradient(scaled_loss, self.trainable_variables))
            self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
            return {"loss": loss}

    model = OwnStep([one_number(input_shape=(1,))])
    model.compile(wrapped(0.25 / 2.0**-29), run_eagerly=run_eagerly)
    model.fit(ONES, ONES, verbose=0)
    assert numbers(model) == [0.75]
