"""Arguments of another type, in the wrong order or misspelt get an error that says what was given and what to call."""

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper import (
    ArgumentTypeError,
    LossScaleOptimizer,
    StateMismatchError,
    UnreadableFileError,
    WrongArgumentError,
)
from scalekeeper_test_support.installed_keras import IS_KERAS_3

PAIRS = r"apply_gradients expects one list of \(gradient, variable\) pairs, got "


@pytest.fixture
def optimizer():
    return LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), 1.0)


@pytest.fixture(scope="module")
def model():
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    model.compile(LossScaleOptimizer(tf.keras.optimizers.SGD(1.0)), "mse")
    return model


@pytest.mark.parametrize("is_traced", [False, True], ids=["eager", "traced"])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda grad, variable: ([(variable, grad)],), r"\(variable, gradient\) pairs"),
        (lambda grad, variable: ([(grad, grad)],), "an? [A-Za-z]*Tensor in the place of a variable"),
        (lambda grad, variable: ([(grad, None)],), "None in the place of a variable"),
        (lambda grad, variable: ([(grad, np.ones(2))],), "an ndarray in the place of a variable"),
        (lambda grad, variable: ([grad], [variable]), "two arguments"),
        (lambda grad, variable: (3,), "3"),
    ],
)
def test_pairs_that_are_none(optimizer, make, words, is_traced):
    """The error says what was given instead, and nothing is remembered: the right call works afterwards."""
    variable = tf.Variable([1.0, 2.0])

    def step(grad):
        optimizer.apply_gradients(*make(grad, variable))

    with pytest.raises(WrongArgumentError, match=f"{PAIRS}{words}: write zip"):
        (tf.function(step) if is_traced else step)(tf.ones([2]))
    optimizer.apply_gradients([(tf.ones([2]), variable)])
    assert variable.numpy().tolist() == [0.0, 1.0]


@pytest.mark.parametrize("given", [None, ["x"], [(1.0, 2.0)], {"a": 1.0}])
def test_gradients_that_are_none(optimizer, given):
    """``get_unscaled_gradients`` takes a list of gradients, and neither pairs nor text."""
    with pytest.raises(WrongArgumentError, match="get_unscaled_gradients expects a list of gradients, got "):
        optimizer.get_unscaled_gradients(given)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda optimizer: optimizer.get_scaled_loss(None), "does the function that computes it return it"),
        (lambda optimizer: optimizer.raise_if_stuck("3"), "raise_if_stuck expects a number of skipped steps, got '3'"),
        (lambda optimizer: optimizer.set_weights(None), "set_weights expects a list that get_weights ret"),
        (lambda optimizer: LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), watch=3), "watch expects a list of names"),
    ],
)
def test_a_method_names_what_it_expects(optimizer, call, words):
    """The message has the method, what it expects, and what it got."""
    with pytest.raises(WrongArgumentError, match=words):
        call(optimizer)


def test_one_name_to_watch_is_enough():
    """A name is not taken apart into letters."""
    assert LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), watch="zero_share").telemetry.zero_share is not None


def test_an_integer_of_numpy_is_an_integer():
    """Counts may come from NumPy."""
    policy = scalekeeper.DynamicLossScale(increment_period=np.int64(7))
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), policy, stop_after_skips=np.int32(3))
    assert policy.get_config()["increment_period"] == 7
    assert optimizer.get_config()["stop_after_skips"] == 3


