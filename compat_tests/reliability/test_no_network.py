"""Building, training, saving, loading and converting take no network, on this TensorFlow."""

import json
import os

import pytest

from scalekeeper_test_support import script_runner
from scalekeeper_test_support.installed_keras import MODEL_SUFFIXES

pytestmark = pytest.mark.slow

HERE = os.path.dirname(os.path.abspath(__file__))


def test_nothing_asks_for_a_network():
    """Everything works where there is none; tests/supply/test_no_network.py shows that asking would be noticed."""
    answer = json.loads(script_runner.run(os.path.join(HERE, "without_network.py")).splitlines()[-1])
    assert answer["tried"] == []
    assert len(answer["done"]) == 4 + len(MODEL_SUFFIXES)
    assert answer["commands"] == answer["all"]
