"""A saved model has a probe, and a loaded model that computes something else is refused."""

import json
import os
import random
import zipfile

import h5py
import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper.serialization import formats, probe
from scalekeeper_test_support.installed_keras import IS_KERAS_3, MODEL_SUFFIXES

pytestmark = pytest.mark.slow(is_divided=True)

layers = tf.keras.layers
SUFFIXES = [".h5", *(each for each in MODEL_SUFFIXES if each != ".h5")]


def numbered(model):
    """Give each weight other values."""
    rng = np.random.RandomState(5)
    for weight in model.weights:
        weight.assign(rng.uniform(0.1, 1, tuple(weight.shape)).astype("float32"))
    return model


def dense():
    inputs = tf.keras.Input((4,), name="inputs")
    hidden = layers.Dense(4, activation="tanh", name="first")(inputs)
    hidden = layers.BatchNormalization(name="normalized")(hidden)
    hidden = layers.Dense(4, activation="tanh", name="second")(layers.Dropout(0.5, name="dropout")(hidden))
    return numbered(tf.keras.Model(inputs, layers.Dense(2, name="last")(hidden)))


def compiled(model):
    model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.Adam(1e-2), "dynamic"), "mse")
    (inputs,), (outputs,) = model.inputs, model.outputs
    model.train_on_batch(np.ones((2, *inputs.shape[1:]), "float32"), np.ones((2, *outputs.shape[1:]), "float32"))
    return model


class Noise(layers.Layer):
    """Random in inference mode too."""

    def call(self, inputs):
        return inputs + tf.random.normal(tf.shape(inputs))


class Counting(layers.Layer):
    """Changes a variable at each call."""

    def build(self, shape):
        self.calls = self.add_weight(name="calls", shape=(), initializer="zeros", trainable=False)

    def call(self, inputs):
        self.calls.assign_add(1.0)
        return inputs * 1.0


class TwoHeads(tf.keras.Model):
    """A subclassed model with a dict of inputs; its call has no argument training."""

    def __init__(self, **options):
        super().__init__(**options)
        self.left, self.right = layers.Dense(2), layers.Dense(3)

    def call(self, inputs):
        return {"left": self.left(inputs["a"]), "right": self.right(inputs["b"])}


def two_heads():
    model = TwoHeads()
    data = {"a": np.ones((4, 3), "float32"), "b": np.ones((4, 2), "float32")}
    model.compile("sgd", "mse")
    if IS_KERAS_3 or not hasattr(model, "_set_inputs"):
        model(data)
    else:
        model.predict(data)  # up to 2.3, only this tells the model its inputs
    return model


def tokens():
    words = tf.keras.Input((5,), dtype="int32", name="words")
    scores = tf.keras.Input((3,), name="scores")
    embedded = layers.Flatten()(layers.Embedding(3, 2, name="embedding")(words))
    return tf.keras.Model([words, scores], layers.Dense(2)(layers.Concatenate()([embedded, scores])))


def images():
    inputs = tf.keras.Input((None, None, 3))
    hidden = layers.MaxPool2D(4)(layers.Conv2D(2, 3, strides=2, name="convolution")(inputs))
    return tf.keras.Model(inputs, layers.GlobalAveragePooling2D()(hidden))


def shared():
    inputs = tf.keras.Input((4,))
    layer = layers.Dense(4, name="shared")
    return tf.keras.Model(inputs, layer(layer(inputs)))


def floats_as_indices():
    inputs = tf.keras.Input((5,))
    return tf.keras.Model(inputs, layers.LSTM(3)(layers.Embedding(7, 2)(inputs)))


CASES = {
    "dense": (dense, [[4, 4]], ["first", "normalized", "dropout", "second", "last"]),
    "tokens": (tokens, [[2, 5], [2, 3]], ["embedding", "flatten", "concatenate", "dense"]),
    "images": (images, [[2, 32, 32, 3]], ["convolution", "max_pooling2d", "global_average_pooling2d"]),
    "shared": (shared, [[4, 4]], ["shared", "shared'"]),
    "floats as indices": (floats_as_indices, [[2, 5]], ["embedding", "lstm"]),
    "two heads": (two_heads, None, []),
}


def without_number(name):
    return name.rstrip("0123456789").rstrip("_") if name != "max_pooling2d" else name


