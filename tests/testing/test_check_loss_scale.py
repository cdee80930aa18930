"""check_loss_scale and its report: what it takes, what it says, and what it does without TensorFlow."""

import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

import scalekeeper
from scalekeeper import BrokenContractError, InvalidSpecError, LossScale
from scalekeeper.registry import loss_scales
from scalekeeper.testing import CHECKS, check_loss_scale
from scalekeeper.testing._subject import Subject

IN_TENSORFLOW = [check.name for check in CHECKS if check.needs_tensorflow]
# those that have parameters without a default, and those whose state must be told to change
PARAMETERS = {
    "fixed": {"loss_scale_value": 8},
    "scheduled": {"values": [64.0, 1000.0, 3.0], "boundaries": [50, 200]},
    "none": {"skip_nonfinite": True, "apply_after_skips": 1},
}


class Falling(LossScale):
    """Halves at every non-finite step, without an end."""

    def initial_state(self):
        return {"current_loss_scale": np.float32(8)}

    def next_state(self, state, report, ops):
        scale = state["current_loss_scale"]
        return {"current_loss_scale": ops.where(report.finite, scale, scale * ops.float32(0.5))}


@pytest.mark.parametrize("name", [row.name for row in loss_scales.listing() if row.origin == "built in"])
def test_every_registered_policy_and_preset_passes(name):
    """Each built-in policy passes all checks that need no TensorFlow."""
    report = check_loss_scale({"name": name, **PARAMETERS.get(name, {})}, leave_out=IN_TENSORFLOW)
    assert (len(report.passed), report.failed) == (len(CHECKS) - len(IN_TENSORFLOW), [])


def test_every_check_has_a_sentence():
    """One line, which says what must hold."""
    for check in CHECKS:
        assert re.fullmatch(r"[^\n]{30,130}\.", check.sentence), check
    assert len({check.name for check in CHECKS}) == len(CHECKS)


@pytest.mark.parametrize(
    ("spec", "label"),
    [
        (scalekeeper.DynamicLossScale, "DynamicLossScale"),
        (scalekeeper.DynamicLossScale(increment_period=3), "DynamicLossScale"),
        ("dynamic/jmp", "dynamic/jmp"),
        ({"name": "dynamic", "increment_period": 3}, "dynamic(increment_period=3)"),
        (128, "128"),
    ],
)
def test_what_can_be_checked(spec, label):
    """A class, an object, a name, a mapping, a number."""
    assert check_loss_scale(spec, leave_out=IN_TENSORFLOW).policy == label


def test_an_object_is_left_as_it_is():
    """Its parameters are checked, in objects of their own."""
    policy = scalekeeper.DynamicLossScale(increment_period=3)
    policy.load_state({"current_loss_scale": 4.0, "good_steps": 2})
    check_loss_scale(policy, leave_out=IN_TENSORFLOW)
    assert policy.state() == {"current_loss_scale": 4.0, "good_steps": 2}


def test_a_long_period_is_no_reason_for_a_state_that_has_not_moved():
    """Every piece of the state is another than at the start, though the scale would first grow after 2000 steps."""
    assert Subject("dynamic").moved_state() == {"current_loss_scale": 16384.0, "good_steps": 1}
    moved = Subject({"name": "dynamic", "hysteresis": 9, "increment_period": 7000}).moved_state()
    assert moved["current_loss_scale"] != 2.0**15


def test_required_parameters_say_what_to_pass():
    """The class alone is not enough."""
    with pytest.raises(InvalidSpecError, match=r"no default for loss_scale_value: check an object, FixedLossScale\("):
        check_loss_scale(scalekeeper.FixedLossScale)
    with pytest.raises(InvalidSpecError, match="parameters, instead of the name$"):
        check_loss_scale("fixed")


def test_what_is_no_policy_is_refused():
    """Once, and not by every check."""
    with pytest.raises(InvalidSpecError, match="Empty has neither next_state"):
        check_loss_scale(type("Empty", (LossScale,), {}))
    with pytest.raises(InvalidSpecError, match="int is not a loss scale: it has no __call__ and no update"):
        check_loss_scale(int)


def test_an_unknown_check_is_refused():
    """With what was perhaps meant."""
    with pytest.raises(InvalidSpecError, match="unknown check 'bound'; did you mean 'bounds'"):
        check_loss_scale("dynamic", leave_out=["bound"])


def test_the_error_lists_what_failed():
    """It is ours, and an AssertionError, and can be sent to another process."""
    with pytest.raises(AssertionError) as caught:
        check_loss_scale(Falling, leave_out=IN_TENSORFLOW)
    error = caught.value
    assert isinstance(error, scalekeeper.ScalekeeperError)
    assert str(error).startswith("Falling: 9 passed, 1 failed, 9 not run\n  bounds: the scale is ")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.failures) == (BrokenContractError, str(error), error.failures)


def test_an_error_of_the_policy_is_said_with_its_line():
    """The line of the author's own file, and what must hold."""

    class Raising(Falling):
        def should_apply(self, state, report, ops):
            raise ZeroDivisionError("oh")

    with pytest.raises(BrokenContractError) as caught:
        check_loss_scale(Raising, leave_out=[check.name for check in CHECKS if check.name != "decision"])
    ((name, message),) = caught.value.failures
    assert name == "decision"
    assert re.match(
        r"ZeroDivisionError: oh \(test_check_loss_scale.py:\d+, in should_apply\)\. What must hold: ", message
    )


def test_the_report_is_a_table():
    """A line for each check, with its reason."""
    lines = repr(check_loss_scale("dynamic", leave_out=IN_TENSORFLOW)).splitlines()
    assert lines[0] == "dynamic: 10 passed, 0 failed, 9 not run"
    assert lines[1].split() == ["config_round_trip", "passed"]
    assert lines[-1].split(maxsplit=1) == ["replicas_agree", "not run  left out by the caller"]
    assert len(lines) == 1 + len(CHECKS)


def test_a_state_that_never_moves_is_not_shown_as_kept():
    """A check that could not fail is not run."""

    class Still(Falling):
        def next_state(self, state, report, ops):
            return state

    report = check_loss_scale(Still, leave_out=IN_TENSORFLOW)
    reasons = {each.check: each.message for each in report.not_run if each.check not in IN_TENSORFLOW}
    assert sorted(reasons) == ["json_round_trip", "other_states_are_refused", "state_round_trip"]
    assert reasons["state_round_trip"].startswith("no step of 10,000 changes the state")


def test_a_module_that_checks_at_once(monkeypatch):
    """The process of the replicas, which imports it, says what to do, instead of starting yet another."""
    monkeypatch.setenv("SCALEKEEPER_REPLICA_PROCESS", "1")
    with pytest.raises(RuntimeError, match="put the call under `if __name__ == '__main__':`"):
        check_loss_scale("dynamic")


def test_without_tensorflow_its_checks_are_not_run():
    """They say so, and neither TensorFlow nor pytest is imported by the room."""
    code = """
import sys
sys.modules["tensorflow"] = None
import scalekeeper.testing
assert "pytest" not in sys.modules
report = scalekeeper.testing.check_loss_scale("dynamic")
print(len(report.passed), *sorted({each.message.partition(":")[0] for each in report.not_run}))
"""
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert printed == "10 needs TensorFlow, which can't be imported\n"
