"""Layers that a program writes itself: their variables and layers are told apart, or a warning names them."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper.registry.errors import IncompleteRestoreError
from scalekeeper_test_support.installed_keras import IS_KERAS_3, WRITES_KERAS_FILES
from scalekeeper_test_support.unique_numbers import fill, numbers_of, train

LAYERS = tf.keras.layers
X = np.ones((2, 3), np.float32)


class Relations(LAYERS.Layer):
    """Creates its variables in the order of a set, which may differ from process to process."""

    names = ("a", "b")

    def build(self, shape):
        for name in self.names:
            setattr(self, name, self.add_weight(name=name, shape=(3, 3)))

    def call(self, x):
        return tf.matmul(x, self.a) + 2 * tf.matmul(x, self.b)


class Block(LAYERS.Layer):
    """Has layers of equal shapes in attributes."""

    names = ("a", "b")

    def __init__(self, **options):
        super().__init__(**options)
        for name in self.names:
            setattr(self, name, LAYERS.Dense(3))

    def call(self, x):
        return self.b(self.a(x))


def warned_of_order(layers):
    return pytest.warns(scalekeeper.AssumedOrderWarning, match=layers)


def optimizer():
    return scalekeeper.LossScaleOptimizer(tf.keras.optimizers.Adam(0.25), "dynamic")


def model_with(layer):
    tf.keras.backend.clear_session()
    inputs = tf.keras.Input((3,))
    model = tf.keras.Model(inputs, LAYERS.Dense(2, name="head")(layer(inputs)))
    model.compile(optimizer(), "mse")
    return model


def trained_with(layer):
    model = model_with(layer)
    train(model)
    fill(model)
    return model


@pytest.mark.skipif(not WRITES_KERAS_FILES, reason="this Keras writes no .keras files")
def test_variables_that_a_file_numbers(tmp_path, monkeypatch):
    """A warning names those of a custom layer, and Keras's own exchange is refused if a record has the names."""
    model = trained_with(Relations(name="relations"))
    scalekeeper.save_model(model, tmp_path / "own.keras", probe=False)
    model.compile(tf.keras.optimizers.SGD(0.25), "mse")
    model.save(str(tmp_path / "plain.keras"))
    expected = model.get_layer("relations").a.numpy().tolist()

    monkeypatch.setattr(Relations, "names", ("b", "a"))
    other = model_with(Relations(name="relations"))
    assert scalekeeper.restore(other, tmp_path / "own.keras").complete
    assert other.get_layer("relations").a.numpy().tolist() == expected
    other.compile(tf.keras.optimizers.SGD(0.25), "mse")
    with pytest.warns(scalekeeper.AssumedOrderWarning, match="relations/b, relations/a"):
        scalekeeper.restore(other, tmp_path / "plain.keras")
    custom = {"Relations": Relations}
    with pytest.raises(IncompleteRestoreError, match="in another order than when"):
        scalekeeper.load_model(tmp_path / "own.keras", custom_objects=custom)
    with pytest.warns(scalekeeper.AssumedOrderWarning, match="relations/b, relations/a"):
        scalekeeper.load_model(tmp_path / "plain.keras", custom_objects=custom)


@pytest.mark.skipif(not WRITES_KERAS_FILES, reason="this Keras writes no .keras files")
def test_layers_inside_a_layer_in_keras_files(tmp_path):
    """Attributes lead to them, whatever numbers Keras gives them; a file of Keras 2 has none for the slots."""
    model = trained_with(Block(name="block"))
    scalekeeper.save_model(model, tmp_path / "own.keras")
    model.save(str(tmp_path / "plain.keras"))
    LAYERS.Dense(2)
    for name in ("own", "plain"):
        other = model_with(Block(name="block"))
        is_assumed = name == "plain" and not IS_KERAS_3
        with warned_of_order("block/dense, block/dense_1") if is_assumed else contextlib.ExitStack():
            assert scalekeeper.restore(other, tmp_path / f"{name}.keras").complete
        assert numbers_of(other) == numbers_of(model)


@pytest.mark.parametrize(
    "file", ["state.npz", pytest.param("m.h5", marks=pytest.mark.skipif(IS_KERAS_3, reason="Keras 2"))]
)
def test_layers_inside_a_layer_that_a_file_numbers(file, tmp_path):
    """The connections of a functional model do not tell them apart, so a warning names them."""
    model = trained_with(Block(name="block"))
    if file == "m.h5":
        model.save_weights(str(tmp_path / file))
    else:
        scalekeeper.save_state(model.optimizer, tmp_path / file)
    other = model_with(Block(name="block"))
    with pytest.warns(scalekeeper.AssumedOrderWarning, match="block/dense, block/dense_1"):
        scalekeeper.restore(other, tmp_path / file, partial=True)


class Coder(tf.keras.Model):
    """Like the variational autoencoder of Keras's guide: two models and the means of two losses."""

    def __init__(self):
        super().__init__()
        for name in ("encoder", "decoder"):
            setattr(self, name, tf.keras.Sequential([LAYERS.Dense(3), LAYERS.Dense(3)]))
        self.total_loss_tracker = tf.keras.metrics.Mean(name="total_loss")
        self.kl_loss_tracker = tf.keras.metrics.Mean(name="kl_loss")

    def call(self, x):
        return self.decoder(self.encoder(x))


def trained_coder():
    tf.keras.backend.clear_session()
    model = Coder()
    model(X)
    model.compile(optimizer(), "mse")
    train(model)
    return model


@pytest.mark.parametrize("form", ["checkpoint", "own.keras"])
def test_metrics_in_attributes(form, tmp_path):
    """Their variables have equal names, and some files lack them: neither hides the slots of the model."""
    if form == "own.keras" and not WRITES_KERAS_FILES:
        pytest.skip("this Keras writes no .keras files")
    model = trained_coder()
    fill(model)
    path = str(tmp_path / form)
    if form == "checkpoint":
        tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(path)
    else:
        scalekeeper.save_model(model, path)
    other = trained_coder()
    scalekeeper.restore(other, path)
    assert numbers_of(other) == numbers_of(model)
