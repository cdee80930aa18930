"""How many modules an operation runs through, and how often it crosses from one room to another."""

import os
import sys

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper_test_support.installed_keras import IS_KERAS_3

HOME = os.path.join(os.path.dirname(scalekeeper.__file__), "")
pytestmark = pytest.mark.skipif(not IS_KERAS_3, reason="the limits are those of the newest TensorFlow with Keras 3")


class CallPath:
    """The modules of scalekeeper that run inside a ``with`` block, and the calls between its rooms."""

    def __enter__(self):
        self.modules, self.crossings = set(), 0
        sys.setprofile(self._record)
        return self

    def __exit__(self, *error):
        sys.setprofile(None)

    def _record(self, frame, event, argument):
        module = _module(frame)
        if event != "call" or module is None:
            return
        self.modules.add(module)
        caller = frame.f_back
        while caller is not None and _module(caller) is None:
            caller = caller.f_back
        if caller is not None and _room(_module(caller)) != _room(module):
            self.crossings += 1


def _module(frame):
    path = frame.f_code.co_filename
    return path[len(HOME) :] if path.startswith(HOME) else None


def _room(module):
    return module.split(os.sep)[0]


def optimizer():
    return scalekeeper.LossScaleOptimizer(tf.keras.optimizers.Adam(1e-3), "dynamic")


@pytest.fixture
def saved(tmp_path):
    """The path of an H5 file with a small trained model."""
    inputs = tf.keras.Input((4,))
    hidden = tf.keras.layers.Dense(8, activation="relu")(inputs)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(hidden))
    model.compile(optimizer(), "mse")
    model.fit(np.ones((8, 4), np.float32), np.ones((8, 1), np.float32), verbose=0)
    scalekeeper.save_model(model, tmp_path / "model.h5")
    return tmp_path / "model.h5"


def test_construct():
    """At most 12 modules and 8 crossings construct an optimizer."""
    inner = tf.keras.optimizers.Adam(1e-3)
    optimizer()
    with CallPath() as path:
        scalekeeper.LossScaleOptimizer(inner, "dynamic")
    assert (len(path.modules) <= 12, path.crossings <= 8) == (True, True), (sorted(path.modules), path.crossings)


def test_step():
    """At most 10 modules and 6 crossings take an eager step."""
    wrapped, variable = optimizer(), tf.Variable([1.0, 2.0])

    def step():
        grads = wrapped.get_unscaled_gradients([tf.constant([1.0, 1.0])])
        wrapped.apply_gradients(list(zip(grads, [variable])))

    step()
    with CallPath() as path:
        step()
    assert (len(path.modules) <= 10, path.crossings <= 6) == (True, True), (sorted(path.modules), path.crossings)


def test_load_model(saved):
    """At most 43 modules and 50 crossings load an H5 model, with the checks of what was loaded."""
    scalekeeper.load_model(saved)  # what runs once in a process is not counted, whichever test comes first
    with CallPath() as path:
        scalekeeper.load_model(saved)
    assert (len(path.modules) <= 43, path.crossings <= 50) == (True, True), (sorted(path.modules), path.crossings)


def test_convert(saved, tmp_path):
    """At most 49 modules and 84 crossings convert an H5 model for another TensorFlow."""
    with CallPath() as path:
        scalekeeper.convert(saved, tmp_path / "old.h5", to="2.10", allow_loss=True)
    assert (len(path.modules) <= 49, path.crossings <= 84) == (True, True), (sorted(path.modules), path.crossings)


def test_a_call_is_counted():
    """The search finds modules and crossings: a resolved policy runs in the registry and in lossscales."""
    with CallPath() as path:
        scalekeeper.resolve({"name": "dynamic", "increment_period": 7})
    assert {"registry", "lossscales"} <= {_room(module) for module in path.modules}
    assert path.crossings >= 1
