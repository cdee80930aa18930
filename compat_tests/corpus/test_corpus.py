"""Models of every Keras, one for each kind of layer and many of several layers, compute the same here or are refused.

The data of a producer is all of its files but the weights, which are made here again; see produce.py. Each kind is read
from one producer and in one format, which change from kind to kind; all files are read if SCALEKEEPER_WHOLE is set.
"""

import os

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper_test_support.repository import load_script

consume = load_script("compat_tests/corpus/consume.py")

READS_ALL = "SCALEKEEPER_WHOLE" in os.environ
PRODUCERS = consume.producers()
RESULTS = consume.results_of(consume.consumer())
IS_KERAS_3 = hasattr(tf.keras, "Operation")


def part(producer):
    """Return the names of the files of a producer that are read."""
    names = sorted({name for each in PRODUCERS for name in consume.data_of(each)["kinds"]})
    kinds = consume.data_of(producer)["kinds"]
    whole = [name + ending for name in kinds for ending in consume.endings() if ending in kinds[name]["files"]]
    if READS_ALL:
        return whole
    others = [each for each in PRODUCERS if each != consume.consumer()]
    chosen = {
        name + consume.endings()[index // len(others) % len(consume.endings())]
        for index, name in enumerate(names)
        if others[index % len(others)] == producer and not name.startswith("application")
    }
    return [name for name in whole if name in chosen]


@pytest.mark.parametrize("producer", PRODUCERS)
def test_models_compute_the_same_or_are_refused_by_name(producer, tmp_path):
    """No variable is random, no output differs, no warning comes; what is refused is what the results list."""
    data = consume.data_of(producer)
    grades, bad = {}, {}
    for index, file in enumerate(part(producer)):
        name, ending = os.path.splitext(file)
        path = consume.write(data, name, ending, str(tmp_path), has_loss_scale=index % 2 == 0)
        outcome = consume.classify(data["kinds"][name], path, scalekeeper.load_model)
        grades[file] = outcome.grade
        if outcome.grade not in (consume.RIGHT, consume.REFUSED):
            bad[file] = outcome
    assert not bad
    recorded = (RESULTS or {}).get(producer, {}).get("scalekeeper")
    if recorded is not None:  # 2.1 and 2.2 have no results
        refused = recorded["refused by name"]
        assert {file for file, grade in grades.items() if grade == consume.REFUSED} == {*refused} & {*grades}


@pytest.mark.parametrize("producer", ["tf215", "keras3"])
def test_a_loss_keeps_its_arguments(producer, tmp_path):
    """Keras 2's reduction "auto" means the mean over the batch; Keras 3 has no such name."""
    data = consume.data_of(producer)
    outlined = data["kinds"]["dense"]["files"][".h5"]
    ((kind, training),) = outlined["h5"]["attributes"]["training_config"].items()
    reduction = "sum_over_batch_size" if producer == "keras3" else "auto"
    loss = {"class_name": "Huber", "config": {"name": "huber_loss", "reduction": reduction, "delta": 0.7}}
    outlined["h5"]["attributes"]["training_config"] = {kind: {**training, "loss": loss}}
    path = consume.write(data, "dense", ".h5", str(tmp_path))
    model = scalekeeper.load_model(path)
    found = float(model.loss(np.zeros((2, 2), "float32"), np.array([[0.1, 0.2], [3.0, 0.0]], "float32")))
    expected = (0.5 * 0.1**2 + 0.5 * 0.2**2 + 0.7 * (3.0 - 0.35)) / 4
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("producer", ["tf215", "keras3"])
def test_a_bare_optimizer_stays_bare(producer, tmp_path):
    """A file without a loss scale has its optimizer, and nothing around it."""
    data = consume.data_of(producer)
    model = scalekeeper.load_model(consume.write(data, "model_residual", ".h5", str(tmp_path)))
    assert type(model.optimizer).__name__ == "SGD"
    np.testing.assert_allclose(float(tf.keras.backend.get_value(model.optimizer.learning_rate)), 0.01, rtol=1e-6)


@pytest.mark.parametrize("name", ["depthwise_conv2d", "conv_lstm2d", "model_nested", "model_residual"])
def test_converted_models_compute_the_same(name, tmp_path):
    """A file that convert makes for the installed TensorFlow from one of the other Keras generation."""
    data = consume.data_of("tf215" if IS_KERAS_3 else "keras3")
    kind = data["kinds"][name]
    source = consume.write(data, name, ".h5", str(tmp_path), has_loss_scale=True)
    target = str(tmp_path / "converted.h5")
    scalekeeper.convert(source, target, allow_loss=True)
    assert consume.classify(kind, target, scalekeeper.load_model) == (consume.RIGHT, "")


@pytest.mark.skipif(not IS_KERAS_3, reason="Keras 2 has its own definition")
def test_hard_sigmoid_of_keras_2_can_be_saved_again(tmp_path):
    """A translated model keeps Keras 2's definition of the activation in a file of Keras 3."""
    data = consume.data_of("tf215")
    kind = data["kinds"]["conv_lstm2d"]
    model = scalekeeper.load_model(consume.write(data, "conv_lstm2d", ".h5", str(tmp_path)))
    again = str(tmp_path / "again.keras")
    model.save(again)
    assert consume.classify(kind, again, lambda path: scalekeeper.load_model(path)) == (consume.RIGHT, "")


@pytest.mark.skipif(not IS_KERAS_3, reason="they are layers of Keras 2")
def test_operations_can_be_saved_again(tmp_path):
    """Operations on tensors of a Keras 2 model become operations that Keras 3 saves and loads by itself."""
    data = consume.data_of("tf215")
    for name in ("operation_arithmetic", "operation_slice_steps", "operation_matmul", "operation_reduce_sum"):
        model = scalekeeper.load_model(consume.write(data, name, ".h5", str(tmp_path)))
        again = str(tmp_path / f"{name}.keras")
        model.save(again)
        assert consume.classify(data["kinds"][name], again, tf.keras.models.load_model) == (consume.RIGHT, ""), name


@pytest.mark.skipif(not IS_KERAS_3, reason="Keras 2 has these layers")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("locally_connected1d", ("'LocallyConnected1D'", "'locally_connected1d'")),
        ("lambda", ("'lambda'", "Lambda")),
        ("operation_shape", ("'tf.compat.v1.shape'", "'compat.v1.shape'")),
    ],
)
def test_a_refusal_names_the_layer(name, words, tmp_path):
    """The error has the name and the class of the layer, and says what to do."""
    data = consume.data_of("tf215")
    path = consume.write(data, name, ".h5", str(tmp_path))
    with pytest.raises(scalekeeper.UnreadableFileError) as raised:
        scalekeeper.load_model(path)
    assert all(word in str(raised.value) for word in (*words, "scalekeeper.restore(model, path)"))
