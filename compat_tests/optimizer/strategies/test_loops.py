"""Custom loops over four replicas: logical CPUs under MirroredStrategy, processes under MultiWorkerMirroredStrategy."""

import numpy as np
import pytest

from scalekeeper_test_support import installed_keras, replica_comparisons, strategy_scenarios

REPLICAS = 4
STEPS = 50
COMPARED = "Adam"  # as in scenarios/loops.py
# a step with each kind of bad number on each replica alone
SINGLE = [(2 * place + 1, place % REPLICAS) for place in range(3 * REPLICAS)]


# processes take long to start: in the fast run one environment has them, and each generation replicas in one process
WORKERS = pytest.param("MultiWorkerMirroredStrategy", marks=pytest.mark.slow("py311-tf215"))


@pytest.fixture(scope="module", params=["MirroredStrategy", WORKERS])
def processes(request):
    return strategy_scenarios.run_loops(request.param, REPLICAS, STEPS)


@pytest.fixture
def loops(processes, inner_name):
    """Of each inner optimizer: what each process saw."""
    return [process[inner_name] for process in processes]


def test_all_replicas_belong_to_one_training(processes):
    """Each process knows of four, so the test does not pass with one."""
    assert [process["replicas"] for process in processes] == [REPLICAS] * len(processes)
    assert len(replica_comparisons.replicas_of(processes, "SGD")) == REPLICAS


def test_the_schedule_has_what_it_is_for(loops):
    """Each kind of bad number comes on each replica alone, and after that there are good steps and bad ones."""
    is_good = [state["is_good"] for state in loops[0]["reference"]]
    assert is_good[: 2 * len(SINGLE)] == [True, False] * len(SINGLE)
    assert {True, False} == {*is_good[2 * len(SINGLE) :]}


def test_a_bad_number_on_one_replica_makes_all_skip(loops):
    """NaN, inf and -inf on each alone: weights and slots of all stay as they were, and the scale halves on all."""
    for loop in loops:
        for step, _ in SINGLE:
            before, after = loop["ours"]["states"][step - 1 : step + 1]
            kept = [name for name in after if name in ("kernel", "bias") or name.startswith("slot")]
            assert len(kept) >= 4
            assert {name: after[name] for name in kept} == {name: before[name] for name in kept}, step
            assert np.isfinite(after["kernel"]).all()
            assert set(after["current_loss_scale"]) == {before["scale"] / 2}
            assert set(after["good_steps"]) == {0}


def test_a_good_step_after_a_skipped_one_is_applied_on_all(loops):
    """The weights of all replicas move."""
    for loop in loops:
        for step, _ in SINGLE[:-1]:
            skipped, following = loop["ours"]["states"][step : step + 2]
            assert all(after != before for after, before in zip(following["kernel"], skipped["kernel"]))
            assert set(following["good_steps"]) == {1}


def test_replicas_are_bit_identical_at_every_step(processes, inner_name):
    """Every number that a step may change is the same on all replicas after each step."""
    assert replica_comparisons.differing_states(processes, inner_name) == 0


def test_all_steps_equal_a_training_without_a_strategy(processes, inner_name):
    """The bare optimizer, given the summed gradients of the good steps, gets the same weights."""
    assert len(processes[0][inner_name]["ours"]["states"]) == STEPS
    assert replica_comparisons.largest_difference(processes, inner_name) <= 1e-6


def test_all_steps_have_the_scale_and_the_counters_of_the_rule(processes, inner_name):
    """Scale, counter, iterations and counters of skipped steps are those of the rule, written out in plain Python."""
    assert replica_comparisons.wrong_counters(processes, inner_name) == 0
    assert replica_comparisons.skipped_steps(processes, inner_name) > len(SINGLE)


def test_all_steps_equal_those_of_tensorflows_own_class(processes):
    """Every number of every step is what TensorFlow's own class gives."""
    for process in processes:
        ours_and_theirs = [process[COMPARED]["comparable"][wrapper]["states"] for wrapper in ("ours", "tensorflow")]
        for step, (ours, theirs) in enumerate(zip(*ours_and_theirs)):
            assert ours.keys() == theirs.keys()
            for name in ours:
                np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-6, atol=1e-6, err_msg=str((step, name)))


def test_where_tensorflows_own_class_applies_a_nan_of_one_replica(processes):
    """It skips as ours does, but for that of Keras 3: there a NaN on another replica than the first reaches all."""
    if len(processes) > 1 and installed_keras.LOOKS_AT_FIRST_REPLICA_ONLY:
        assert "tensorflow" not in processes[0][COMPARED]  # such a run did not end
        return
    states = processes[0][COMPARED]["tensorflow"]["states"]
    for step, replica in SINGLE[:2]:
        is_applied = installed_keras.LOOKS_AT_FIRST_REPLICA_ONLY and replica > 0
        assert {*np.isnan(states[step]["kernel"]).any(axis=1).tolist()} == {is_applied}
        assert (set(states[step]["good_steps"]) == {0}) != is_applied


def test_no_step_is_traced_after_the_first(loops):
    """Finite and non-finite steps share a graph; the first call traces no more often than with TensorFlow's class."""
    for loop in loops:
        assert set(loop["ours"]["traces"]) == {loop["ours"]["traces"][0]}
        if "comparable" in loop:
            ours, theirs = (loop["comparable"][wrapper]["traces"][0] for wrapper in ("ours", "tensorflow"))
            assert ours <= theirs


def test_a_policy_sees_the_gradients_of_all_replicas(processes):
    """The largest magnitude is the largest of all, the share of zeros their mean."""
    for process in processes:
        assert process["report"]["state"] == {"current_loss_scale": 1.0, "largest": 8.0, "zero_share": 0.25}
        assert all(values == [5.0, 8.0] for values in process["report"]["values"])
