"""The table of layers is what the installed Keras really has."""

import pytest

from scalekeeper.registry._targets import Target
from scalekeeper.serialization.keras.target import layer_arguments
from scalekeeper_test_support.repository import load_script

pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_table_is_that_of_the_installed_keras():
    """Recorded again, every layer has the same arguments."""
    name, layers = load_script("compat_tests/registry/record_layers.py").record()
    accepted = layer_arguments(Target(name))
    assert len(layers) > 90
    assert {each: sorted(filter(None, accepted(each))) for each in layers} == layers
    assert accepted("NoSuchLayer") is None
