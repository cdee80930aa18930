"""A strategy whose replicas can't take one decision is refused, and the error says what to use."""

import pytest

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def found(run_scenario):
    return run_scenario("unsupported")


def check(error, name):
    assert error["type"] == "ValueError"
    for expected in (name, "MirroredStrategy", "OneDeviceStrategy"):
        assert expected in error["message"]
    # by the name that users import, which is not the one that the class has
    assert "MultiWorkerMirroredStrategy" in error["message"]


@pytest.mark.parametrize("strategy", ["central_storage", "parameter_server"])
def test_construction_is_refused(found, strategy):
    """In the strategy's scope, making the optimizer is a ValueError that names the strategy and what to use."""
    check(found[strategy]["at_construction"], found[strategy]["name"])


@pytest.mark.parametrize("strategy", ["central_storage", "parameter_server"])
def test_apply_gradients_is_refused(found, strategy):
    """An optimizer made outside of the scope is refused when it is used inside, and nothing changes."""
    result = found[strategy]["at_apply_gradients"]
    check(result["error"], found[strategy]["name"])
    assert result["value"] == 1.0
    assert result["state"] == {"current_loss_scale": 2.0**15, "good_steps": 0}


def test_the_strategies_are_those_that_the_test_is_about(found):
    """The scenario made the two strategies, and no other."""
    assert found["central_storage"]["name"] == "CentralStorageStrategy"
    assert found["parameter_server"]["name"] in ("ParameterServerStrategyV1", "ParameterServerStrategyV2")
