"""Custom loops under MirroredStrategy, over two logical CPUs."""

import inspect

import installed_keras
import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.filterwarnings("ignore")
# the words for it: since 2.2 the first, from 2.11 on the second
CAN_APPLY_UNAGGREGATED = {"experimental_aggregate_gradients", "skip_gradients_aggregation"} & {
    *inspect.signature(tf.keras.optimizers.SGD.apply_gradients).parameters
}


@pytest.fixture(scope="module")
def found(run_scenario):
    return run_scenario("mirrored")


@pytest.fixture
def loop(found, inner_name):
    """Of each inner optimizer: what ours, TensorFlow's own class and the bare optimizer did in the same 100 steps."""
    return found["custom_loops"][inner_name]


def test_the_schedule_has_what_it_is_for(loop):
    """Steps 1 and 3 are bad on one replica alone, and the 100 steps hold many of both kinds."""
    is_good = [state["is_good"] for state in loop["reference"]]
    assert is_good[:5] == [True, False, True, False, True]
    assert len(is_good) == 100
    assert 10 <= is_good.count(False) <= 40


@pytest.mark.parametrize("bad_step", [1, 3], ids=["NaN on replica 0", "NaN on replica 1"])
def test_a_nan_on_one_replica_makes_both_skip(loop, bad_step):
    """The weights, the slots and so both replicas stay as they were, and the scale halves."""
    states = loop["ours"]["states"]
    before, after = states[bad_step - 1], states[bad_step]
    kept = [name for name in after if name in ("kernel", "bias") or name.startswith("slot")]
    assert len(kept) >= 4
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert np.isfinite(after["kernel"]).all()
    assert after["current_loss_scale"] == [before["scale"] / 2] * 2
    assert after["good_steps"] == [0, 0]


@pytest.mark.parametrize("bad_step", [1, 3], ids=["NaN on replica 0", "NaN on replica 1"])
def test_a_good_step_after_a_skipped_one_is_applied_on_both(loop, bad_step):
    """Both replicas' weights move, and to the same bits."""
    skipped, following = loop["ours"]["states"][bad_step], loop["ours"]["states"][bad_step + 1]
    assert following["kernel"][0] != skipped["kernel"][0]
    assert following["kernel"][0] == following["kernel"][1]
    assert following["good_steps"] == [1, 1]


def test_replicas_are_bit_identical_at_every_step(loop):
    """Every variable has the same bits on both replicas after each of the 100 steps."""
    for step, state in enumerate(loop["ours"]["states"]):
        for name, values in state.items():
            if name != "scale":
                assert len(values) == 2, (step, name)
                assert values[0] == values[1], (step, name)


def test_a_hundred_steps_equal_a_training_without_a_strategy(loop):
    """The bare optimizer, given the summed gradients of the good steps, gets the same weights."""
    for step, (state, expected) in enumerate(zip(loop["ours"]["states"], loop["reference"])):
        np.testing.assert_allclose(state["kernel"][0], expected["kernel"], rtol=1e-6, atol=1e-6, err_msg=str(step))
        np.testing.assert_allclose(state["bias"][0], expected["bias"], rtol=1e-6, atol=1e-6, err_msg=str(step))


def test_a_hundred_steps_have_the_scale_of_the_rule(loop):
    """Scale, counter and iterations are those of the rule, written out in plain Python."""
    names = ("current_loss_scale", "good_steps", "iterations")
    actual = [[state[name][0] for name in names] for state in loop["ours"]["states"]]
    assert actual == [[state["scale"], state["good_steps"], state["iterations"]] for state in loop["reference"]]
    assert [state["scale"] for state in loop["ours"]["states"]] == [state["scale"] for state in loop["reference"]]


def test_a_hundred_steps_equal_those_of_tensorflows_own_class(loop):
    """Every number of every step is what TensorFlow's own class gives."""
    ours_and_theirs = [loop["comparable"][wrapper]["states"] for wrapper in ("ours", "tensorflow")]
    for step, (ours, theirs) in enumerate(zip(*ours_and_theirs)):
        assert ours.keys() == theirs.keys()
        for name in ours:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-6, atol=1e-6, err_msg=str((step, name)))


@pytest.mark.parametrize("bad_step", [1, 3], ids=["NaN on replica 0", "NaN on replica 1"])
def test_where_tensorflows_own_class_applies_a_nan_of_one_replica(loop, bad_step):
    """It skips as ours does, but for that of Keras 3: there a NaN on replica 1 alone reaches the weights of both."""
    is_applied = installed_keras.LOOKS_AT_FIRST_REPLICA_ONLY and bad_step == 3
    theirs, ours = (loop[wrapper]["states"][bad_step] for wrapper in ("tensorflow", "ours"))
    assert np.isnan(theirs["kernel"]).any(axis=1).tolist() == [is_applied] * 2
    assert theirs["good_steps"] == ([2, 2] if is_applied else [0, 0])
    assert np.isfinite(ours["kernel"]).all()
    assert ours["good_steps"] == [0, 0]


