"""What the installed Keras writes, with TensorFlow's own class and with ours, is read back: each value in its place."""

from typing import NamedTuple

import os
import re

import numpy as np
import pytest
import tensorflow as tf

from scalekeeper import LossScaleOptimizer, UnreadableFileError
from scalekeeper.optimizer._keras.slotless_optimizers import slot_attributes
from scalekeeper.registry._documents import ADVANCE, HOLD
from scalekeeper.serialization.formats import checkpoint, h5, keras_zip, saved_model
from scalekeeper_test_support.installed_keras import (
    HAS_NEW_OPTIMIZERS,
    IS_KERAS_3,
    LISTS_VARIABLES,
    OPTIMIZERS,
    WRITES_KERAS_FILES,
    inner_of,
    number,
    state_of,
    upstream,
)

INNER = {
    "SGD": lambda kind: kind.SGD(0.125, momentum=0.5),
    "Adam": lambda kind: kind.Adam(0.125),
    "RMSprop": lambda kind: kind.RMSprop(0.125, momentum=0.5, centered=True),
}
SLOTS = {"SGD": {"momentum"}, "Adam": {"m", "v"}, "RMSprop": {"rms", "momentum", "mg"}}
DYNAMIC = {"initial_loss_scale": 1024.0, "increment_period": 3}
CASES = [(kind, inner, who) for kind in sorted(OPTIMIZERS) for inner in sorted(INNER) for who in ("upstream", "ours")]
TRAINED = ["d1/kernel", "d1/bias", "norm/gamma", "norm/beta", "d2/kernel", "d2/bias"]
OWNERS = TRAINED[:4] + ["norm/moving_mean", "norm/moving_variance"] + TRAINED[4:]
# where names are not in the file, variables are counted
NUMBERED = [f"{layer}/{place}" for layer, count in (("d1", 2), ("norm", 4), ("d2", 2)) for place in range(count)]


class Trained(NamedTuple):
    """A model that has taken four steps, so that nothing is at its initial value."""

    model: tf.keras.Model
    kind: str
    inner: str
    folder: str

    @property
    def is_legacy(self):
        return not (IS_KERAS_3 or (HAS_NEW_OPTIMIZERS and self.kind == "default"))


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def trained(request, tmp_path_factory):
    """Of each class, each kind of optimizer and each inner optimizer."""
    kind, inner, who = request.param
    tf.keras.backend.clear_session()
    dense, norm = tf.keras.layers.Dense, tf.keras.layers.BatchNormalization
    layers = [dense(4, name="d1", input_shape=(3,)), norm(name="norm"), dense(1, name="d2")]
    model = tf.keras.Sequential(layers, name="tiny")
    bare = INNER[inner](OPTIMIZERS[kind])
    ours = {"name": "dynamic", **DYNAMIC}
    model.compile(upstream(bare, DYNAMIC) if who == "upstream" else LossScaleOptimizer(bare, ours), "mse")
    numbers = np.random.RandomState(0)
    model.fit(numbers.randn(8, 3), numbers.randn(8, 1), batch_size=2, verbose=0, shuffle=False)
    return Trained(model, kind, inner, str(tmp_path_factory.mktemp("files")))


def save(trained, name, **options):
    """Save as Keras does. When Keras 3 writes H5 it takes the optimizer out of what the next file is to hold."""
    path = os.path.join(trained.folder, name)
    compiled = getattr(trained.model, "_compile_config", None)
    kept = dict(compiled.config) if hasattr(compiled, "config") else {}
    trained.model.save(path, **options)
    if kept:
        compiled.config.update(kept)
    return path


def without_model(owners):
    """Owner → the same without the model's name, which some versions put first."""
    return {owner: "/".join(owner.split("/")[-2:]) for owner in owners}


def expected_slots(trained):
    """Owner → slot → value, from the live optimizer."""
    inner = inner_of(trained.model.optimizer)
    variables = trained.model.trainable_weights
    if hasattr(inner, "get_slot"):
        slots = {name: [inner.get_slot(variable, name) for variable in variables] for name in inner.get_slot_names()}
    else:
        keys = inner._index_dict if hasattr(inner, "_index_dict") else inner._trainable_variables_indices
        attributes = slot_attributes(inner, keys)
        slots = {name: getattr(inner, attribute) for name, attribute in attributes.items()}
    return {
        owner: {name: values[place].numpy() for name, values in slots.items()} for place, owner in enumerate(TRAINED)
    }


