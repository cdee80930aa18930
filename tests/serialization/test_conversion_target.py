"""The target of a conversion, by name."""

import pytest

from scalekeeper import UnknownTargetError
from scalekeeper.serialization.keras.target import conversion_target


@pytest.mark.parametrize(
    ("given", "name", "is_plain", "keras_major"),
    [
        ("2.0", "2.0", False, 2),
        ("2.10-plain", "2.10", True, 2),
        ("2.21", "2.21-keras3", False, 3),
        ("2.16-tf_keras-plain", "2.16-tf_keras", True, 2),
        ("tf_keras", "2.21-tf_keras", False, 2),
        ("keras3-plain", "2.21-keras3", True, 3),
    ],
)
def test_names(given, name, is_plain, keras_major):
    """A target's name, with or without -plain."""
    found = conversion_target(given)
    assert (found.target.name, found.is_plain) == (name, is_plain)
    assert found.keras.profile.keras_major == keras_major


def test_plain_alone_is_the_installed_one():
    """Or the newest, where none is installed."""
    assert conversion_target("plain").is_plain
    assert conversion_target("plain").target == conversion_target().target


@pytest.mark.parametrize("given", ["1.15", "2.22", "plain-2.10", "-plain", "", "2.10-plane"])
def test_what_is_unknown(given):
    """An error that says what is allowed."""
    with pytest.raises(UnknownTargetError, match="plain"):
        conversion_target(given)