@pytest.mark.parametrize("name", CASES)
def test_a_probe_describes_inputs_outputs_and_layers(name):
    """Shapes are small and valid, indices are within the smallest Embedding, all is a small JSON text."""
    build, shapes, names = CASES[name]
    found = json.loads(json.dumps(probe.probe_of(build())))
    assert "none" not in found
    assert shapes in (None, [each["shape"] for each in found["inputs"]])
    assert [without_number(each) for each, _ in found["layers"]] == list(map(without_number, names))
    assert all(each["digest"][1] > 0 for each in found["outputs"])
    assert len(json.dumps(found)) < 2000
    if name == "tokens":
        assert [each.get("below") for each in found["inputs"]] == [3, None]
    if name == "floats as indices":
        assert [each.get("below") for each in found["inputs"]] == [7]
    if name == "two heads":
        assert found["structure"] == {"a": 0, "b": 1}
        assert [each["shape"][1] for each in found["outputs"]] == [2, 3]


def unbuilt():
    return tf.keras.Sequential([layers.Dense(1)])


def noisy():
    return tf.keras.Sequential([tf.keras.Input((3,)), layers.Dense(2), Noise(name="noise")])


def stateful():
    inputs = tf.keras.Input(batch_size=2, shape=(3, 4))
    return tf.keras.Model(inputs, layers.LSTM(2, stateful=True, name="memory")(inputs))


def failing():
    def fail(value):
        raise KeyError("no way")

    model = dense()
    model.call = fail
    for layer in model.layers:
        vars(layer)["call"] = fail
    return model


@pytest.mark.parametrize(
    ("build", "reason"),
    [(unbuilt, "not built"), (noisy, "noise"), (stateful, "memory"), (failing, "cannot be called")],
)
def test_a_model_without_a_probe_says_why(build, reason):
    """The file is written, and the reason stands in its record."""
    found = probe.probe_of(build())
    assert list(found) == ["none"]
    assert reason in found["none"]


def test_a_random_model_is_saved_and_loaded(tmp_path):
    """It has a reason instead of a probe, and nothing is compared."""
    path = str(tmp_path / "model.h5")
    scalekeeper.save_model(noisy(), path)
    assert "random" in formats.read(path).probe["none"]
    assert scalekeeper.load_model(path, {"Noise": Noise}).layers[-1].name == "noise"


def test_saving_changes_nothing(tmp_path):
    """Neither weights that a call changes, nor metrics, random states, names of later layers, or the optimizer."""
    inputs = tf.keras.Input((3,))
    model = compiled(tf.keras.Model(inputs, layers.Dense(1)(Counting()(inputs))))
    random_model = noisy()
    before = [value.copy() for value in model.get_weights()]
    state = model.optimizer.state_dict()
    nodes = [len(layer._inbound_nodes) for layer in model.layers]
    tf.random.set_seed(3)
    random.seed(3)
    np.random.seed(3)
    expected = [tf.random.normal([2]).numpy().tolist(), random.random(), np.random.rand()]
    tf.random.set_seed(3)
    random.seed(3)
    np.random.seed(3)
    scalekeeper.save_model(random_model, str(tmp_path / "noisy.h5"))  # its operations draw numbers
    scalekeeper.save_model(model, str(tmp_path / "model.h5"))
    assert formats.read(str(tmp_path / "model.h5")).probe["outputs"][0]["shape"] == [4, 1]
    assert [tf.random.normal([2]).numpy().tolist(), random.random(), np.random.rand()] == expected
    assert all(np.array_equal(one, other) for one, other in zip(before, model.get_weights()))
    assert json.dumps(model.optimizer.state_dict()["loss_scale"]) == json.dumps(state["loss_scale"])
    assert [len(layer._inbound_nodes) for layer in model.layers] == nodes


def damage(path, layer):
    """Reverse the rows of a kernel in a file."""

    def reverse(file):
        found = []
        file.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None)
        (name,) = [
            each for each in found if f"/{layer}/" in f"/{each}" and item_is_kernel(file[each]) and "optim" not in each
        ]
        file[name][...] = file[name][...][::-1]

    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        weights = path + ".weights"
        with open(weights, "wb") as stream:
            stream.write(members["model.weights.h5"])
        with h5py.File(weights, "a") as file:
            reverse(file)
        with open(weights, "rb") as stream:
            members["model.weights.h5"] = stream.read()
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
    else:
        with h5py.File(path, "a") as file:
            reverse(file)


