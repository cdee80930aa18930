"""Policies without an optimizer on two replicas."""

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(run_scenario):
    return run_scenario("lone_policy")


def test_replicas_agree_as_with_tensorflows_own_class(found):
    """A non-finite gradient on either replica is one for all; in a function, in eager mode and in the replicas."""
    expected = found["tensorflow"]["in_cross_replica_context"]
    assert [scale for _, scale in expected] == [1024.0, 2048.0, 1024.0, 512.0, 512.0, 256.0, 256.0, 512.0]
    assert found["tensorflow"]["eagerly"] == expected
    for name in ("in_cross_replica_context", "eagerly", "in_replicas", "outside"):
        assert found["ours"][name] == expected, name


@pytest.mark.parametrize("policy", ["ours", "scheduled", "log_max"])
def test_steps_are_those_without_a_strategy(found, policy):
    """For policies that need nothing of the gradients and for those that need statistics."""
    for name in ("in_cross_replica_context", "eagerly", "in_replicas", "outside"):
        assert found[policy][name] == found[policy]["alone"], name


@pytest.mark.parametrize("policy", ["ours", "scheduled", "log_max"])
def test_the_state_is_the_same_on_all_replicas(found, policy):
    """It moves into a variable of each replica, wherever the policy is first called."""
    assert found[policy]["on_replicas"]
    assert all(one == other for one, other in found[policy]["on_replicas"])
    assert len(set(found[policy]["first_call"])) == 1
    assert len(found[policy]["first_call"]) == 4


def test_an_optimizer_in_the_scope_goes_on(found):
    """It takes over the variables that were made in the step of the replicas."""
    assert found["given_to_an_optimizer"] == {"current_loss_scale": 512.0, "good_steps": 0}
