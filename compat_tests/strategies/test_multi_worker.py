"""Custom loops under MultiWorkerMirroredStrategy: two processes on the loopback interface."""

import numpy as np
import pytest

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def workers(run_workers):
    return run_workers("worker", 2)


@pytest.fixture
def loops(workers, inner_name):
    """Of each inner optimizer: what each worker saw."""
    return [worker[inner_name] for worker in workers]


def test_both_workers_belong_to_one_training(workers):
    """Each of them knows of two replicas, so that what follows is no training of one."""
    assert [worker["replicas"] for worker in workers] == [2, 2]


@pytest.mark.parametrize("bad_step", [1, 3], ids=["NaN on worker 0", "NaN on worker 1"])
def test_a_nan_on_one_worker_makes_both_skip(loops, bad_step):
    """Weights and slots of both workers stay as they were, and the scale halves on both."""
    for loop in loops:
        before, after = loop["ours"]["states"][bad_step - 1 : bad_step + 1]
        kept = [name for name in after if name in ("kernel", "bias") or name.startswith("slot")]
        assert len(kept) >= 4
        assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
        assert np.isfinite(after["kernel"]).all()
        assert after["current_loss_scale"] == [before["scale"] / 2]


@pytest.mark.parametrize("bad_step", [1, 3], ids=["NaN on worker 0", "NaN on worker 1"])
def test_a_good_step_after_a_skipped_one_is_applied_on_both(loops, bad_step):
    """The weights of both workers move, and to the same bits."""
    first, second = ([state["kernel"] for state in loop["ours"]["states"]] for loop in loops)
    assert first[bad_step + 1] != first[bad_step]
    assert first[bad_step + 1] == second[bad_step + 1]


def test_workers_are_bit_identical_at_every_step(loops):
    """Every number that a step may change is the same on both workers after each step."""
    assert len(loops[0]["ours"]["states"]) == 30
    assert loops[0]["ours"]["states"] == loops[1]["ours"]["states"]


def test_all_steps_equal_a_training_without_a_strategy(loops):
    """The bare optimizer, given the summed gradients of the good steps, gets the same weights and scale."""
    reference = loops[0]["reference"]
    for step, (state, expected) in enumerate(zip(loops[0]["ours"]["states"], reference)):
        np.testing.assert_allclose(state["kernel"][0], expected["kernel"], rtol=1e-6, atol=1e-6, err_msg=str(step))
        np.testing.assert_allclose(state["bias"][0], expected["bias"], rtol=1e-6, atol=1e-6, err_msg=str(step))
        assert (state["scale"], state["iterations"]) == (expected["scale"], [expected["iterations"]]), step


def test_all_steps_equal_those_of_tensorflows_own_class(loops):
    """Every number of every step is what TensorFlow's own class gives."""
    ours_and_theirs = [loops[0]["comparable"][wrapper]["states"] for wrapper in ("ours", "tensorflow")]
    for step, (ours, theirs) in enumerate(zip(*ours_and_theirs)):
        assert ours.keys() == theirs.keys()
        for name in ours:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-6, atol=1e-6, err_msg=str((step, name)))


def test_no_step_is_traced_after_the_first(loops):
    """Good and bad steps share one graph."""
    for loop in loops:
        assert set(loop["ours"]["traces"]) == {loop["ours"]["traces"][0]}


def test_a_policy_sees_the_gradients_of_all_workers(workers):
    """The largest magnitude is the largest of both, the share of zeros their mean."""
    state = {"current_loss_scale": 1.0, "largest": 8.0, "zero_share": 0.25}
    assert [worker["report"] for worker in workers] == [{"values": [[2.5, 4.0]], "state": state}] * 2
