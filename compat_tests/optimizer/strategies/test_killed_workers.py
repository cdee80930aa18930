"""A worker is killed in the middle of a training of several processes; all are started again, and go on."""

import pytest

from scalekeeper_test_support import replica_comparisons, strategy_scenarios

pytestmark = pytest.mark.slow

STEPS = 30
PATIENCE = 2  # seconds that the others get to end by themselves


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    return strategy_scenarios.run_scenario("supervisor", "checkpoint", folder, 2, STEPS, 1, PATIENCE, 8)


def test_a_worker_was_killed_and_all_have_resumed(found):
    """The kill came after the first checkpoint, and each worker says that it went on from the same one."""
    (interruption,) = found["interruptions"]
    assert 5 <= interruption["after"] < STEPS
    (resumed_after,) = {worker["resumed after"] for worker in found["resumed"]}
    assert 0 < resumed_after <= interruption["after"] + 1
    assert {worker["resumed after"] for worker in found["uninterrupted"]} == {0}


def test_the_resumed_training_ends_as_the_uninterrupted_one(found):
    """Weights, slots, scale, counter, iterations and counters of skipped steps are the same bits on every worker."""
    assert len(found["resumed"]) == len(found["uninterrupted"]) == 2
    assert found["resumed"][0]["skips"]["skipped"] > 6
    assert replica_comparisons.is_resumed_as_uninterrupted(found)
