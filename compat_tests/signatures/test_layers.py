"""The table of layers is what the installed Keras really has."""

import importlib.util
import os

import pytest

from scalekeeper.registry._targets import Target
from scalekeeper.serialization.keras._layer_signatures import layer_arguments

HERE = os.path.dirname(os.path.abspath(__file__))
pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_table_is_that_of_the_installed_keras():
    """Recorded again, every layer has the same arguments."""
    spec = importlib.util.spec_from_file_location("record_layers", os.path.join(HERE, "record_layers.py"))
    recording = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recording)
    name, layers = recording.record()
    accepted = layer_arguments(Target(name))
    assert len(layers) > 90
    assert {each: sorted(filter(None, accepted(each))) for each in layers} == layers
    assert accepted("NoSuchLayer") is None
