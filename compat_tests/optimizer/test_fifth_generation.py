"""A fifth, made-up Keras generation needs a profile and an adapter, and no change in the package.

Its optimizers are the installed ones under another wrapper, with other keys in every configuration.
"""

import json
import types

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper import LossScaleOptimizer
from scalekeeper.optimizer._keras.keras_dispatch import adapter_for, keras_of, register_adapter, unregister_adapter
from scalekeeper.registry import target
from scalekeeper.registry.errors import NameTakenError
from scalekeeper.serialization.keras.profile import profiles, register_profile, unregister_profile

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of NumPy, about Keras 3's own variables
    pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file"),
]
INNER = tf.keras.optimizers.SGD(0.5)
INSTALLED_ADAPTER, INSTALLED_WRAPPER = adapter_for(keras_of(INNER), INNER)
INSTALLED = INSTALLED_ADAPTER._profile
FAMILY = "fifth"


class SGD(tf.keras.optimizers.SGD):
    """An optimizer of the fifth generation, which writes its generation."""

    def get_config(self):
        """Return the configuration with an argument that no other generation has."""
        return {**super().get_config(), "generation": 5}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Create an optimizer from its configuration."""
        return cls(**{name: value for name, value in config.items() if name != "generation"})


class ScalingOptimizer(INSTALLED_WRAPPER):
    """The fifth generation's own wrapper."""


class FifthProfile(type(INSTALLED)):
    """One key for the inner optimizer, and one for any loss scale that it can express."""

    name = "fifth"
    family = FAMILY
    inner_key = "wrapped"
    wrapper_class_name = "ScalingOptimizer"
    old_wrapper_class_names = ()
    scale_keys = ("scaling",)
    inner_scale_key = None
    keeps_every_policy = False
    extra_arguments = {"generation": 5}  # noqa: RUF012

    def is_on(self, target):
        """Return whether it is the installed TensorFlow."""
        return target == installed_target()

    def is_in(self, keras):
        """Leave the default of the installed Keras as it is."""
        return False

    def optimizers_in(self, keras):
        """Return the optimizers of this generation."""
        return types.SimpleNamespace(SGD=SGD)

    def optimizers_path(self, version):
        """Return where the target's table has them."""
        return "optimizers"

    def skipped_steps_of_keras(self, version):
        """Leave the skipped steps of files to the generation that the installed Keras is of: return None."""

    def recognizes_inner(self, config):
        """Return whether the argument of this generation is there."""
        return "generation" in config["config"]

    def recognizes_wrapper(self, config, wrapper):
        """Return whether the inner key is there."""
        return self.inner_key in wrapper

    def decode_loss_scale(self, wrapper):
        """Return the policy of ``scaling``: a start, and None or the steps after which it doubles."""
        if "scaling" not in wrapper:
            return None
        start, steps = wrapper["scaling"]
        if steps is None:
            return {"class_name": "FixedLossScale", "config": {"loss_scale_value": start}}
        config = {"initial_loss_scale": start, "increment_period": steps, "multiplier": 2.0}
        return {"class_name": "DynamicLossScale", "config": config}

    def native_scale_keys(self, policy):
        """Return ``scaling``, or None for what it cannot express."""
        config = dict(policy["config"])
        if policy["class_name"] == "FixedLossScale" and len(config) == 1:
            return {"scaling": [config["loss_scale_value"], None]}
        if policy["class_name"] == "DynamicLossScale" and config.pop("multiplier") == 2.0 and len(config) == 2:
            return {"scaling": [config["initial_loss_scale"], config["increment_period"]]}
        return None

    def _plain_keys(self, policy):
        return self.native_scale_keys(policy), {}


FIFTH = FifthProfile()


class FifthAdapter(INSTALLED_ADAPTER):
    """The installed adapter with the fifth profile."""

    _profile = FIFTH

    def _serialized_inner(self):
        return {"class_name": "SGD", "config": self.inner_optimizer.get_config()}


def installed_target():
    """Return the target of the installed TensorFlow, as conversions for it choose it."""
    return target()


def other_than_installed(*names):
    """Return the first of these targets that is not the installed TensorFlow."""
    return next(name for name in names if name != installed_target().name)


@pytest.fixture(autouse=True)
def fifth_generation():
    """Register profile and adapter, and nothing else."""
    register_profile(FIFTH)
    register_adapter(
        FIFTH, lambda: FifthAdapter, lambda keras, optimizer: ScalingOptimizer if isinstance(optimizer, SGD) else None
    )
    yield
    unregister_adapter(FIFTH)
    unregister_profile(FIFTH.name)


DYNAMIC = {"initial_loss_scale": 8.0, "increment_period": 2, "multiplier": 2.0}


def optimizer(loss_scale=None):
    policy = scalekeeper.DynamicLossScale(**DYNAMIC) if loss_scale is None else loss_scale
    return LossScaleOptimizer(SGD(0.5, momentum=0.75), policy)


def trained_model(optimizer):
    """Return a model after two steps."""
    inputs = tf.keras.Input((3,), name="in")
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(2, name="d")(inputs))
    model.compile(optimizer=optimizer, loss="mse")
    features = np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3)
    model.fit(features, np.ones((4, 2), "float32"), epochs=2, batch_size=4, shuffle=False, verbose=0)
    return model


def slots(optimizer):
    """Return the values of all slots; TensorFlow 2.0 numbers the names of variables."""
    found = optimizer.state_dict()["slots"]
    return [{name: np.asarray(value).tolist() for name, value in each.items()} for each in found.values()]


