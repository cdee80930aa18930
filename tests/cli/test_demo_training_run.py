"""Two records are equal to the bit, or it is said where they are not, and by how much."""

import numpy as np
import pytest

from scalekeeper.cli._demo.training_run import compared

NAN = float("nan")


def record(weights=(1.0, 2.0), scale=8.0, **more):
    found = {"weights/0": weights, "scale": scale, **more}
    return {name: np.asarray(value, np.float32) for name, value in found.items()}


def test_equal():
    """Nothing is different; NaN is NaN."""
    found = compared(record(scale=NAN), record(scale=NAN))
    assert (found.is_equal, found.different, found.largest) == (True, [], 0.0)


@pytest.mark.parametrize(
    ("other", "different", "largest"),
    [
        (record(scale=4.0), ["scale"], 4.0),
        (record(weights=(1.0, 2.0 + 2**-22)), ["weights/0"], 2**-22),
        (record(weights=(-1.0, 2.5), scale=7.0), ["scale", "weights/0"], 2.0),
        (record(scale=-8.0), ["scale"], 16.0),
        (record(weights=(1.0,)), ["weights/0"], None),
        (record(scale=NAN), ["scale"], None),
        (record(other=1.0), ["other"], None),
    ],
    ids=["another number", "the last bit", "two", "a sign", "another shape", "not finite", "one more"],
)
def test_different(other, different, largest):
    """By name, and the largest difference; none where that is not a number."""
    found = compared(record(), other)
    assert (found.is_equal, found.different, found.largest) == (False, different, largest)
    assert compared(other, record()) == found


def test_zeros_with_different_signs():
    """Are other bits, though the difference is 0."""
    found = compared(record(scale=0.0), record(scale=-0.0))
    assert (found.different, found.largest) == (["scale"], 0.0)


def test_another_type():
    """Is not the same, even if the number is."""
    other = {**record(), "scale": np.float64(8.0)}
    assert compared(record(), other).different == ["scale"]
