"""The checks of policies on the installed TensorFlow: ours pass, and broken ones fail the right one.

All of them share one process for the check of replicas.
"""

import numpy as np
import pytest
import tensorflow as tf

from scalekeeper import LossScale
from scalekeeper.registry import loss_scales
from scalekeeper.testing import CHECKS, loss_scale_checks
from scalekeeper.testing._check_runner import outcome_of
from scalekeeper.testing._subject import Subject
from scalekeeper_test_support.installed_keras import IS_KERAS_3

# each built-in policy; of the presets of dynamic, one stands for all
POLICIES = [
    "adaptive_window",
    "dynamic",
    "dynamic/megatron",
    {"name": "fixed", "loss_scale_value": 8, "skip_nonfinite": True},
    "log_max",
    {"name": "none", "skip_nonfinite": True, "apply_after_skips": 1},
    {"name": "scheduled", "values": [64.0, 1000.0, 3.0], "boundaries": [50, 200], "schedule": "linear"},
    "tolerant",
]
CONTRACT = loss_scale_checks(*POLICIES)
TOGETHER = CONTRACT.args[1][0].subject.companions


@pytest.mark.slow("py38-tf23", "py310-tf210", "py311-tf215", "py313-tf221-tfkeras", is_divided=True)
@CONTRACT
def test_contract(check):
    """One check of one built-in policy."""
    check()


def test_none_is_missing():
    """A new policy gets a line above."""
    names = {spec if isinstance(spec, str) else spec["name"] for spec in POLICIES}
    registered = {row.name for row in loss_scales.listing() if row.origin == "built in" and "/" not in row.name}
    assert names - {"dynamic/megatron"} == registered


class Sound(LossScale):
    """A third at each non-finite step, never below 1, and counts them."""

    class Params(LossScale.Params):
        start: float = 1000.0

    def initial_state(self):
        return {"current_loss_scale": np.float32(self.params.start), "overflows": np.int64(0)}

    def next_state(self, state, report, ops):
        smaller = ops.maximum(self.smaller(state["current_loss_scale"], ops), ops.float32(1))
        return {
            "current_loss_scale": ops.where(report.finite, state["current_loss_scale"], smaller),
            "overflows": ops.where(report.finite, state["overflows"], state["overflows"] + ops.int64(1)),
        }

    def smaller(self, scale, ops):
        return scale * (ops.float32(1) / ops.float32(3))


class Divides(Sound):
    """By a constant: TensorFlow's graph multiplies by its reciprocal instead, which differs in the last bit."""

    def smaller(self, scale, ops):
        return scale / ops.float32(3)


class MakesAVariable(Sound):
    """In its first step, which is traced again without it."""

    counter = None

    def next_state(self, state, report, ops):
        # no strategy lets a step make one: that is another failure
        if self.counter is None and tf.is_tensor(state["overflows"]) and not tf.distribute.has_strategy():
            self.counter = tf.Variable(0)
        return super().next_state(state, report, ops)


class InTensorFlowsStyle(LossScale):
    """Halves at each non-finite step, never below 1; looks at the gradients of every replica."""

    def __init__(self, start=1024.0):
        self.start = start
        self.current = tf.Variable(start, trainable=False)

    def __call__(self):
        return tf.convert_to_tensor(self.current)

    def update(self, grads):
        local = [each for grad in grads for each in self.looked_at(grad)]
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(each)) for each in local])
        return self.current.assign(tf.maximum(self.current * tf.where(finite, 1.0, 0.5), 1.0)), finite

    def looked_at(self, grad):
        return tf.distribute.get_strategy().experimental_local_results(grad)

    def get_config(self):
        return {"start": self.start}


class NeedsAReplica(InTensorFlowsStyle):
    """Asks in which replica it is called: the decision is taken once for all of them, outside of each."""

    def looked_at(self, grad):
        tf.distribute.get_replica_context().replica_id_in_sync_group  # noqa: B018
        return super().looked_at(grad)


class VariableInATuple(InTensorFlowsStyle):
    """Where nobody looks for it."""

    @property
    def current(self):
        return self.parts[0]

    @current.setter
    def current(self, variable):
        self.parts = (variable,)


class UntrackedVariable(InTensorFlowsStyle, tf.Module):
    """Past TensorFlow, which tracks what is set as an attribute; a policy tracks its variables by itself."""

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)


FILES = ["state_in_state_dict", "state_in_npz", "state_in_h5", "state_in_keras"]
FILES += ["state_in_checkpoint"] if IS_KERAS_3 else ["state_in_saved_model", "state_in_checkpoint"]
BROKEN = [
    (Sound, [], ""),
    (Divides, ["graph_step"], "instead of dividing by a constant"),
    (MakesAVariable, ["no_retracing"], "were traced 2 times. Make variables in the constructor"),
    (InTensorFlowsStyle, [], ""),
    (NeedsAReplica, ["replicas_agree"], "gets the gradients of all replicas, and has to look at each"),
    (UntrackedVariable, [], ""),
    # every format holds the variables that are found: what is not found is in none of them
    (VariableInATuple, FILES, "Keep every tf.Variable in an attribute of its own"),
]


SUBJECTS = {cls: Subject(cls) for cls, _, _ in BROKEN}
TOGETHER += SUBJECTS.values()
for each in SUBJECTS.values():
    each.companions = TOGETHER


@pytest.mark.slow("py38-tf23", "py310-tf210", "py311-tf215", "py313-tf221-tfkeras", is_divided=True)
@pytest.mark.parametrize(("cls", "checks", "message"), BROKEN, ids=lambda value: getattr(value, "__name__", None))
def test_a_broken_policy_fails_the_right_check(cls, checks, message):
    """And no other; the message says what to do."""
    outcomes = [outcome_of(check, SUBJECTS[cls])[0] for check in CHECKS]
    failed = {each.check: each.message for each in outcomes if each.status == "failed"}
    assert list(failed) == checks, failed
    for text in failed.values():
        assert message in text


def test_what_does_not_apply_to_tensorflows_style():
    """Checks of the pure step are not run, and say why."""
    outcomes = [outcome_of(check, SUBJECTS[InTensorFlowsStyle])[0] for check in CHECKS if check.needs_pure_step]
    assert [each.check for each in outcomes] == [
        *("initial_state", "step_is_pure", "needs_are_honoured", "decision"),
        *("state_round_trip", "other_states_are_refused"),
    ]
    assert {each.status for each in outcomes} == {"not run"}
    assert outcomes[0].message.startswith("needs the pure step (next_state)")


def test_there_is_a_broken_policy_for_each_check():
    """Also for one that is added; a SavedModel is not run on Keras 3."""
    expected = {check.name for check in CHECKS if check.needs_tensorflow} - (
        {"state_in_saved_model"} if IS_KERAS_3 else set()
    )
    assert {name for _, checks, _ in BROKEN for name in checks} == expected


def test_a_class_that_no_other_process_can_import():
    """Is a failure that says where to put it, before a process is started."""

    class Local(Sound):
        pass

    outcome, _ = outcome_of(CHECKS[-1], Subject(Local))
    assert (outcome.check, outcome.status) == ("replicas_agree", "failed")
    assert (
        "Local can't be imported by the process in which the replicas run. Put the class at the top" in outcome.message
    )
