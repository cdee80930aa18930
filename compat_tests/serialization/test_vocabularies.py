"""A restore is not complete if the vocabulary of a lookup layer is not known to be that of the file."""

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper

LOOKUP = getattr(tf.keras.layers, "IntegerLookup", None)
pytestmark = pytest.mark.skipif(LOOKUP is None, reason="the layer is not in this Keras, or experimental")
WORDS = np.array([[30], [10], [20], [99]])


def model_with(vocabulary=None, adapted=None):
    """Return a compiled model that looks numbers up."""
    lookup = LOOKUP(name="lookup", **({"vocabulary": vocabulary} if vocabulary else {}))
    if adapted is not None:
        lookup.adapt(adapted)
    inputs = tf.keras.Input((1,), dtype="int64")
    embedded = tf.keras.layers.Embedding(8, 3, name="embedding")(lookup(inputs))
    outputs = tf.keras.layers.Dense(1, name="dense")(tf.keras.layers.Flatten()(embedded))
    model = tf.keras.Model(inputs, outputs)
    model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1), 8.0), "mse")
    model.fit(WORDS, np.ones((4, 1)), verbose=0)
    return model


def test_the_vocabulary_of_the_file(tmp_path):
    """The same vocabulary in the same order: the restore is complete, and the model computes the same."""
    saved, path = model_with([10, 20, 30]), str(tmp_path / "saved.h5")
    scalekeeper.save_model(saved, path)
    model = model_with([10, 20, 30])
    assert scalekeeper.restore(model, path).complete
    np.testing.assert_array_equal(model.predict(WORDS, verbose=0), saved.predict(WORDS, verbose=0))


def test_another_vocabulary(tmp_path):
    """The same words in another order are rows of other words: the report names the layer, and restore warns."""
    path = str(tmp_path / "saved.h5")
    scalekeeper.save_model(model_with([10, 20, 30]), path)
    model = model_with([30, 20, 10])
    with pytest.warns(scalekeeper.IncompleteRestoreWarning):
        report = scalekeeper.restore(model, path)
    assert (report.missing, report.complete) == (["lookup: vocabulary"], False)


def test_a_vocabulary_that_was_adapted(tmp_path):
    """A checkpoint's vocabulary is not read: the variables are restored, and the report names the layer."""
    path = tf.train.Checkpoint(model=model_with(adapted=WORDS)).write(str(tmp_path / "saved"))
    model = model_with(adapted=WORDS[::-1].repeat([1, 2, 3, 4], axis=0))
    with pytest.warns(scalekeeper.IncompleteRestoreWarning):
        report = scalekeeper.restore(model, path)
    assert report.missing == ["lookup: vocabulary"]
    assert {"embedding", "dense"} <= {name.split("/")[0] for name in report.matched}


def test_a_vocabulary_in_code(tmp_path):
    """A checkpoint has no configuration: a vocabulary that the constructor got is a part of the program."""
    path = tf.train.Checkpoint(model=model_with([10, 20, 30])).write(str(tmp_path / "saved"))
    assert scalekeeper.restore(model_with([10, 20, 30]), path).complete
