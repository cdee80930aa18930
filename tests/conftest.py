"""Hypothesis explores the same examples everywhere, so that a failure in one environment can be seen in all."""

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "scalekeeper",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=int(os.environ.get("SCALEKEEPER_EXAMPLES", "200")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("scalekeeper")


@pytest.fixture(scope="module", autouse=True)
def nothing_frozen():
    """Hypothesis asks who holds an object; what tests with TensorFlow have frozen before would not be told."""
    gc.unfreeze()
