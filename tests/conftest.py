"""Settings of hypothesis: the same examples everywhere, so that each failure can be reproduced."""

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
    """Undo gc.freeze of compat_tests: hypothesis looks for referrers, and frozen objects are not found."""
    gc.unfreeze()
