"""Models of every Keras are rebuilt from their configurations on this one, and compute the same.

The files under ``tests/serialization/data/models`` were written by the Keras in their names: the model's configuration,
and what it computed with the weights and inputs that are made here.
"""

import glob
import json
import os

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper import TranslationError
from scalekeeper.serialization.keras._model_config import translate_for_installed_keras

DATA = os.path.join(os.path.dirname(__file__), "..", "..", "tests", "serialization", "data", "models")
FILES = sorted(os.path.basename(path) for path in glob.glob(os.path.join(DATA, "*.json")))
HAS_ATTENTION = hasattr(tf.keras.layers, "MultiHeadAttention")
KEEPS_POLICIES = not tf.__version__.startswith("2.0.")


def read(name):
    with open(os.path.join(DATA, name), encoding="utf-8") as stream:
        return json.load(stream)


def leaves(model):
    for layer in model.layers:
        yield from leaves(layer) if hasattr(layer, "layers") else [layer]


def fill(model):
    """Give each weight numbers that depend on its layer's name and its place in it."""
    layers = {layer.name: layer for layer in leaves(model)}
    for place, name in enumerate(sorted(layers)):
        # a variance is not negative
        shift = 0.0 if name == "bn" else 0.2
        layers[name].set_weights(
            [
                ((np.arange(weight.size) * 7 + 3 * place + number) % 13 + 1).reshape(weight.shape) / 26 - shift
                for number, weight in enumerate(layers[name].get_weights())
            ]
        )


def inputs(model):
    made = []
    for number, tensor in enumerate(model.inputs):
        shape = (2,) + tuple(int(size) for size in tensor.shape[1:])
        values = ((np.arange(np.prod(shape)) * 5 + number) % 7).reshape(shape)
        made.append(values.astype("int32") if "int" in str(tensor.dtype) else (values / 7).astype("float32"))
    return made if len(made) > 1 else made[0]


def outputs(model):
    found = model(inputs(model), training=False)
    return [np.asarray(each, "float32") for each in (found if isinstance(found, (list, tuple)) else [found])]


def rebuilt(config, custom_objects=None):
    config = translate_for_installed_keras(config, custom_objects)
    return tf.keras.models.model_from_json(json.dumps(config), custom_objects=custom_objects)


def test_there_are_files():
    """Of seven models, from Keras of all generations."""
    assert {name.split("-")[0] for name in FILES} == {
        "attention",
        "dense",
        "images",
        "mixed",
        "shared",
        "states",
        "words",
    }
    assert len(FILES) == 21


@pytest.mark.parametrize("name", FILES)
def test_models_of_every_keras_compute_the_same(name):
    """With the same weights; anything without an equivalent in the installed Keras is an error that says what to do."""
    data = read(name)
    if (name.startswith("attention") and not HAS_ATTENTION) or (name.startswith("mixed") and not KEEPS_POLICIES):
        with pytest.raises(TranslationError, match="restore"):
            rebuilt(data["config"])
        return
    model = rebuilt(data["config"])
    fill(model)
    found = outputs(model)
    assert len(found) == len(data["outputs"])
    for value, expected in zip(found, data["outputs"]):
        np.testing.assert_allclose(value, expected, atol=2e-3 if name.startswith("mixed") else 2e-6)


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("mixed")])
def test_policies_of_layers(name):
    """The first layer computes in float16 and keeps float32 weights, wherever a configuration can say so."""
    if not KEEPS_POLICIES:
        pytest.skip("no configuration can say so")
    first, second = rebuilt(read(name)["config"]).layers[-2:]
    hidden = first(np.ones((1, 3), "float32"))
    seen = [str(each.dtype) for each in (first.weights[0], hidden, second(hidden))]
    assert ["float16" in each for each in seen] == [False, True, False]


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith(("dense", "images"))])
def test_a_translated_model_trains(name):
    """In fit, from Keras's own loss."""
    model = rebuilt(read(name)["config"])
    fill(model)
    model.compile("sgd", "mse")
    before = [weight.copy() for weight in model.get_weights()]
    given = inputs(model)
    model.fit(given, np.ones(outputs(model)[0].shape, "float32"), verbose=0)
    assert any((old != new).any() for old, new in zip(before, model.get_weights()))


def test_a_layer_of_one_s_own():
    """Given in custom_objects, it gets the arguments that the file has."""

    class Doubling(tf.keras.layers.Layer):
        def __init__(self, times=1.0, **options):
            super().__init__(**options)
            self.times = times

        def call(self, values):
            return values * self.times

    entry = {"class_name": "Doubling", "config": {"name": "twice", "times": 2.0}}
    input_config = {"batch_input_shape": [None, 3], "dtype": "float32", "sparse": False, "name": "x"}
    layers = [{"class_name": "InputLayer", "config": input_config}, entry]
    config = {"class_name": "Sequential", "config": {"name": "own", "layers": layers}}
    model = rebuilt(config, {"Doubling": Doubling})
    np.testing.assert_array_equal(np.asarray(model(np.ones((1, 3), "float32"))), [[2.0, 2.0, 2.0]])
    with pytest.raises(TranslationError, match="no layer 'Doubling'.*custom_objects"):
        rebuilt(config)


def test_an_error_names_the_layer_that_keras_cannot_rebuild(tmp_path):
    """The error of Keras need not name it."""
    layers = tf.keras.layers

    class Scaling(layers.Layer):
        def call(self, values):
            return values * 2.0

    class NotRebuilt(Scaling):
        def __init__(self, **options):
            raise KeyError("start")

    inputs = tf.keras.Input((3,), name="x")
    values = Scaling(name="middle")(layers.Dense(2, name="before")(inputs))
    model = tf.keras.Model(inputs, layers.Dense(1, name="after")(values))
    model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
    path = str(tmp_path / "model.h5")
    scalekeeper.save_model(model, path, probe=False)
    with pytest.raises(scalekeeper.UnreadableFileError, match=r"cannot rebuild the layer 'middle' and raises \w+Error"):
        scalekeeper.load_model(path, custom_objects={"Scaling": NotRebuilt})
