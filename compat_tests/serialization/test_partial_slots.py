"""load_model of files that have slots for some variables and not for others."""

import re
import warnings

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper import LossScaleOptimizer
from scalekeeper_test_support.installed_keras import IS_KERAS_3, MODEL_SUFFIXES
from scalekeeper_test_support.unique_numbers import dense_model, fill, slots_of, train

pytestmark = [
    pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of NumPy, about Keras 3's own variables
]
KERAS_FILE = ".keras" if IS_KERAS_3 else ".h5"


def partly_trained(optimizer):
    """Return a model of which a loop has trained the layers a and c."""
    model = dense_model()
    model.compile(optimizer, "mse")
    trained = [*model.get_layer("a").weights, *model.get_layer("c").weights]
    train(model, trained)
    fill(model)
    return model


def test_slots_for_some_variables_are_an_error(tmp_path):
    """A file of plain Keras with the slots of some variables does not load in silence, or with a warning only."""
    model = partly_trained(tf.keras.optimizers.Adam(0.25))
    path = tmp_path / f"m{KERAS_FILE}"
    model.save(str(path))
    with pytest.raises(scalekeeper.IncompleteRestoreError) as caught:
        scalekeeper.load_model(path)
    missing = {re.sub(r"_\d+/", "/", name) for name in caught.value.report.missing}  # up to 2.2, names have numbers
    assert {"b/kernel: m", "b/bias: v"} <= missing
    assert "allow_partial=True" in str(caught.value)


def test_a_part_is_loaded_on_request(tmp_path):
    """With allow_partial, the weights and iterations are there."""
    model = partly_trained(tf.keras.optimizers.Adam(0.25))
    path = tmp_path / f"m{KERAS_FILE}"
    model.save(str(path))
    loaded = scalekeeper.load_model(path, allow_partial=True)
    for one, other in zip(model.weights, loaded.weights):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert int(loaded.optimizer.iterations.numpy()) == 2


@pytest.mark.parametrize("suffix", sorted(MODEL_SUFFIXES))
def test_variables_that_never_had_slots_load_with_a_warning(suffix, tmp_path):
    """A file of save_model has all slots that there were: the others are new, and the warning names them."""
    model = partly_trained(LossScaleOptimizer(tf.keras.optimizers.Adam(0.25), "dynamic"))
    path = tmp_path / f"m{suffix}"
    scalekeeper.save_model(model, path)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        loaded = scalekeeper.load_model(path)
    messages = [str(each.message) for each in told if each.category is scalekeeper.IncompleteRestoreWarning]
    assert any(re.search(r"\bb(_\d+)?/kernel", message) for message in messages)
    expected, found = slots_of(model), slots_of(loaded)
    assert sorted(expected) == ["a/bias", "a/kernel", "c/bias", "c/kernel"]
    assert {name: found[name] for name in expected} == expected
    assert not np.any(list(found["b/bias"].values()))


def test_a_file_without_any_slots_loads(tmp_path):
    """An optimizer that has not taken a step may have no slots; its file loads, with a warning at most."""
    model = dense_model()
    model.compile(LossScaleOptimizer(tf.keras.optimizers.Adam(0.25), "dynamic"), "mse")
    scalekeeper.save_model(model, tmp_path / f"m{KERAS_FILE}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scalekeeper.IncompleteRestoreWarning)
        loaded = scalekeeper.load_model(tmp_path / f"m{KERAS_FILE}")
    assert int(loaded.optimizer.iterations.numpy()) == 0
