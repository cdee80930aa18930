"""``model.fit`` in mixed precision under MirroredStrategy, over two logical CPUs."""

import numpy as np
import pytest

from scalekeeper_test_support import installed_keras


@pytest.fixture(scope="module")
def found(run_scenario):
    return run_scenario("fit")


@pytest.fixture
def fitted(found, inner_name):
    return found[inner_name]


def test_keras_keeps_the_optimizer_as_it_is(fitted):
    """``compile`` under mixed_float16 does not wrap it again, and the model does compute in float16."""
    assert fitted["ours"]["is_the_compiled"] is True
    assert fitted["ours"]["compute_dtype"] == "float16"


def test_a_batch_that_overflows_on_one_replica_is_skipped_by_both(fitted):
    """Two of four batches overflow, one on each replica: the scale halves twice, the weights stay finite."""
    assert fitted["ours"]["scale"] == 256 / 4
    assert fitted["ours"]["iterations"] == [4 if installed_keras.COUNTS_SKIPPED_STEPS else 2] * 2
    assert all(np.isfinite(values).all() for values in fitted["ours"]["weights"])


def test_replicas_are_bit_identical_after_fit(fitted):
    """Every weight has the same bits on both replicas, and was trained."""
    assert len(fitted["ours"]["weights"]) == 4
    for first, second in fitted["ours"]["weights"]:
        assert first == second
    assert fitted["ours"]["weights"][0][0][0][0] != 0.25


def test_fit_equals_that_with_tensorflows_own_class(fitted):
    """The same data give the same weights, scale and iterations."""
    ours, theirs = fitted["comparable"]["ours"], fitted["comparable"]["tensorflow"]
    for our_values, their_values in zip(ours["weights"], theirs["weights"]):
        np.testing.assert_allclose(our_values, their_values, rtol=1e-6, atol=1e-6)
    assert (ours["scale"], ours["iterations"]) == (theirs["scale"], theirs["iterations"])


def test_where_fit_with_tensorflows_own_class_applies_an_overflow_of_one_replica(fitted):
    """It skips as with ours, but for that of Keras 3: an overflow on replica 1 alone reaches all weights."""
    is_finite = [bool(np.isfinite(values).all()) for values in fitted["tensorflow"]["weights"]]
    assert is_finite == [not installed_keras.LOOKS_AT_FIRST_REPLICA_ONLY] * 4


def test_skipped_batches_leave_no_trace_in_the_weights(found):
    """A training that never sees the batches that overflow gets the same weights, to the bit."""
    assert found["SGD"]["ours"]["weights"] == found["SGD"]["good batches only"]["weights"]
    assert found["SGD"]["good batches only"]["scale"] == 256