def assert_variables(contents, trained, names=OWNERS):
    short = without_model(contents.variables)
    assert list(short.values()) == names
    for value, weight in zip(contents.variables.values(), trained.model.weights):
        np.testing.assert_array_equal(value.read(), weight.numpy())
        assert (value.shape, value.dtype) == (tuple(weight.shape), "float32")


def assert_slots(contents, trained):
    expected = expected_slots(trained)
    assert set(expected["d1/kernel"]) == SLOTS[trained.inner]
    short = without_model(contents.slots)
    assert sorted(short.values()) == sorted(TRAINED)
    for owner, slots in contents.slots.items():
        assert set(slots) == SLOTS[trained.inner]
        for name, value in slots.items():
            np.testing.assert_array_equal(value.read(), expected[short[owner]][name])


def assert_counters(contents, trained, has_scale):
    assert contents.iterations == number(inner_of(trained.model.optimizer).iterations) == 4
    assert contents.learning_rate == 0.125
    state = state_of(trained.model.optimizer)
    assert state == {"current_loss_scale": 2048.0, "good_steps": 1}
    has_record = contents.writer.scalekeeper is not None  # model.save adds it where Keras lets scalekeeper do so
    assert contents.loss_scale_state == (state if has_scale or has_record else {})
    assert contents.scalars == {}
    assert contents.notes == []


def assert_described(contents):
    assert contents.model_config["class_name"] == "Sequential"
    assert "mse" in str(contents.training_config["loss"])
    assert "LossScaleOptimizer" in contents.optimizer_config["class_name"]


def native_skipping():
    probe = LossScaleOptimizer(tf.keras.optimizers.SGD())
    return ADVANCE if probe._advances_natively else HOLD


def test_h5(trained):
    """A whole model; the scale is in Keras 3's files only, and slots are not in those of 2.10's experimental kind."""
    is_new = trained.kind == "default" and not isinstance(trained.model.optimizer, LossScaleOptimizer)
    if is_new and not LISTS_VARIABLES:
        pytest.skip("Keras 2.11 cannot save a model with its own class as H5")
    contents = h5.read(save(trained, "model.h5"))
    assert_variables(contents, trained)
    assert_slots(contents, trained)
    assert_counters(contents, trained, has_scale=IS_KERAS_3)
    assert_described(contents)
    assert contents.skipped_steps == native_skipping()


def test_weights_in_h5(trained):
    """A file of weights has no more than these, except for Keras 3's, where the optimizer is a list."""
    path = os.path.join(trained.folder, "only.weights.h5" if IS_KERAS_3 else "only.h5")
    trained.model.save_weights(path)
    contents = h5.read(path)
    if IS_KERAS_3:  # it names layers and counts variables, and gives no order of layers
        assert sorted(contents.variables) == sorted(NUMBERED)
        assert contents.iterations == 4
        assert contents.loss_scale_state == state_of(trained.model.optimizer)
    else:
        assert_variables(contents, trained)
    assert contents.model_config is None


@pytest.mark.skipif(IS_KERAS_3, reason="Keras 3 exports SavedModels, and does not keep the optimizer in them")
def test_saved_model(trained):
    """Everything is in it."""
    contents = saved_model.read(save(trained, "saved_model", save_format="tf"))
    assert_variables(contents, trained)
    assert_slots(contents, trained)
    assert_counters(contents, trained, has_scale=True)
    assert_described(contents)
    assert contents.skipped_steps == native_skipping()
    assert contents.writer.tensorflow == tf.__version__


@pytest.mark.parametrize("names", [("model", "optimizer"), ("net", "updates")], ids="-".join)
def test_checkpoint(trained, names):
    """Everything is in it, whatever a program calls the two."""
    saved = tf.train.Checkpoint(**dict(zip(names, (trained.model, trained.model.optimizer))))
    prefix = saved.save(os.path.join(trained.folder, names[0], "checkpoint"))
    for path in (prefix, prefix + ".index", os.path.dirname(prefix)):
        contents = checkpoint.read(path)
        assert_variables(contents, trained)
        assert_slots(contents, trained)
        assert_counters(contents, trained, has_scale=True)
        assert contents.skipped_steps == native_skipping()


