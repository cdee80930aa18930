"""Fixtures of the tests of strategies: scenarios in new processes, and inner optimizers."""

import pytest

from scalekeeper_test_support import installed_keras, strategy_scenarios

# of these, scenarios/common.py has one each
INNER_OPTIMIZERS = ["SGD", "Adam", *(["legacy Adam"] if "legacy" in installed_keras.OPTIMIZERS else [])]


@pytest.fixture(params=INNER_OPTIMIZERS)
def inner_name(request):
    return request.param


@pytest.fixture(scope="session")
def run_scenario():
    return strategy_scenarios.run_scenario


@pytest.fixture(scope="session")
def run_workers():
    return strategy_scenarios.run_workers


@pytest.fixture(scope="session")
def mirrored_results(run_scenario):
    """Return what the scenarios under MirroredStrategy return, all from one process."""
    return run_scenario("mirrored")
