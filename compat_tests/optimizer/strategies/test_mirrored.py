"""Steps under MirroredStrategy, over two logical CPUs; test_loops.py has long loops over four."""

import inspect

import numpy as np
import pytest
import tensorflow as tf

from scalekeeper_test_support import installed_keras

# the words for it: since 2.2 the first, from 2.11 on the second
CAN_APPLY_UNAGGREGATED = {"experimental_aggregate_gradients", "skip_gradients_aggregation"} & {
    *inspect.signature(tf.keras.optimizers.SGD.apply_gradients).parameters
}


@pytest.fixture
def found(mirrored_results):
    return mirrored_results


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
    """A step is counted once, whichever replica overflowed; watched figures are the largest and the mean of both."""
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
        assert result["error"]["type"] == "ArgumentError"
        assert "can't apply gradients without aggregating them" in result["error"]["message"]
        if not installed_keras.IS_KERAS_3:
            assert "use TensorFlow 2.2 or newer" in result["error"]["message"]


def test_apply_gradients_outside_of_a_replica_is_refused(found):
    """Eagerly and while tracing it is a StrategyError that says where to call it, and nothing changes."""
    result = found["cross_replica"]["ours"]
    message = "apply_gradients must be called in a replica context: inside strategy.run, not around it"
    assert result["errors"] == [{"type": "StrategyError", "message": message}] * 2
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


def test_optimizers_that_share_a_loss_scale(found):
    """Each skips on both replicas if one of them overflows, and the loss scale is updated once in a step, on both."""
    decisions, weights, states = zip(*found["shared_steps"]["steps"])
    expected = [[True, True], [False, True], [True, False], [True, True], [True, True]]
    assert list(decisions) == [[each] * 2 for each in expected]
    values = [(-2, -3), (-2, -5), (-6, -5), (-8, -7), (-9, -8)]
    assert list(weights) == [[[[first]] * 2, [[second]] * 2] for first, second in values]
    assert [state["current_loss_scale"] for state in states] == [8.0, 4.0, 2.0, 2.0, 4.0]


def test_a_shared_step_around_the_replicas_is_refused(found):
    """Replicas that apply gradients are not in the step that was begun outside of them."""
    assert found["shared_steps"]["error"]["type"] == "UnsupportedOperationError"
    assert "in the function that the replicas run" in found["shared_steps"]["error"]["message"]
