"""Files of scalekeeper record which variable each slot belongs to: neither order nor frozen layers confuse them."""

import numpy as np
import pytest

import scalekeeper
from scalekeeper import LossScaleOptimizer
from scalekeeper_test_support.installed_keras import MODEL_SUFFIXES, OPTIMIZERS
from scalekeeper_test_support.unique_numbers import dense_model, fill, numbers_of, train

pytestmark = [
    pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file"),
    pytest.mark.filterwarnings("ignore:Not all of the file could be used"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of NumPy, about Keras 3's own variables
]
SUFFIXES = sorted({*MODEL_SUFFIXES, ".h5"})
NAMES = ("a", "b", "c", "d", "e")
WRAPPERS = {"bare": lambda inner: inner, "wrapped": lambda inner: LossScaleOptimizer(inner, "dynamic")}
CASES = pytest.mark.parametrize(("kind", "wrap"), [(kind, wrap) for kind in sorted(OPTIMIZERS) for wrap in WRAPPERS])


def compiled(kind, wrap, **options):
    model = dense_model(NAMES, **options)
    model.compile(WRAPPERS[wrap](OPTIMIZERS[kind].Adam(0.25)), "mse")
    return model


@CASES
def test_an_own_loop_with_another_order(kind, wrap, tmp_path):
    """Slots of equal shape stay with their variables though a loop gave the variables the other way round."""
    model = compiled(kind, wrap)
    train(model, model.trainable_variables[::-1])
    fill(model)
    expected = numbers_of(model)
    for suffix in SUFFIXES:
        path = tmp_path / f"m{suffix}"
        scalekeeper.save_model(model, path)
        assert numbers_of(scalekeeper.load_model(path)) == expected, suffix
        other = compiled(kind, wrap)
        assert scalekeeper.restore(other, path).missing == []
        assert numbers_of(other) == expected, suffix


@CASES
def test_other_layers_are_frozen(kind, wrap, tmp_path):
    """Saved with layer b frozen and restored with layer e frozen: each slot is restored or reported, none swapped."""
    model = compiled(kind, wrap, frozen=["b"])
    train(model)
    fill(model)
    expected = numbers_of(model)
    assert sorted(expected["slots"]) == [f"{name}/{part}" for name in "acde" for part in ("bias", "kernel")]
    for suffix in SUFFIXES:
        path = tmp_path / f"m{suffix}"
        scalekeeper.save_model(model, path)
        assert numbers_of(scalekeeper.load_model(path)) == expected, suffix
        other = compiled(kind, wrap, frozen=["e"])
        report = scalekeeper.restore(other, path, partial=True)
        found = numbers_of(other)
        assert found["weights"] == expected["weights"]
        for name in ("a", "c", "d"):
            for part in ("kernel", "bias"):
                assert found["slots"][f"{name}/{part}"] == expected["slots"][f"{name}/{part}"], suffix
        assert not np.any([np.ravel(slot).max() for slot in found["slots"]["b/kernel"].values()])
        assert sorted(each.split(": ")[1] for each in report.missing) == ["m", "m", "v", "v"]
        assert sorted(each.split(": ")[1] for each in report.unused) == ["m", "m", "v", "v"]