def item_is_kernel(dataset):
    return dataset.shape == (4, 4)


def folder_of_layers(path, layer):
    """The name of a layer's group: in a .keras file, layers are numbered by class."""
    if not zipfile.is_zipfile(path):
        return layer
    return {"first": "dense", "second": "dense_1"}[layer]


@pytest.mark.parametrize("suffix", [each for each in SUFFIXES if each])
@pytest.mark.parametrize("is_compiled", [True, False], ids=["compiled", "bare"])
def test_a_model_that_differs_is_refused(tmp_path, suffix, is_compiled):
    """With the first layer that differs and by how much; probe=False loads it."""
    path = str(tmp_path / f"model{suffix}")
    model = compiled(dense()) if is_compiled else dense()
    scalekeeper.save_model(model, path)
    data = np.random.RandomState(0).rand(5, 4).astype("float32")
    assert np.allclose(scalekeeper.load_model(path)(data).numpy(), model(data).numpy())
    for layer in ("second", "first"):
        damage(path, folder_of_layers(path, layer))
        with pytest.raises(scalekeeper.ModelDiffersError) as caught:
            scalekeeper.load_model(path)
        assert caught.value.layer == layer
        assert caught.value.difference > 1e-3
        assert layer in str(caught.value)
    damaged = scalekeeper.load_model(path, probe=False)
    assert not np.allclose(damaged(data).numpy(), model(data).numpy())


def test_a_file_without_a_probe_loads(tmp_path):
    """So do files of earlier versions."""
    path = str(tmp_path / "model.h5")
    scalekeeper.save_model(compiled(dense()), path, probe=False)
    assert formats.read(path).probe is None
    assert scalekeeper.load_model(path).layers[1].name == "first"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_has_the_probe(tmp_path, suffix):
    """It is replayed where the file is loaded."""
    path = str(tmp_path / f"model{suffix}")
    model = dense()
    scalekeeper.save_model(compiled(model), path)
    assert formats.read(path).probe["layers"][0][0] == "first"
    assert scalekeeper.load_model(path).layers[1].name == "first"
    wrong = {**formats.read(path).probe}
    wrong["layers"] = [["first", [[7.0, 7.0, 0]]]]
    with pytest.raises(scalekeeper.ModelDiffersError):
        probe.require_same(model, wrong, path)


def test_conversion_keeps_and_replays_the_probe(tmp_path):
    """The model that is built and the file that is written are compared with the source's probe."""
    source, copy = str(tmp_path / "model.h5"), str(tmp_path / "copy.h5")
    scalekeeper.save_model(compiled(dense()), source)
    scalekeeper.convert(source, copy)
    assert formats.read(copy).probe == formats.read(source).probe
    damage(source, "second")
    with pytest.raises(scalekeeper.ModelDiffersError) as caught:
        scalekeeper.convert(source, str(tmp_path / "other.h5"))
    assert caught.value.layer == "second"
    assert not os.path.exists(tmp_path / "other.h5")
    scalekeeper.convert(source, str(tmp_path / "other.h5"), probe=False)
    assert os.path.exists(tmp_path / "other.h5")


def test_models_under_a_strategy_have_a_probe():
    """Inside its scope and outside, with the same numbers."""
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    with strategy.scope():
        model = dense()
        inside = probe.probe_of(model)
    assert inside == probe.probe_of(model)
    assert inside["layers"] == probe.probe_of(dense())["layers"]


def test_verify_compares_what_models_compute(tmp_path):
    """Two files of one model are equal, whatever their formats; a layer that computes something else is named."""
    one, other = str(tmp_path / "one.h5"), str(tmp_path / f"other{SUFFIXES[-1]}")
    model = compiled(dense())
    scalekeeper.save_model(model, other)
    scalekeeper.save_model(model, one)
    found = scalekeeper.verify(one, other)
    assert found.equal, str(found)
    assert found.compared["weight"] == 10
    assert found.compared["slot"] == 16
    assert found.compared["output"] == 1
    model.layers[-1].bias.assign([0.5, 0.25])
    scalekeeper.save_model(model, one)
    found = scalekeeper.verify(one, other)
    weight, output = found.differences
    assert (weight.kind, weight.name, output.kind) == ("weight", "last/bias", "output")
    # up to 2.1, a model from a SavedModel has no graph of layers
    assert output.name in ("of the layer 'last'", "the model")
    assert "last/bias" in str(found)
