"""Replicas of a Keras 3 that cannot keep their variables equal are refused."""

import inspect

import pytest
import tensorflow as tf

from scalekeeper_test_support.installed_keras import IS_KERAS_3

CAN_AGGREGATE = (
    "aggregation" in inspect.signature(tf.keras.optimizers.SGD.add_variable).parameters if IS_KERAS_3 else True
)
pytestmark = [pytest.mark.long, pytest.mark.skipif(CAN_AGGREGATE, reason="only Keras 3.0 lacks the argument")]


def test_a_step_is_refused(run_scenario):
    """The first step of two replicas raises a StrategyError, and changes nothing."""
    assert run_scenario("without_aggregation") == {"error": "StrategyError", "value": [1.0, 2.0]}
