"""What the tests of strategies share: scenarios in processes of their own, and the inner optimizers that they have."""

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
