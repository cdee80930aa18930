"""Keras finds our optimizer, and classes of the user's own in it, by name: as with everything else in Keras."""

import json

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper import LossScaleOptimizer
from scalekeeper_test_support.installed_keras import MODEL_SUFFIXES, OPTIMIZERS, number

SPECS = [{"name": "dynamic", "multiplier": 4.0}, {"name": "dynamic", "initial_loss_scale": 64.0}, 128.0]
register = getattr(tf.keras.utils, "register_keras_serializable", None)  # 2.0 has none
registering = pytest.mark.skipif(register is None, reason="this Keras registers nothing")


class Derived(LossScaleOptimizer):
    """A class of the user's own."""


class Named(scalekeeper.DynamicLossScale):
    """A policy that Keras knows, and we do not."""


class Inner(tf.keras.optimizers.SGD):
    """An optimizer of the user's own."""


if register is not None:
    for each in (Derived, Named, Inner):
        register("tests")(each)


def written(optimizer):
    """Return what a file would hold of it."""
    return json.loads(json.dumps(tf.keras.optimizers.serialize(optimizer)))


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_optimizers_get_gives_ours(kind, spec):
    """In a custom_object_scope, or by deserialize with custom_objects, and with the same policy."""
    optimizer = LossScaleOptimizer(OPTIMIZERS[kind].Adam(0.25), spec)
    assert tf.keras.optimizers.get(optimizer) is optimizer
    with tf.keras.utils.custom_object_scope(scalekeeper.custom_objects()):
        found = tf.keras.optimizers.get(written(optimizer))
    others = [found, tf.keras.optimizers.deserialize(written(optimizer), custom_objects=scalekeeper.custom_objects())]
    for other in others:
        assert type(other) is type(optimizer)
        assert other.loss_scale.get_config() == optimizer.loss_scale.get_config()
        assert number(other.inner_optimizer.learning_rate) == 0.25


def test_outside_of_the_scope_it_is_keras_s_own():
    """A scalekeeper file means to plain Keras what it always meant."""
    optimizer = LossScaleOptimizer(tf.keras.optimizers.Adam(0.25), "dynamic")
    found = tf.keras.optimizers.get(written(optimizer))
    assert not isinstance(found, LossScaleOptimizer)
    assert isinstance(optimizer, type(found))


@registering
@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_a_registered_class_is_found_without_more(kind):
    """register_keras_serializable is enough for a class that is derived from ours; another one is not touched by it."""
    optimizer = Derived(OPTIMIZERS[kind].SGD(0.25), {"name": "dynamic", "multiplier": 4.0})
    config = written(optimizer)
    assert config.get("registered_name", config["class_name"]) == "tests>Derived"
    found = tf.keras.optimizers.get(config)
    assert isinstance(found, Derived)
    assert found.loss_scale.get_config()["multiplier"] == 4.0
    assert tf.keras.utils.get_custom_objects()["tests>Derived"] is Derived
    plain = written(LossScaleOptimizer(OPTIMIZERS[kind].SGD(0.25), 8))
    assert "tests>" not in plain.get("registered_name", plain["class_name"])


@registering
def test_registered_policies_and_inner_optimizers_are_found():
    """Keras's register is asked for what ours does not know."""
    config = written(LossScaleOptimizer(Inner(0.25), Named(multiplier=4.0)))
    found = tf.keras.optimizers.deserialize(config, custom_objects=scalekeeper.custom_objects())
    assert (type(found.inner_optimizer), type(found.loss_scale)) == (Inner, Named)
    assert found.loss_scale.get_config()["multiplier"] == 4.0


class InScope(scalekeeper.DynamicLossScale):
    """A policy that nobody knows."""


def test_policies_of_a_scope_are_found():
    """As custom_object_scope promises."""
    config = written(LossScaleOptimizer(tf.keras.optimizers.SGD(0.25), InScope(multiplier=4.0)))
    with tf.keras.utils.custom_object_scope({**scalekeeper.custom_objects(), "InScope": InScope}):
        found = tf.keras.optimizers.get(config)
    assert type(found.loss_scale) is InScope
    with pytest.raises(scalekeeper.InvalidSpecError, match="unknown loss scale class 'InScope'"):
        tf.keras.optimizers.deserialize(config, custom_objects=scalekeeper.custom_objects())


@pytest.mark.parametrize("suffix", MODEL_SUFFIXES)
def test_keras_loads_a_model_with_it(suffix, tmp_path):
    """Keras's own save and load_model, with custom_objects, where it makes objects of configurations."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
    model.compile(LossScaleOptimizer(tf.keras.optimizers.SGD(0.25), {"name": "dynamic", "multiplier": 4.0}), "mse")
    model.fit(np.ones((2, 2)), np.ones((2, 1)), verbose=0)
    path = str(tmp_path / ("model" + suffix))
    model.save(path)
    loaded = tf.keras.models.load_model(path, custom_objects=scalekeeper.custom_objects())
    assert loaded.predict(np.ones((1, 2)), verbose=0) == pytest.approx(model.predict(np.ones((1, 2)), verbose=0))
    # of what is in a SavedModel, 2.0 and 2.1 ask nobody
    if suffix or hasattr(tf.keras.utils, "get_registered_name"):
        assert isinstance(loaded.optimizer, LossScaleOptimizer)
        assert loaded.optimizer.loss_scale.get_config()["multiplier"] == 4.0
