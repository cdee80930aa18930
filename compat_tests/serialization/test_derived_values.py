"""Layers that compute with copies of their variables get new copies when a file is loaded."""

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper

NORMALIZATION = getattr(tf.keras.layers, "Normalization", None)
pytestmark = pytest.mark.skipif(NORMALIZATION is None, reason="the layer is not in this Keras, or experimental")
DATA = np.array([[2.0, 300.0], [4.0, 500.0], [9.0, 1000.0]], "float32")


def normalizing_model(data):
    """Return a compiled model that normalizes its inputs inside a nested model."""
    normalization = NORMALIZATION(name="normalize")
    normalization.adapt(data)
    inputs = tf.keras.Input((2,), name="inside")
    nested = tf.keras.Model(inputs, normalization(inputs), name="nested")
    inputs = tf.keras.Input((2,), name="outside")
    dense = tf.keras.layers.Dense(1, name="dense", kernel_initializer="ones")
    model = tf.keras.Model(inputs, dense(nested(inputs)))
    model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1), 8.0), "mse")
    return model


@pytest.mark.parametrize("ending", [".h5", ".weights.h5", "checkpoint"])
def test_restore_renews_the_constants_of_a_traced_model(ending, tmp_path):
    """After restore, a model that has predicted before normalizes with the mean and variance of the file."""
    saved, path = normalizing_model(DATA), str(tmp_path / f"saved{ending}")
    if ending == ".h5":
        scalekeeper.save_model(saved, path)
    elif ending == ".weights.h5":
        saved.save_weights(path)
    else:
        path = tf.train.Checkpoint(model=saved).write(path)
    expected = np.asarray(saved(DATA))
    model = normalizing_model(DATA[:2] * 7)
    assert np.abs(model.predict(DATA, verbose=0) - expected).max() > 0.5
    report = scalekeeper.restore(model, path, partial=True)  # some files have no optimizer
    assert [name for name in report.missing if name.rpartition("/")[2] in ("mean", "variance", "count")] == []
    np.testing.assert_allclose(np.asarray(model(DATA)), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.predict(DATA, verbose=0), expected, rtol=1e-5, atol=1e-6)


def test_load_model_renews_the_constants(tmp_path):
    """A model of a file without a probe normalizes with the mean and variance of the file."""
    saved, path = normalizing_model(DATA), str(tmp_path / "saved.h5")
    scalekeeper.save_model(saved, path, probe=False)
    model = scalekeeper.load_model(path)
    np.testing.assert_allclose(np.asarray(model(DATA)), np.asarray(saved(DATA)), rtol=1e-5, atol=1e-6)
