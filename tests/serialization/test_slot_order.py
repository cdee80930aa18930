"""The order of slots in lists without names."""

import pytest

from scalekeeper.serialization.keras._optimizer_config import KERAS_3, LEGACY, NEW
from scalekeeper.serialization.keras._slot_order import ordered

OWNERS = ["a", "b"]


def slots(*names):
    return {owner: dict.fromkeys(names) for owner in OWNERS}


@pytest.mark.parametrize(
    ("class_name", "family", "names", "expected"),
    [
        ("Adam", LEGACY, ["v", "m"], "a/m b/m a/v b/v"),
        ("Adam", NEW, ["m", "v"], "a/m a/v b/m b/v"),
        ("Adam", KERAS_3, ["m", "v", "vhat"], "a/m a/v b/m b/v a/vhat b/vhat"),
        ("RMSprop", NEW, ["momentum", "rms"], "a/rms b/rms a/momentum b/momentum"),
        ("Ftrl", LEGACY, ["linear", "accumulator"], "a/accumulator a/linear b/accumulator b/linear"),
        ("Adam", NEW, ["m", "v", "average"], "a/average b/average a/m a/v b/m b/v"),
        ("NotKnown", LEGACY, ["z", "y"], "a/y b/y a/z b/z"),
    ],
)
def test_order(class_name, family, names, expected):
    """Return the measured order; compat_tests/serialization/conversion compares it with the installed optimizers."""
    assert " ".join("/".join(place) for place in ordered(slots(*names), class_name, family, OWNERS)) == expected


def test_what_an_owner_does_not_have_is_left_out():
    """A variable that is not trained has no slots."""
    assert ordered({"a": {"m": None}}, "Adam", NEW, OWNERS) == [("a", "m")]
