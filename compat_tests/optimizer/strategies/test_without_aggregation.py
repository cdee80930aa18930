"""Replicas of a Keras 3 that does not sum their gradients are refused."""

import pytest
import tensorflow as tf

from scalekeeper_test_support.installed_keras import IS_KERAS_3

SUMS = not IS_KERAS_3 or tuple(map(int, tf.keras.__version__.split(".")[:2])) >= (3, 5)
pytestmark = [pytest.mark.long, pytest.mark.skipif(SUMS, reason="only Keras 3.0 to 3.4 do not sum gradients")]


def test_a_step_is_refused(run_scenario):
    """The first step of two replicas raises a StrategyError, and changes nothing."""
    assert run_scenario("without_aggregation") == {"error": "StrategyError", "value": [1.0, 2.0]}
