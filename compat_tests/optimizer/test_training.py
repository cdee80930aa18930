"""Training with overflows, constraints, clipping, sparse gradients, custom optimizers, saving."""

import numpy as np
import pytest
import tensorflow as tf

from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support.counting_sgd import COUNTING_SGD
from scalekeeper_test_support.installed_keras import MODEL_SUFFIXES, WEIGHTS_SUFFIXES, number, set_global_policy

pytestmark = pytest.mark.usefixtures("mixed_float16")


@pytest.fixture(params=sorted(COUNTING_SGD))
def counting_sgd(request):
    """A user's own optimizer, of each kind that Keras has."""
    return COUNTING_SGD[request.param]


def embedding_model(optimizer, run_eagerly):
    """Four rows of one number, all 1; the loss is the mean of the rows that the input names."""
    rows = tf.keras.layers.Embedding(4, 1, embeddings_initializer="ones", input_length=2)
    # a layer of its own makes the output float16, which TensorFlow's Embedding does not do by itself
    model = tf.keras.Sequential([rows, tf.keras.layers.Activation("linear")])
    model.compile(optimizer, loss=lambda wanted, output: tf.cast(output, tf.float32), run_eagerly=run_eagerly)
    return model


def fit_rows(model, rows, epochs=1):
    model.fit(np.array([rows], np.int32), np.zeros((1, 2, 1), np.float32), epochs=epochs, verbose=0)
    return model.get_weights()[0].ravel().tolist()


# An overflow in the middle of fit


@pytest.mark.parametrize("bad", [4.0, float("inf"), float("nan")])
def test_an_overflow_during_fit_skips_one_step(one_weight, optimizers, run_eagerly, bad):
    """The bad batch changes no weight and halves the scale; the batches around it train."""
    optimizer = LossScaleOptimizer(optimizers.SGD(0.25), "dynamic")
    trained = one_weight().compile(optimizer, 1.0, run_eagerly)
    trained.fit(inputs=[1, bad, 1, 1])  # 4 is finite, and 4 × 2**15 is not in float16
    assert trained.weight == 0.25
    assert optimizer.loss_scale.state() == {"current_loss_scale": 2.0**14, "good_steps": 2}


@pytest.mark.parametrize(("skipped_steps", "iterations"), [("advance", 4), ("hold", 3)])
def test_a_skipped_step_counts_as_asked(one_weight, optimizers, run_eagerly, skipped_steps, iterations):
    """`skipped_steps` says whether the skipped batch of a fit advances the iterations."""
    optimizer = LossScaleOptimizer(optimizers.SGD(0.25), "dynamic", skipped_steps=skipped_steps)
    one_weight().compile(optimizer, 1.0, run_eagerly).fit(inputs=[1, 4, 1, 1])
    assert number(optimizer.iterations) == iterations


def test_adam_s_moments_survive_an_overflow(one_weight, optimizers, run_eagerly):
    """A skipped step leaves the slots alone: the fit equals one whose data never held the bad batch."""

    def fitted(inputs):
        optimizer = LossScaleOptimizer(optimizers.Adam(0.25), "dynamic", skipped_steps="hold")
        trained = one_weight().compile(optimizer, 1.0, run_eagerly)
        trained.fit(inputs)
        return trained.weight, [np.asarray(weight).tolist() for weight in optimizer.get_weights()]

    assert fitted([1, float("nan"), 1]) == fitted([1, 1])


def test_the_scale_grows_during_fit(one_weight, run_eagerly):
    """The scale doubles every second step until a step overflows, and every applied update is exact all the same."""
    policy = {"name": "dynamic", "initial_loss_scale": 2.0**14, "increment_period": 2}
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(0.125), policy)
    trained = one_weight().compile(optimizer, 1.0, run_eagerly)
    scales = []
    for _ in range(6):
        trained.fit()
        scales.append(optimizer.loss_scale.state()["current_loss_scale"])
    # two steps at 2**14, two at 2**15, one skipped at 2**16, one at 2**15 again
    assert scales == [2.0**14, 2.0**15, 2.0**15, 2.0**16, 2.0**15, 2.0**15]
    assert trained.weight == 1.0 - 5 * 0.125


def test_a_fixed_scale_applies_what_overflows(one_weight, run_eagerly):
    """As with TensorFlow's own class, a fixed scale lets a bad batch spoil the weights."""
    trained = one_weight().compile(LossScaleOptimizer(tf.keras.optimizers.SGD(0.25), 2.0**15), 1.0, run_eagerly)
    trained.fit(inputs=[1, 4, 1])
    assert not np.isfinite(trained.weight)