def test_checkpoint_of_an_optimizer_alone(trained):
    """Legacy optimizers leave their slots out then; Keras 3's bring the model's variables."""
    prefix = tf.train.Checkpoint(optimizer=trained.model.optimizer).save(os.path.join(trained.folder, "alone", "c"))
    contents = checkpoint.read(prefix)
    assert_counters(contents, trained, has_scale=True)
    if trained.is_legacy:
        assert (contents.slots, contents.variables) == ({}, {})
    else:
        assert_slots(contents, trained)
        known = contents.variables if IS_KERAS_3 else contents.owners
        assert list(without_model(known).values()) == TRAINED


@pytest.mark.skipif(IS_KERAS_3, reason="Keras 3 saves weights as H5 only")
def test_weights_in_a_checkpoint(trained):
    """The model is the root of it, and has the optimizer."""
    path = os.path.join(trained.folder, "weights", "w")
    trained.model.save_weights(path, save_format="tf")
    contents = checkpoint.read(path)
    assert_variables(contents, trained)
    assert_slots(contents, trained)
    assert_counters(contents, trained, has_scale=True)


@pytest.mark.skipif(not WRITES_KERAS_FILES, reason="from 2.13 on")
def test_keras_file(trained):
    """Layers by name, their variables by number, and the optimizer's as a list, unless it is a legacy one."""
    contents = keras_zip.read(save(trained, "model.keras"))
    assert_variables(contents, trained, NUMBERED)
    assert_described(contents)
    assert contents.skipped_steps == native_skipping()
    has_record = contents.writer.scalekeeper is not None
    if trained.is_legacy and not has_record:
        assert (contents.weight_list, contents.iterations) == ([], None)
        return
    assert_counters(contents, trained, has_scale=IS_KERAS_3)
    if has_record and not trained.is_legacy:  # the record names the variables that Keras writes
        assert_slots(contents, trained)
    elif not has_record:
        assert len(contents.weight_list) == 1 + IS_KERAS_3 + len(TRAINED) * len(SLOTS[trained.inner])


@pytest.mark.parametrize("part", ["index", "data-00000-of-00001"])
def test_a_broken_checkpoint_is_one_kind_of_error(tmp_path, part):
    """Cut off in the index or in the data: the message names the checkpoint."""
    variable = tf.Variable(np.arange(3000.0))
    prefix = tf.train.Checkpoint(variable=variable).write(str(tmp_path / "c"))
    with open(f"{prefix}.{part}", "rb") as stream:
        data = stream.read()
    with open(f"{prefix}.{part}", "wb") as stream:
        stream.write(data[: len(data) // 2])

    def read():
        return [value.read() for value in checkpoint.read(prefix).variables.values()]

    with pytest.raises(UnreadableFileError, match=re.escape(prefix)):
        read()


def test_a_checkpoint_without_objects_is_refused(tmp_path):
    """TensorFlow 1 wrote names only."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("x", initializer=1.0)
        session.run(variable.initializer)
        prefix = tf.compat.v1.train.Saver([variable]).save(session, str(tmp_path / "c"))
    with pytest.raises(UnreadableFileError, match="tf.train.Checkpoint"):
        checkpoint.read(prefix)


def test_several_optimizers_are_noted(tmp_path):
    """A checkpoint of two says so: the reader takes the first."""
    variable = tf.Variable([1.0])
    optimizers = [tf.keras.optimizers.SGD(0.5, momentum=0.5) for _ in range(2)]
    for optimizer in optimizers:
        optimizer.apply_gradients([(tf.constant([1.0]), variable)])
    prefix = tf.train.Checkpoint(one=optimizers[0], two=optimizers[1]).write(str(tmp_path / "c"))
    assert "2 optimizers (one, two)" in checkpoint.read(prefix).notes[0]


def test_a_folder_without_a_checkpoint(tmp_path):
    """It does not say which one is meant."""
    with pytest.raises(UnreadableFileError):
        checkpoint.read(str(tmp_path))
