"""A strategy whose replicas can't take one decision is refused, and the error says what to use."""

import pytest
import tensorflow as tf

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(run_scenario):
    return run_scenario("unsupported")


def check(error, name):
    assert error["type"] == "StrategyError"
    assert f"loss scaling does not work under {name}" in error["message"]
    if "tpu" in name.lower():
        remedy = ["bfloat16, which has the range of float32", "Use the inner optimizer", "mixed_bfloat16"]
    else:
        # by the names that users import, which are not those that the classes have
        remedy = ["use MirroredStrategy", "MultiWorkerMirroredStrategy", "OneDeviceStrategy", "or no strategy"]
    for expected in remedy:
        assert expected in error["message"]


def test_construction_is_refused(found):
    """In the strategy's scope, making the optimizer is a StrategyError that names the strategy and what to use."""
    for result in found.values():
        check(result["at_construction"], result["name"])


def test_apply_gradients_is_refused(found):
    """An optimizer made outside of the scope is refused when it is used inside, in ``run`` or not; nothing changes."""
    for result in found.values():
        for attempt in result["at_apply_gradients"].values():
            check(attempt["error"], result["name"])
            assert attempt["value"] == 1.0
            assert attempt["state"] == {"current_loss_scale": 2.0**15, "good_steps": 0}


def test_the_strategies_are_those_that_the_test_is_about(found):
    """The scenario made each kind of strategy, by each name that the installed version has."""
    names = {make: result["name"] for make, result in found.items()}
    assert names.pop("central_storage") == "CentralStorageStrategy"
    assert names.pop("central_storage_of_tensorflow_1") == "CentralStorageStrategyV1"
    assert names.pop("OwnStrategy") == "OwnStrategy"
    servers = {make: names.pop(make) for make in list(names) if make.startswith("parameter_server")}
    assert servers in (
        {"parameter_server": "ParameterServerStrategyV1"},
        {"parameter_server_with_coordinator": "ParameterServerStrategyV2"},
    )
    # 2.0 makes no such strategy without a TPU: there a class of its kind stands for it
    assert names in (
        {"tpu": "TpuByClassAlone"},
        {"tpu": "TPUStrategyV2", "experimental_tpu": "TPUStrategy", "tpu_of_tensorflow_1": "TPUStrategyV1"},
    )


def test_a_step_that_a_coordinator_schedules_is_refused(found):
    """Where there is a ClusterCoordinator, the error reaches the one who schedules the step.

    In 2.5, TensorFlow refuses a step that none schedules before it begins.
    """
    for make, result in found.items():
        has_coordinator = make == "parameter_server_with_coordinator"
        expected = {"in_each_replica", "around_replicas", *(["by_coordinator"] if has_coordinator else [])}
        if has_coordinator and tf.__version__.startswith("2.5."):
            expected.remove("in_each_replica")
        assert set(result["at_apply_gradients"]) == expected