def test_a_fixed_scale_skips_what_overflows_if_asked(one_weight, run_eagerly):
    """With `skip_nonfinite` the bad batch is left out, and the scale stays."""
    policy = {"name": "fixed", "loss_scale_value": 2.0**15, "skip_nonfinite": True}
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(0.25), policy)
    trained = one_weight().compile(optimizer, 1.0, run_eagerly)
    trained.fit(inputs=[1, 4, 1])
    assert trained.weight == 0.5
    assert float(optimizer.loss_scale()) == 2.0**15


# Constraints


def test_a_constraint_is_applied_after_the_update(one_weight, run_eagerly):
    """An update that would take the weight below zero leaves it at zero, where NonNeg puts it."""
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(4.0), "dynamic")
    trained = one_weight(kernel_constraint=tf.keras.constraints.NonNeg()).compile(optimizer, 1.0, run_eagerly)
    trained.fit()
    assert trained.weight == 0.0


def test_a_constraint_is_not_applied_at_a_skipped_step(one_weight, run_eagerly):
    """A skipped step touches no weight, not even one that its constraint would change."""
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(0.25), "dynamic")
    halved = one_weight(kernel_constraint=lambda weight: weight * 0.5).compile(optimizer, 1.0, run_eagerly)
    halved.fit(inputs=[4.0])
    assert halved.weight == 1.0
    halved.fit(inputs=[1.0])
    assert halved.weight == 0.375


# Clipping


@pytest.mark.parametrize("clipping", [{"clipvalue": 0.25}, {"clipnorm": 0.25}], ids=["value", "norm"])
def test_fit_clips_as_the_inner_optimizer_alone_does(one_weight, run_eagerly, clipping):
    """Clipping sees the unscaled gradient of 1, not the scaled one; where Keras's fit does not clip, neither do we."""
    set_global_policy("float32")  # so that the inner optimizer alone is not wrapped
    alone = one_weight().compile(tf.keras.optimizers.SGD(0.5, **clipping), 1.0, run_eagerly)
    alone.fit()
    wrapped = LossScaleOptimizer(tf.keras.optimizers.SGD(0.5, **clipping), "dynamic")
    trained = one_weight().compile(wrapped, 1.0, run_eagerly)
    trained.fit()
    assert trained.weight == alone.weight
    # before 2.2, when models had no train_step yet, Keras clips in `minimize` and `get_updates` only
    assert trained.weight == (0.875 if hasattr(tf.keras.Model, "train_step") else 0.5)


# Sparse gradients


def test_an_embedding_trains_the_rows_that_were_read(run_eagerly):
    """The gradient of each row is its share of the mean: rows 1 and 2 half of it each, the others none."""
    model = embedding_model(LossScaleOptimizer(tf.keras.optimizers.SGD(0.5), "dynamic"), run_eagerly)
    assert fit_rows(model, [1, 2]) == [1.0, 0.75, 0.75, 1.0]


def test_an_embedding_adds_up_a_row_that_was_read_twice(optimizers, run_eagerly):
    """Two gradients of one row count as their sum."""
    model = embedding_model(LossScaleOptimizer(optimizers.SGD(0.5), "dynamic"), run_eagerly)
    assert fit_rows(model, [1, 1], epochs=2) == [1.0, 0.0, 1.0, 1.0]


def test_an_embedding_trains_with_adam(optimizers, run_eagerly):
    """Adam's first step is the learning rate, whatever the gradient's size, for the rows that were read."""
    model = embedding_model(LossScaleOptimizer(optimizers.Adam(0.25), "dynamic"), run_eagerly)
    assert fit_rows(model, [1, 3]) == pytest.approx([1.0, 0.75, 1.0, 0.75], abs=1e-5)


def test_a_sparse_gradient_stays_sparse(counting_sgd, run_eagerly):
    """The inner optimizer's sparse update is the one that runs: only the rows that were read are counted."""
    optimizer = LossScaleOptimizer(counting_sgd(0.5), "dynamic")
    model = embedding_model(optimizer, run_eagerly)
    assert fit_rows(model, [1, 2]) == [1.0, 0.75, 0.75, 1.0]
    counts = optimizer.get_slot(model.trainable_variables[0], "updates")
    assert counts.numpy().ravel().tolist() == [0.0, 1.0, 1.0, 0.0]


