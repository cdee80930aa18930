"""A policy that breaks its contract gets an error that names the policy, the method, its result and the contract."""

import numpy as np
import pytest

import scalekeeper
from scalekeeper import PolicyContractError, StateTypeError, Trace
from scalekeeper_test_support.broken_policies import BROKEN, make

TRACE = Trace([1.0, np.inf, 1.0])


@pytest.mark.parametrize("name", sorted(name for name, each in BROKEN.items() if each.in_numpy))
def test_a_simulation_names_the_policy_the_method_and_the_contract(name):
    """The message has what was returned and what the contract asks for; the error behind it is its cause."""
    broken = BROKEN[name]
    with pytest.raises(PolicyContractError) as caught:
        scalekeeper.simulate(make(name)(), TRACE)
    assert str(caught.value).startswith(f"{name}.{broken.method} ")
    for part in broken.message:
        assert part in str(caught.value)


@pytest.mark.parametrize("name", ["NoReturn", "NoDecision", "NoScale", "FloatInInitialState"])
def test_a_policy_without_an_optimizer_raises_the_same_error(name):
    """Calling it and ``update`` check what the policy returns."""

    def use():
        policy = make(name)()
        policy()
        policy.update([np.float32(1)])

    with pytest.raises(PolicyContractError, match=f"^{name}."):
        use()


def test_an_error_of_the_policy_itself_passes():
    """Only errors of wrong names, types, dtypes and shapes are explained; a policy may raise another one."""

    class Stops(make("Sound")):
        def next_state(self, state, report, ops):
            raise RuntimeError("at the floor")

    with pytest.raises(RuntimeError, match="^at the floor$"):
        scalekeeper.simulate(Stops(), TRACE)


def test_another_name_for_the_loss_scale_gets_both_remedies():
    """Without ``scale``, the loss scale is the entry ``current_loss_scale``; the error names both remedies."""

    class OtherName(scalekeeper.LossScale):
        def initial_state(self):
            return {"factor": np.float32(8)}

        def next_state(self, state, report, ops):
            return dict(state)

    with pytest.raises(PolicyContractError) as caught:
        scalekeeper.simulate(OtherName(), TRACE)
    assert "the state has the entries 'factor'" in str(caught.value)
    assert "name the loss scale 'current_loss_scale', or define scale(self, state, ops)" in str(caught.value)


def test_a_changed_state_is_a_state_type_error():
    """The class that was raised before is kept, and is one of the contract errors."""
    with pytest.raises(StateTypeError) as caught:
        scalekeeper.simulate(make("ExtraEntry")(), TRACE)
    assert isinstance(caught.value, (PolicyContractError, TypeError))


def test_a_simulation_of_a_sound_policy_runs():
    """The policy from which the broken ones derive keeps the contract."""
    assert scalekeeper.simulate(make("Sound")(), TRACE).scale.tolist() == [1024.0, 1024.0, 512.0]
