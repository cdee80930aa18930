"""Layers beside each other that Keras has numbered: their connections tell which is which, or restore refuses."""

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper.registry.errors import IncompleteRestoreError, NothingRestoredError
from scalekeeper_test_support.installed_keras import IS_KERAS_3, WRITES_KERAS_FILES

FORMATS = ["h5", "checkpoint", *(["keras"] if WRITES_KERAS_FILES else []), *([] if IS_KERAS_3 else ["saved_model"])]
INPUTS = [np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3), np.linspace(2, 1, 12, dtype=np.float32).reshape(4, 3)]


def dense():
    return tf.keras.layers.Dense(3)


def nested():
    inputs = tf.keras.Input((3,))
    return tf.keras.Model(inputs, tf.keras.layers.Dense(3)(inputs))


def trained(make, is_user_first, policy="dynamic", names=("user", "item")):
    """Return a model of two inputs and its two layers; the order in which they are made is the order of all calls."""
    tf.keras.backend.clear_session()
    inputs = dict(zip(("user", "item"), [tf.keras.Input((3,), name=name) for name in names]))
    order = ("user", "item") if is_user_first else ("item", "user")
    layers = {name: make() for name in order}
    outputs = [layers[name](inputs[name]) for name in order]
    model = tf.keras.Model([inputs["user"], inputs["item"]], tf.keras.layers.Add()(outputs))
    optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.5)
    optimizer = optimizer if policy is None else scalekeeper.LossScaleOptimizer(optimizer, policy)
    model.compile(optimizer, tf.keras.losses.MeanSquaredError())
    model.fit(INPUTS, np.ones((4, 3), np.float32), verbose=0)
    return model, layers


def save(model, form, folder):
    if form == "checkpoint":
        return tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(folder / "c"))
    path = str(folder / {"h5": "m.h5", "keras": "m.keras", "saved_model": "m"}[form])
    scalekeeper.save_model(model, path, probe=False)
    return path


def numbers_of(model, layers):
    slots = model.optimizer.state_dict()["slots"]
    owners = {id(variable): owner for owner, variable in zip(slots, model.trainable_variables)}
    return {
        name: [
            (variable.numpy().tolist(), np.asarray(slots[owners[id(variable)]]["momentum"]).tolist())
            for variable in layer.trainable_variables
        ]
        for name, layer in layers.items()
    }


@pytest.mark.parametrize("make", [dense, nested])
@pytest.mark.parametrize("form", FORMATS)
def test_each_input_keeps_its_layer(form, make, tmp_path):
    """A program that makes and calls the layers in another order gets weights and slots by the inputs' names."""
    model, layers = trained(make, True)
    path = save(model, form, tmp_path)
    for is_user_first in (True, False):
        other, others = trained(make, is_user_first)
        report = scalekeeper.restore(other, path)
        assert numbers_of(other, others) == numbers_of(model, layers)
        assert (report.complete, set(report.rules.values())) == (True, {"structure"})


def test_inputs_without_chosen_names(tmp_path):
    """The first input of the file is the first one of the model."""
    model, layers = trained(dense, True, names=(None, None))
    path = save(model, "h5", tmp_path)
    other, others = trained(dense, False, names=(None, None))
    assert scalekeeper.restore(other, path).complete
    assert numbers_of(other, others) == numbers_of(model, layers)


@pytest.mark.parametrize("make", [dense, nested])
@pytest.mark.parametrize("form", ["checkpoint", "npz"])
def test_a_file_without_connections_is_refused(form, make, tmp_path):
    """Nothing in it tells which layer was whose; the caller can say it, for a checkpoint."""
    model, layers = trained(make, True, None if form == "checkpoint" else "dynamic")
    other, others = trained(make, False, None if form == "checkpoint" else "dynamic")
    before = [each.numpy().tolist() for each in other.weights]
    path = str(tmp_path / "state.npz")
    if form == "checkpoint":
        path = save(model, form, tmp_path)
    else:
        scalekeeper.save_state(model.optimizer, path)
    with pytest.raises((IncompleteRestoreError, NothingRestoredError), match="connected"):
        scalekeeper.restore(other, path)
    assert [each.numpy().tolist() for each in other.weights] == before
    if form == "checkpoint" and make is dense:
        mapping = {layers[name].name: others[name] for name in layers}
        assert scalekeeper.restore(other, path, mapping=mapping).complete
        assert [each.numpy().tolist() for each in others["user"].weights] == [
            each.numpy().tolist() for each in layers["user"].weights
        ]