def test_an_optimizer_is_not_a_policy(optimizer):
    """Two optimizers in place of an optimizer and a policy get a hint, and not only the list of names."""
    with pytest.raises(scalekeeper.InvalidSpecTypeError, match="optimizer.loss_scale is the policy of an optimizer"):
        LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), optimizer)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda model, path: scalekeeper.save_state(model, path), "got a Sequential model: call save_state"),
        (lambda model, path: scalekeeper.save_state(path, model), "save_state expects a scalekeeper.LossScale"),
        (lambda model, path: scalekeeper.save_state(LossScaleOptimizer, path), "got the class LossScaleOptimizer"),
        (lambda model, path: scalekeeper.save_state(tf.keras.optimizers.SGD(1.0), path), "got a SGD optimizer: call"),
        (lambda model, path: scalekeeper.save_state(model.optimizer, None), "save_state expects a path, got None"),
        (lambda model, path: scalekeeper.save_model(model.optimizer, path), "got a LossScaleOptimizer: call save_"),
        (lambda model, path: scalekeeper.save_model(path, model), "save_model expects a Keras model, got '"),
        (lambda model, path: scalekeeper.save_model(model, None), "save_model expects a path, got None"),
        (lambda model, path: scalekeeper.load_model(model), "load_model expects a path, got a Sequential model"),
        (lambda model, path: scalekeeper.load_model(path, [tf.keras.Model]), "call load_model.path, custom_objects="),
        (lambda model, path: scalekeeper.restore(path, model), "restore expects a built Keras model, got '"),
        (lambda model, path: scalekeeper.restore(model.optimizer, path), "give the model that is compiled with it"),
        (lambda model, path: scalekeeper.restore(tf.keras.Model, path), "got the class Model"),
        (lambda model, path: scalekeeper.restore(model, None), "restore expects a path, got None"),
        (lambda model, path: scalekeeper.restore(model, path, mapping=["a"]), "restore expects a mapping, got "),
        (lambda model, path: scalekeeper.inspect(model), "inspect expects a path, got a Sequential model"),
        (lambda model, path: scalekeeper.convert(model, path), "convert expects a path, got a Sequential model"),
        (lambda model, path: scalekeeper.verify(path, model), "verify expects a path, got a Sequential model"),
        (lambda model, path: scalekeeper.build(model.optimizer), "the path of a document or a mapping, got a Loss"),
    ],
)
def test_models_optimizers_and_paths_that_are_mixed_up(model, tmp_path, call, words):
    """The error names the argument that was given and the call that is meant; no file is written."""
    with pytest.raises(ArgumentTypeError, match=words):
        call(model, str(tmp_path / "file.h5"))
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_variables_is_to_be_built(tmp_path):
    """Nothing could be restored into it."""
    with pytest.raises(scalekeeper.ArgumentError, match="restore expects a built model, and this Seq"):
        scalekeeper.restore(tf.keras.Sequential([tf.keras.layers.Dense(1)]), tmp_path)


def restore_small_model(path):
    scalekeeper.restore(tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)]), path)


@pytest.mark.parametrize("call", [scalekeeper.load_model, scalekeeper.inspect, restore_small_model])
def test_a_file_of_another_kind_is_called_that(tmp_path, call):
    """A text file and an empty one do not hold a model that could be restored from them."""
    for text, words in (("hello", "notes.txt: a text file; expected one of: H5 file"), ("", "the file is empty")):
        (tmp_path / "notes.txt").write_text(text)
        with pytest.raises(UnreadableFileError, match=words):
            call(str(tmp_path / "notes.txt"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, r"expected what state_dict\(\) or read_state\(path\) returned, got {}, which has no 'version'"),
        ({"param_groups": []}, "which has no 'version'"),
        ({"version": "1"}, "version: '1' is not 1: expected the number 1"),
        ({"version": 2}, "version: 2 is not 1: a newer scalekeeper wrote it"),
        ("state.npz", "expected what state_dict"),
    ],
)
def test_a_state_of_another_kind_is_not_called_new(optimizer, given, words):
    """Only a higher version is that of a newer scalekeeper."""
    with pytest.raises(StateMismatchError, match=words):
        optimizer.load_state_dict(given)


class Twice(tf.keras.layers.Layer):
    """A layer that only this module knows."""

    def call(self, inputs):
        return inputs * 2


class Bare(Twice):
    """A layer of a script, without dtype and trainable in its configuration: Keras 3 writes its class name alone."""

    __module__ = "__main__"

    def get_config(self):
        return {"name": self.name}


def triple(inputs):
    return inputs * 3


@pytest.mark.parametrize(
    "make", [Twice, Bare, lambda: tf.keras.layers.Dense(1, activation=triple)], ids=["class", "bare class", "def"]
)
def test_a_missing_class_or_function_names_custom_objects(tmp_path, make):
    """A model with the user's own layer or activation says how to pass it, and loads with it."""
    inputs = tf.keras.Input((2,))
    model = tf.keras.Model(inputs, make()(inputs))
    model.compile(LossScaleOptimizer(tf.keras.optimizers.SGD(1.0)), "mse")
    path = str(tmp_path / ("model.keras" if IS_KERAS_3 else "model.h5"))
    scalekeeper.save_model(model, path)
    with pytest.raises(UnreadableFileError, match="own (class|function), pass it in custom_objects"):
        scalekeeper.load_model(path)
    loaded = scalekeeper.load_model(path, {"Twice": Twice, "Bare": Bare, "triple": triple})
    np.testing.assert_array_equal(loaded(np.ones((1, 2), "float32")), model(np.ones((1, 2), "float32")))
