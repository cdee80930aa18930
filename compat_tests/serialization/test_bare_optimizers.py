"""A bare optimizer, or Keras's own LossScaleOptimizer: its training state is kept, and nothing is wrapped."""

import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper_test_support.installed_keras import (
    IS_KERAS_3,
    LISTS_VARIABLES,
    MODEL_SUFFIXES,
    OPTIMIZERS,
    state_of,
    upstream,
)
from scalekeeper_test_support.unique_numbers import dense_model, fill, numbers_of, train

pytestmark = [
    pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of NumPy, about Keras 3's own variables
]
SUFFIXES = sorted({*MODEL_SUFFIXES, ".h5"})


def trained(optimizer, **options):
    """Return a model after two steps, each of its variables with numbers of its own."""
    model = dense_model(**options)
    model.compile(optimizer, "mse")
    train(model)
    fill(model)
    return model


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_files_keep_the_state_of_a_bare_optimizer(kind, tmp_path):
    """Iterations, slots and learning rate come back by load_model and by restore, and the optimizer stays bare."""
    model = trained(OPTIMIZERS[kind].Adam(0.125))
    model.optimizer.learning_rate = 0.25
    expected = numbers_of(model)
    assert expected["iterations"] == 2
    assert len(expected["slots"]) == 6
    for suffix in SUFFIXES:
        path = tmp_path / f"m{suffix}"
        scalekeeper.save_model(model, path)
        loaded = scalekeeper.load_model(path)
        assert type(loaded.optimizer) is type(model.optimizer)
        assert numbers_of(loaded) == expected, suffix
        other = dense_model()
        other.compile(OPTIMIZERS[kind].Adam(0.5), "mse")
        report = scalekeeper.restore(other, path)
        assert report.missing == report.unused == []
        assert numbers_of(other) == expected, suffix
    assert not hasattr(model.optimizer, "loss_scale") or not callable(model.optimizer.loss_scale)


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_plain_files_of_keras_and_checkpoints(kind, tmp_path):
    """A file that Keras writes without scalekeeper, and a checkpoint, restore a bare optimizer, too."""
    model = trained(OPTIMIZERS[kind].Adam(0.25))
    expected = numbers_of(model)
    paths = [tmp_path / "checkpoint"]
    tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(str(paths[0]))
    if kind != "legacy":
        paths.append(tmp_path / "m.keras")
    paths += [] if IS_KERAS_3 else [tmp_path / "m.h5"]
    for path in paths[1:]:
        model.save(str(path))
    for path in paths:
        other = dense_model()
        other.compile(OPTIMIZERS[kind].Adam(0.25), "mse")
        scalekeeper.restore(other, path)
        assert numbers_of(other) == expected, path


def test_the_wrapper_of_keras_keeps_its_loss_scale(tmp_path):
    """A model that Keras has wrapped itself: the state of the inner optimizer, and the loss scale, are restored."""
    loss_scale = {"initial_loss_scale": 64.0, "increment_period": 2}
    model = dense_model()
    model.compile(upstream(tf.keras.optimizers.Adam(0.25), loss_scale), "mse")
    train(model, steps=3)
    fill(model)
    expected, scale = numbers_of(model), state_of(model.optimizer)
    assert scale == {"current_loss_scale": 128.0, "good_steps": 1}
    paths = [tmp_path / f"m{suffix}" for suffix in SUFFIXES if LISTS_VARIABLES or suffix != ".h5"]
    for path in paths:
        scalekeeper.save_model(model, path)
    paths.append(tmp_path / "checkpoint")
    tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(str(paths[-1]))
    for path in paths:
        other = dense_model()
        other.compile(upstream(tf.keras.optimizers.Adam(0.5), loss_scale), "mse")
        report = scalekeeper.restore(other, path)
        assert [name for name in report.missing if name != "learning_rate"] == []
        assert numbers_of(other) == expected, path
        assert state_of(other.optimizer) == scale, path


def test_a_file_without_an_optimizer_gives_a_model_that_is_not_compiled(tmp_path):
    """load_model returns the weights of a model that was saved before it was compiled."""
    model = dense_model()
    model.save(str(tmp_path / "m.h5"))
    loaded = scalekeeper.load_model(tmp_path / "m.h5")
    assert [each.numpy().tolist() for each in loaded.weights] == [each.numpy().tolist() for each in model.weights]
    assert getattr(loaded, "optimizer", None) is None


def test_an_optimizer_that_was_given_by_name(tmp_path):
    """A .keras file then holds the name alone; the optimizer and its state come back."""
    model = trained("adam")
    expected = numbers_of(model)
    for suffix in SUFFIXES:
        scalekeeper.save_model(model, tmp_path / f"m{suffix}")
        assert numbers_of(scalekeeper.load_model(tmp_path / f"m{suffix}")) == expected, suffix
