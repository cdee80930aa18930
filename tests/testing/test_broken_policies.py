"""Policies that are broken on purpose, one for each check that needs no TensorFlow: each fails that check alone.

Checks in TensorFlow are left out here: they rest on these, so that a policy that fails one of these fails some of them.
"""

from typing import ClassVar, Dict, Tuple

import threading
import time

import numpy as np
import pytest

import scalekeeper
from scalekeeper.testing import CHECKS, check_loss_scale

IN_TENSORFLOW = [check.name for check in CHECKS if check.needs_tensorflow]


class Sound(scalekeeper.LossScale):
    """Halves at each non-finite step, never below 1; doubles after three good ones, while it is finite."""

    class Params(scalekeeper.LossScaleParams):
        start: float = 1024.0

    def initial_state(self):
        return {"current_loss_scale": np.float32(self.params.start), "good_steps": np.int64(0)}

    def next_state(self, state, report, ops):
        scale, good_steps = state["current_loss_scale"], state["good_steps"] + ops.int64(1)
        is_due = good_steps >= ops.int64(3)
        doubled = scale * ops.float32(2)
        doubled = ops.where(ops.isfinite(doubled), doubled, scale)
        halved = ops.maximum(scale * ops.float32(0.5), ops.float32(1))
        counted = ops.where(ops.logical_and(report.finite, ops.logical_not(is_due)), good_steps, ops.int64(0))
        return {
            "current_loss_scale": ops.where(report.finite, ops.where(is_due, doubled, scale), halved),
            "good_steps": counted,
        }


class LeavesOutAParameter(Sound):
    def get_config(self):
        return {}


class TuplesInItsConfiguration(Sound):
    class Params(Sound.Params):
        levels: Tuple[float, ...] = (1.0, 2.0)


class OneInitialState(Sound):
    _state: ClassVar[Dict[str, object]] = {}

    def initial_state(self):
        self._state.update(super().initial_state())
        return self._state


class ChangesWhatItIsGiven(Sound):
    def next_state(self, state, report, ops):
        following = dict(super().next_state(dict(state), report, ops))
        state["good_steps"] = following["good_steps"]
        return following


class ReadsMoreThanItNeeds(Sound):
    def next_state(self, state, report, ops):
        if report.zero_share is not None:
            return state
        return super().next_state(state, report, ops)


class DecidesInWords(Sound):
    def should_apply(self, state, report, ops):
        return "yes" if report.finite else ""


class HasNoFloor(Sound):
    def next_state(self, state, report, ops):
        halved = state["current_loss_scale"] * ops.float32(0.5)
        following = dict(super().next_state(state, report, ops))
        following["current_loss_scale"] = ops.where(report.finite, following["current_loss_scale"], halved)
        return following


class BelowItsMinimum(Sound):
    class Params(Sound.Params):
        minimum: float = 8.0


class NeverRecovers(Sound):
    """Grows at the third good step, and not at a later one: a counter that has passed it never comes back."""

    def next_state(self, state, report, ops):
        following = dict(super().next_state(state, report, ops))
        is_stuck = state["current_loss_scale"] <= ops.float32(1)
        following["current_loss_scale"] = ops.where(
            is_stuck, state["current_loss_scale"], following["current_loss_scale"]
        )
        return following


class ForgetsItsCounter(Sound):
    def load_state(self, state):
        super().load_state(dict(state, good_steps=0))


class TakesAnyState(Sound):
    def load_state(self, state):
        super().load_state({**self.state(), **{name: state[name] for name in self.state() if name in state}})


class NotesInTheClass(Sound):
    """Writes a number down in the class, and reads it again when another thread has written its own."""

    _note: ClassVar[Dict[str, object]] = {}

    def next_state(self, state, report, ops):
        self._note["scale"] = state["current_loss_scale"]
        if threading.current_thread() is not threading.main_thread():
            time.sleep(1e-4)
        return super().next_state(dict(state, current_loss_scale=self._note["scale"]), report, ops)


BROKEN = [
    (LeavesOutAParameter, "config_round_trip", "get_config leaves out start. A policy whose value is not the default "),
    (
        TuplesInItsConfiguration,
        "json_round_trip",
        "levels: [1.0, 2.0] must be a tuple) after JSON. JSON has numbers, text",
    ),
    (OneInitialState, "initial_state", "the same object. Make a new mapping at each call, of the parameters alone."),
    (ChangesWhatItIsGiven, "step_is_pure", "Return a new mapping, and leave the argument unchanged."),
    (
        ReadsMoreThanItNeeds,
        "needs_are_honoured",
        "reads report.zero_share, and needs names ['finite']. Add 'zero_share'",
    ),
    (DecidesInWords, "decision", "should_apply gave 'yes' at step 0. Return report.finite, or what ops makes of"),
    (HasNoFloor, "bounds", "Put a floor under it, such as ops.maximum(scale, ops.float32(1))"),
    (BelowItsMinimum, "bounds", "beyond the policy's own bound, 8.0. Keep to minimum and maximum with ops.maximum"),
    (
        NeverRecovers,
        "bounds",
        "and leave it at 1 after a long run of bad ones. Forget non-finite steps when finite ones come",
    ),
    (ForgetsItsCounter, "state_round_trip", "Have load_state take, and state() give, every piece of the state"),
    (TakesAnyState, "other_states_are_refused", "call super().load_state(state) first: it refuses a state whole."),
    (NotesInTheClass, "objects_share_nothing", "in threads at once differ from one stepped alone"),
]


def test_the_sound_one_passes():
    """The base class of the broken policies passes every check, so each fails by its own defect."""
    report = check_loss_scale(Sound, leave_out=IN_TENSORFLOW)
    assert [each.check for each in report.passed] == [check.name for check in CHECKS if not check.needs_tensorflow]


@pytest.mark.parametrize(("cls", "check", "message"), BROKEN, ids=lambda value: getattr(value, "__name__", None))
def test_a_broken_policy_fails_that_check_alone(cls, check, message):
    """The error names the check, and says what was seen and what to do."""
    with pytest.raises(scalekeeper.BrokenContractError) as caught:
        check_loss_scale(cls, leave_out=IN_TENSORFLOW)
    assert [name for name, _ in caught.value.failures] == [check]
    assert message in str(caught.value)


def test_there_is_a_broken_policy_for_each_check():
    """Also for one that is added."""
    assert {check for _, check, _ in BROKEN} == {check.name for check in CHECKS if not check.needs_tensorflow}