def test_no_step_is_traced_after_the_first(loop):
    """Good and bad steps share one graph; the first call traces as often as with TensorFlow's own class."""
    assert set(loop["ours"]["traces"]) == {loop["ours"]["traces"][0]}
    assert loop["comparable"]["ours"]["traces"][0] <= loop["comparable"]["tensorflow"]["traces"][0]


def test_sparse_gradients_are_summed_before_they_are_judged(found):
    """A NaN on replica 1 skips, and so do finite slices of replica 0 that overflow in one row."""
    first = [[-6.0, -6.0], [0.0, 0.0], [-6.0, -6.0]]
    last = [[-8.0, -8.0], [0.0, 0.0], [-8.0, -8.0]]
    assert found["sparse"]["values"] == [[first] * 2, [first] * 2, [first] * 2, [last] * 2]
    assert found["sparse"]["state"] == {"current_loss_scale": 2.0**13, "good_steps": 1}


def test_a_policy_sees_the_gradients_of_all_replicas(found):
    """The largest magnitude is the largest of both, the share of zeros their mean."""
    assert found["report"]["state"] == {"current_loss_scale": 1.0, "largest": 8.0, "zero_share": 0.25}
    assert found["report"]["values"] == [[[[2.5, 4.0]] * 3] * 2]


def test_a_fixed_scale_that_skips_does_so_on_both_replicas(found):
    """An infinity on replica 1 alone is skipped by both."""
    assert found["fixed"]["True"] == [[[[value] * 2] * 3] * 2 for value in (-3.0, -3.0, -7.0)]


def test_a_fixed_scale_applies_everything_by_default(found):
    """An infinity on replica 1 alone reaches the weights of both, and what follows is as with the bare optimizer."""
    infinity = float("inf")
    assert found["fixed"]["False"][:2] == [[[[value] * 2] * 3] * 2 for value in (-3.0, -infinity)]
    # a step further it is still -inf on some versions, NaN on others
    np.testing.assert_array_equal(found["fixed"]["False"], found["fixed"]["bare"])
    assert not np.isfinite(found["fixed"]["False"][2]).any()


def test_telemetry_speaks_of_all_replicas(found):
    """A step is counted once, whoever was bad, and what is watched is the largest and the mean of both."""
    names = ("steps", "skipped", "skipped_in_a_row", "largest_magnitude", "zero_share")
    told = [[each[name] for name in names] for each in found["telemetry"]["telemetry"]]
    infinity = float("inf")
    assert told == [[1, 0, 0, 2, 0], [2, 1, 1, infinity, 0], [3, 2, 2, infinity, 0.5], [4, 2, 0, 3, 0.5]]
    assert [each["overflows"] for each in found["telemetry"]["telemetry"]] == [{"table": n} for n in (0, 1, 2, 2)]


def test_a_run_that_is_stuck_on_all_replicas_ends(found):
    """The error is the graph's, and every replica has counted the same."""
    assert found["telemetry"]["error"]["type"] == "InvalidArgumentError"
    assert "3_steps_in_a_row_were_skipped" in found["telemetry"]["error"]["message"]
    assert found["telemetry"]["stuck"]["skipped_in_a_row"] == 3
    assert found["telemetry"]["stuck"]["last_overflows"] == ["table"]
    assert sorted(found["telemetry"]["counters"]) == [[3, 3], [5, 5], [7, 7]]


def test_gradients_that_are_summed_already(found):
    """They are applied once, and skipped by both replicas; where the inner optimizer can't, the error says so."""
    result = found["already_summed"]
    if CAN_APPLY_UNAGGREGATED:
        assert result == {"values": [[[[-3.0] * 2] * 3] * 2] * 2, "error": None}
    else:
        assert result["values"] == []
        assert result["error"]["type"] == "ValueError"
        assert "can't apply gradients without aggregating them" in result["error"]["message"]
        if not installed_keras.IS_KERAS_3:
            assert "use TensorFlow 2.2 or newer" in result["error"]["message"]


def test_apply_gradients_outside_of_a_replica_is_refused(found):
    """Eagerly and while tracing it is a ValueError that says where to call it, and nothing changes."""
    result = found["cross_replica"]["ours"]
    message = "apply_gradients must be called in a replica context: inside strategy.run, not around it"
    assert result["errors"] == [{"type": "ValueError", "message": message}] * 2
    assert result["values"] == [1.0, 1.0]
    assert [error["type"] for error in found["cross_replica"]["tensorflow"]["errors"]] == ["ValueError"] * 2


def test_variables_on_two_devices_need_no_strategy(found):
    """A model that is spread over two devices trains, and skips, as with TensorFlow's own class."""
    expected = [[[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]], [[-1.5, -1.5], [-3.0, -3.0]]]
    assert found["two_devices"]["ours"] == {"values": expected, "scale": 512.0}
    assert found["two_devices"]["tensorflow"] == found["two_devices"]["ours"]


def test_a_step_stays_on_the_device_of_its_variables(found):
    """No operation of a training on the second device is put on the first, the host's."""
    names = {device for devices in found["pinned"]["devices"].values() for device in devices}
    assert {name[-5:] for name in names} - {""} == {"CPU:1"}
    assert found["pinned"]["state"] == {"current_loss_scale": 1024.0, "good_steps": 1}