def test_the_adapter_is_chosen_by_registration():
    """Only optimizers of the fifth generation get it; the installed ones keep theirs."""
    fifth, installed = optimizer(), LossScaleOptimizer(tf.keras.optimizers.SGD(0.5))
    assert isinstance(fifth, FifthAdapter)
    assert isinstance(fifth, ScalingOptimizer)
    assert not isinstance(installed, FifthAdapter)
    assert profiles()[0] is FIFTH
    with pytest.raises(NameTakenError):
        register_profile(FIFTH)


@pytest.mark.parametrize(
    ("loss_scale", "expected"),
    [
        (None, {"scaling": [8.0, 2]}),
        (16.0, {"scaling": [16.0, None]}),
        (
            {"name": "dynamic", **DYNAMIC, "multiplier": 4.0},
            {"loss_scale": {"class_name": "DynamicLossScale", "config": {**DYNAMIC, "multiplier": 4.0}}},
        ),
    ],
)
def test_config_there_and_back(loss_scale, expected):
    """get_config writes the generation's own keys where they suffice, and from_config reads them."""
    config = optimizer(loss_scale).get_config()
    assert config.keys() - {"name"} == {"wrapped", *expected}
    assert {name: config[name] for name in expected} == expected
    again = LossScaleOptimizer.from_config(config)
    assert isinstance(again, FifthAdapter)
    assert again.get_config() == config


def test_state_is_restored(tmp_path):
    """Weights, slots, iterations and the loss scale, from a file of a model with the fifth generation's optimizer."""
    model = trained_model(optimizer())
    scalekeeper.save_model(model, tmp_path / "m.h5")
    other = trained_model(optimizer())
    report = scalekeeper.restore(other, tmp_path / "m.h5")
    assert report.missing == report.unused == []
    assert slots(other.optimizer) == slots(model.optimizer) != []
    assert other.optimizer.iterations.numpy() == 2
    assert other.optimizer.loss_scale.state() == model.optimizer.loss_scale.state()


def test_a_whole_model_is_loaded(tmp_path):
    """load_model finds the loss scale under the fifth generation's names, and creates its optimizer."""
    model = trained_model(optimizer())
    scalekeeper.save_model(model, tmp_path / "m.h5")
    loaded = scalekeeper.load_model(tmp_path / "m.h5")
    assert isinstance(loaded.optimizer, FifthAdapter)
    assert loaded.optimizer.get_config()["scaling"] == [8.0, 2]
    assert slots(loaded.optimizer) == slots(model.optimizer) != []


def test_a_configuration_is_converted(tmp_path):
    """It keeps its keys for the installed TensorFlow, and gets those of 2.1 or 2.2 for that one."""
    fifth, older, again = tmp_path / "fifth.json", tmp_path / "older.json", tmp_path / "again.json"
    fifth.write_text(json.dumps({"class_name": "ScalingOptimizer", "config": optimizer().get_config()}))
    scalekeeper.convert(fifth, older, other_than_installed("2.1", "2.2"))
    config = json.loads(older.read_text())["config"]
    assert config["loss_scale"] == {"class_name": "DynamicLossScale", "config": DYNAMIC}
    assert config["optimizer"]["class_name"] == "SGD"
    assert "generation" not in config["optimizer"]["config"]
    assert scalekeeper.inspect(fifth).loss_scale == scalekeeper.inspect(older).loss_scale
    scalekeeper.convert(fifth, again)
    assert json.loads(again.read_text())["class_name"] == "ScalingOptimizer"
    assert json.loads(again.read_text())["config"]["scaling"] == [8.0, 2]
    scalekeeper.convert(older, again, force=True)  # for the installed TensorFlow, whose newest generation is the fifth
    assert scalekeeper.inspect(again).loss_scale == scalekeeper.inspect(fifth).loss_scale


def test_a_model_is_converted(tmp_path):
    """The file of a model with the fifth generation's optimizer becomes one of 2.9 or 2.10, with all its state."""
    model = trained_model(optimizer())
    scalekeeper.save_model(model, tmp_path / "m.h5")
    scalekeeper.convert(tmp_path / "m.h5", tmp_path / "other.h5", other_than_installed("2.10", "2.9"))
    found = scalekeeper.inspect(tmp_path / "other.h5")
    assert (found.optimizer, found.iterations) == ("SGD", 2)
    assert found.loss_scale.state == {"current_loss_scale": 16.0, "good_steps": 0.0}
    assert all(list(slots) == ["momentum"] for slots in found.slots.values())
    assert len(found.slots) == 2


def test_a_model_is_converted_for_the_fifth_generation(tmp_path):
    """For the installed TensorFlow an optimizer keeps its generation, its keys and its state, in a model and as npz."""
    model = trained_model(optimizer())
    scalekeeper.save_model(model, tmp_path / "m.h5")
    for name in ("other.h5", "state.npz"):
        scalekeeper.convert(tmp_path / "m.h5", tmp_path / name, allow_loss=name == "state.npz")
        other = trained_model(optimizer())
        other.fit(np.ones((4, 3), "float32"), np.ones((4, 2), "float32"), verbose=0)
        scalekeeper.restore(other, tmp_path / name)
        assert slots(other.optimizer) == slots(model.optimizer)
        assert other.optimizer.iterations.numpy() == 2
    loaded = scalekeeper.load_model(tmp_path / "other.h5")
    assert isinstance(loaded.optimizer, FifthAdapter)
    assert loaded.optimizer.get_config()["scaling"] == [8.0, 2]
