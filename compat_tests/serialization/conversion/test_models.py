"""Models with many kinds of layers, converted for the installed Keras, without this package: the same predictions."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper.optimizer._state.state_transfer import give_state
from scalekeeper_test_support import script_runner
from scalekeeper_test_support.installed_keras import HAS_NEW_OPTIMIZERS, IS_KERAS_3, MODEL_SUFFIXES, OPTIMIZERS

HERE = os.path.dirname(os.path.abspath(__file__))
layers = tf.keras.layers
SUFFIXES = [".h5", *([".keras"] if ".keras" in MODEL_SUFFIXES else [])]


def dense():
    """A Sequential model, with what is not trained."""
    return tf.keras.Sequential(
        [
            tf.keras.Input(shape=(3,)),
            layers.Dense(4, activation="relu", kernel_regularizer="l2"),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.Dense(1),
        ]
    )


def recurrent():
    """Layers in layers, and a model in a model."""
    inputs = tf.keras.Input(shape=(4, 3))
    hidden = layers.Bidirectional(layers.LSTM(2, return_sequences=True))(inputs)
    hidden = layers.TimeDistributed(layers.Dense(3))(hidden)
    hidden = layers.GRU(3)(hidden)
    inner = tf.keras.Sequential([tf.keras.Input(shape=(3,)), layers.Dense(3), layers.LayerNormalization()])
    return tf.keras.Model(inputs, layers.Dense(1)(layers.add([inner(hidden), hidden])))


def images():
    """Convolutions and an attention, where there is one."""
    inputs = tf.keras.Input(shape=(6, 6, 2))
    hidden = layers.Conv2D(4, 3, activation="tanh")(inputs)
    hidden = layers.Reshape((4, 16))(layers.MaxPooling2D(1)(hidden))
    if hasattr(layers, "MultiHeadAttention"):
        hidden = layers.MultiHeadAttention(2, 3)(hidden, hidden)
    return tf.keras.Model(inputs, layers.Dense(1)(layers.Flatten()(hidden)))


def trained(make):
    tf.keras.utils.set_random_seed(7) if hasattr(tf.keras.utils, "set_random_seed") else tf.random.set_seed(7)
    model = make()
    optimizer = scalekeeper.LossScaleOptimizer(
        tf.keras.optimizers.Adam(0.01), {"name": "dynamic", "increment_period": 2}
    )
    model.compile(optimizer=optimizer, loss=tf.keras.losses.MeanSquaredError(), metrics=["mae"])
    inputs = example(model)
    model.fit(inputs, np.ones((4, 1), np.float32), epochs=3, verbose=0)
    return model


def example(model):
    return np.random.RandomState(1).rand(4, *model.inputs[0].shape[1:]).astype(np.float32)


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """Name and ending → what plain Keras made of the converted file, and what the model said before."""
    folder = tmp_path_factory.mktemp("models")
    expected = {}
    for make in (dense, recurrent, images):
        model = trained(make)
        source = str(folder / (make.__name__ + (".keras" if IS_KERAS_3 else ".h5")))
        scalekeeper.save_model(model, source)
        for suffix in SUFFIXES:
            path = str(folder / f"{make.__name__}-converted{suffix}")
            scalekeeper.convert(source, path, "plain", allow_loss=True)
            np.save(path + ".inputs.npy", example(model))
            expected[path] = model.predict(example(model), verbose=0).tolist()
    printed = script_runner.run(os.path.join(HERE, "plain_models.py"), *expected)
    found = json.loads(printed.splitlines()[-1])
    return {os.path.basename(path): (expected[path], found[path]) for path in expected}


@pytest.mark.long
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("make", [dense, recurrent, images], ids=lambda make: make.__name__)
def test_plain_keras_reads_it(make, suffix, read):
    """The same predictions; it is compiled as it was, and can be trained on."""
    expected, (before, iterations, history) = read[f"{make.__name__}-converted{suffix}"]
    np.testing.assert_allclose(before, expected, rtol=1e-6)
    if IS_KERAS_3 and suffix == ".h5":
        assert history == {}
        return
    metrics = [value for name, value in history.items() if "mae" in name or "mean_absolute_error" in name]
    assert np.isfinite([history["loss"], *metrics]).all()
    assert len(metrics) == 1
    is_legacy_h5 = suffix == ".h5" and not HAS_NEW_OPTIMIZERS
    assert iterations == (3 if is_legacy_h5 or suffix == ".keras" else 0)


class Doubled(layers.Layer):
    """A custom layer."""

    def call(self, inputs):
        return inputs * 2


def test_a_layer_of_ones_own(tmp_path):
    """With it, the model is converted; without it, the message says what to do."""
    inputs = tf.keras.Input(shape=(2,))
    model = tf.keras.Model(inputs, layers.Dense(1)(Doubled(name="doubled")(inputs)))
    model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1, momentum=0.5), 8.0), loss="mse")
    model.fit(example(model), np.ones((4, 1), np.float32), verbose=0)
    source = str(tmp_path / ("model.keras" if IS_KERAS_3 else "model.h5"))
    scalekeeper.save_model(model, source)
    with pytest.raises(scalekeeper.TranslationError, match="has no layer 'Doubled'.*custom_objects"):
        scalekeeper.convert(source, tmp_path / "new.h5")
    scalekeeper.convert(source, tmp_path / "new.h5", custom_objects={"Doubled": Doubled})
    again = scalekeeper.load_model(str(tmp_path / "new.h5"), custom_objects={"Doubled": Doubled})
    np.testing.assert_array_equal(again.predict(example(model)), model.predict(example(model)))
    assert int(again.optimizer.iterations) == 1


def test_a_long_configuration(tmp_path):
    """More than an attribute of an H5 file has room for in one piece."""
    inputs = hidden = tf.keras.Input(shape=(2,))
    for number in range(160):
        hidden = layers.Dense(2, name=f"layer_{number}", kernel_initializer="ones")(hidden)
    model = tf.keras.Model(inputs, hidden)
    model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1), 8.0), loss="mse")
    model.optimizer.iterations.assign(3)
    source = str(tmp_path / ("model.keras" if IS_KERAS_3 else "model.h5"))
    scalekeeper.save_model(model, source)
    scalekeeper.convert(source, tmp_path / "new.h5")
    found = scalekeeper.inspect(tmp_path / "new.h5")
    assert (len(found.variables), found.iterations) == (320, 3)
    assert len(tf.keras.models.load_model(str(tmp_path / "new.h5"), compile=False).layers) == 161


def optimizers():
    """All that have slots of their own, with what gives them more; of each kind that there is."""
    for kind, module in OPTIMIZERS.items():
        for name, arguments in (
            ("SGD", {"momentum": 0.5}),
            ("Adam", {}),
            ("Adam", {"amsgrad": True}),
            ("RMSprop", {"momentum": 0.5, "centered": True}),
            *((name, {}) for name in ("Adagrad", "Adadelta", "Adamax", "Nadam", "Ftrl")),
        ):
            yield pytest.param(module, name, arguments, id=f"{kind} {name} {arguments or ''}".strip())


@pytest.mark.parametrize(("module", "name", "arguments"), list(optimizers()))
def test_the_order_of_slots_is_the_optimizers_own(module, name, arguments):
    """As its list of variables has them."""
    model = dense()
    optimizer = scalekeeper.LossScaleOptimizer(getattr(module, name)(**arguments))
    model.compile(optimizer=optimizer, loss="mse")
    model.fit(example(model), np.ones((4, 1), np.float32), verbose=0)
    contents = give_state(optimizer)
    variables = optimizer.inner_optimizer.variables
    weights = variables() if callable(variables) else variables
    slots = [each.numpy() for each in weights if tuple(each.shape) != ()]
    places = optimizer._profile.ordered_slots(contents.slots, name, list(contents.owners))
    assert len(places) == len(slots)
    for (owner, slot), value in zip(places, slots):
        np.testing.assert_array_equal(contents.slots[owner][slot].read(), value)
