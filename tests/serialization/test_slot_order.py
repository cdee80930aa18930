"""The order of slots in lists without names."""

import pytest

from scalekeeper.serialization.keras.profile import profile

OWNERS = ["a", "b"]
LEGACY, NEW, KERAS_3 = "optimizer_v2", "keras2_new_optimizers", "keras3"


def slots(*names):
    return {owner: dict.fromkeys(names) for owner in OWNERS}


@pytest.mark.parametrize(
    ("class_name", "name", "names", "expected"),
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
def test_order(class_name, name, names, expected):
    """Return the measured order; compat_tests/serialization/conversion compares it with the installed optimizers."""
    assert (
        " ".join("/".join(place) for place in profile(name).ordered_slots(slots(*names), class_name, OWNERS))
        == expected
    )


def test_what_an_owner_does_not_have_is_left_out():
    """A variable that is not trained has no slots."""
    assert profile(NEW).ordered_slots({"a": {"m": None}}, "Adam", OWNERS) == [("a", "m")]