def test_an_overflow_in_a_sparse_gradient_is_skipped(run_eagerly):
    """A scale that makes the embedding's gradient infinite is halved until the step can be applied."""
    # a row's gradient is half of the loss: 2**17 / 2 is infinite in float16, and 2**16 / 2 is not
    policy = {"name": "dynamic", "initial_loss_scale": 2.0**17}
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(0.5), policy)
    model = embedding_model(optimizer, run_eagerly)
    assert fit_rows(model, [1, 2]) == [1.0, 1.0, 1.0, 1.0]
    assert fit_rows(model, [1, 2]) == [1.0, 0.75, 0.75, 1.0]
    assert optimizer.loss_scale.state()["current_loss_scale"] == 2.0**16


# A custom optimizer


def test_a_custom_optimizer_is_used_as_written(one_weight, counting_sgd, run_eagerly):
    """Its own update and its own slot work inside the wrapper; a skipped step runs neither."""
    optimizer = LossScaleOptimizer(counting_sgd(0.25), "dynamic")
    trained = one_weight().compile(optimizer, 1.0, run_eagerly)
    trained.fit(inputs=[1, 4, 1])
    assert trained.weight == 0.5
    slot = optimizer.get_slot(trained.model.trainable_variables[0], "updates")
    assert slot.numpy().item() == 2.0
    assert optimizer.get_slot_names() == ["updates"]


def test_a_custom_optimizer_s_configuration_goes_round(counting_sgd):
    """`from_config` with the class in custom_objects makes the same optimizer and policy again."""
    optimizer = LossScaleOptimizer(counting_sgd(0.125), {"name": "dynamic", "initial_loss_scale": 64})
    config = optimizer.get_config()
    again = LossScaleOptimizer.from_config(config, custom_objects={"CountingSGD": counting_sgd})
    assert type(again.inner_optimizer) is counting_sgd
    assert number(again.learning_rate) == 0.125
    assert float(again.loss_scale()) == 64.0
    assert again.get_config() == config


# Saving


@pytest.mark.parametrize("suffix", WEIGHTS_SUFFIXES)
@pytest.mark.parametrize("inner", ["SGD", "Adam"])
def test_weights_go_round(one_weight, tmp_path, suffix, inner):
    """`save_weights` and `load_weights` bring the weight back into a model that trained on, which then trains again."""
    path = str(tmp_path / "weights") + suffix
    optimizer = LossScaleOptimizer(getattr(tf.keras.optimizers, inner)(), "dynamic")
    trained = one_weight().compile(optimizer, 1.0)
    trained.fit()
    saved = trained.weight
    trained.model.save_weights(path)
    trained.fit()
    assert trained.weight < saved < 1.0
    trained.model.load_weights(path)
    assert trained.weight == saved
    trained.fit()
    assert trained.weight < saved


@pytest.mark.parametrize("suffix", MODEL_SUFFIXES)
@pytest.mark.parametrize("inner", ["SGD", "Adam"])
def test_a_saved_model_loads(optimizers, tmp_path, suffix, inner):
    """`load_model` reads what `model.save` wrote with our optimizer in it, and the model trains on."""
    path = str(tmp_path / "model") + suffix
    # in float32, as TensorFlow 2.0 can't write a float16 layer into a SavedModel, with any optimizer
    set_global_policy("float32")
    layer = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", input_shape=(1,))
    model = tf.keras.Sequential([layer])
    model.compile(LossScaleOptimizer(getattr(optimizers, inner)(), "dynamic"), loss="mse")
    inputs, targets = np.ones((4, 1), np.float32), np.zeros((4, 1), np.float32)
    model.fit(inputs, targets, verbose=0)
    model.save(path)
    loaded = tf.keras.models.load_model(path)
    np.testing.assert_array_equal(loaded.get_weights()[0], model.get_weights()[0])
    loaded.fit(inputs, targets, verbose=0)
    assert loaded.get_weights()[0].item() < model.get_weights()[0].item()


def test_compile_anew_keeps_the_weights(one_weight, run_eagerly):
    """A model compiled again with a second wrapper goes on from its weights, with the second one's scale."""
    trained = one_weight().compile(LossScaleOptimizer(tf.keras.optimizers.SGD(0.25), "dynamic"), 1.0, run_eagerly)
    trained.fit()
    second = LossScaleOptimizer(tf.keras.optimizers.SGD(0.5), {"name": "dynamic", "initial_loss_scale": 8})
    trained.compile(second, 1.0, run_eagerly)
    trained.fit()
    assert trained.weight == 0.25
    assert second.loss_scale.state() == {"current_loss_scale": 8.0, "good_steps": 1}
