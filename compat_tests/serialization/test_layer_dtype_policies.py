"""Layers that compute in mixed precision do so when they are loaded, or saving them warns that they will not."""

import os
import warnings

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper_test_support.installed_keras import (
    HAS_LOSS_SCALE_OBJECTS,
    global_policy,
    layer_policy,
    set_global_policy,
)

WRITES_NO_POLICIES = tf.__version__.startswith("2.0.")
INPUTS = np.ones((2, 3), np.float32)


@pytest.fixture
def precision(request):
    before = global_policy()
    set_global_policy(layer_policy(request.param, **({"loss_scale": None} if HAS_LOSS_SCALE_OBJECTS else {})))
    yield request.param
    set_global_policy(before)


def compiled():
    inputs = tf.keras.Input((3,))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, name="d1")(inputs))
    model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1), "dynamic"), "mse")
    return model


def told_while_saving(model, path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scalekeeper.save_model(model, path)
    return [str(each.message) for each in caught if os.path.basename(path) in str(each.message)]


@pytest.mark.parametrize("precision", ["float32", "mixed_float16"], indirect=True)
def test_the_precision_of_layers_comes_back_or_is_told_of(tmp_path, precision):
    """A loaded model computes in its saved precision; where Keras forgets that, saving warns, and restore helps."""
    path = str(tmp_path / "model.h5")
    model = compiled()
    told = told_while_saving(model, path)
    is_lost = WRITES_NO_POLICIES and precision == "mixed_float16"
    assert len(told) == is_lost
    assert all("d1" in each and "scalekeeper.restore(model, path)" in each for each in told)
    assert (scalekeeper.load_model(path)(INPUTS).dtype == model(INPUTS).dtype) is not is_lost
    restored = compiled()
    scalekeeper.restore(restored, path)
    assert restored(INPUTS).dtype == model(INPUTS).dtype
    np.testing.assert_array_equal(restored(INPUTS), model(INPUTS))
