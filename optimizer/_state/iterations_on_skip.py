"""Whether a skipped step advances ``iterations``."""

from typing import Any, Dict

import numpy as np
import tensorflow as tf

from ...registry._documents import SKIPPED_STEPS
from ...serialization._variable_io import assign, value_of
from ...serialization.keras.profile import SKIPPED_STEPS_CHILD
from .._step.gate import ADVANCE, HOLD, NATIVE, as_branch
from .._step.graph_state import make_variable


class SkippedSteps:
    """The choice, in a variable that is 1 or 0: so a checkpoint can bring it, and no step has to be traced anew.

    Files do without it as long as it says what TensorFlow's own class does anyway: then they are that class's files.
    """

    def __init__(self, choice: str, advances_natively: bool) -> None:
        require_valid(choice)
        self._native = ADVANCE if advances_natively else HOLD
        self._is_asked_for = choice != NATIVE
        self.variable = make_variable(SKIPPED_STEPS_CHILD, np.int64(self._resolved(choice) == ADVANCE))

    @property
    def choice(self) -> str:
        """``"advance"`` or ``"hold"``."""
        with tf.init_scope():  # a step that is being traced may ask
            return ADVANCE if value_of(self.variable) else HOLD

    @choice.setter
    def choice(self, choice: str) -> None:
        require_valid(choice)
        self._is_asked_for = False
        with tf.init_scope():
            assign(self.variable, np.int64(self._resolved(choice) == ADVANCE))

    def _resolved(self, choice: str) -> str:
        return self._native if choice == NATIVE else choice

    def in_config(self) -> Dict[str, str]:
        """What a configuration says of it: nothing, if nobody has asked for anything else than TensorFlow's own way."""
        choice = self.choice
        return {"skipped_steps": choice} if self._is_asked_for or choice != self._native else {}

    def in_file(self, is_saved_model: bool) -> Dict[str, Any]:
        """What a file holds of it, by name. In a SavedModel may be steps, and these need all that they use."""
        return {SKIPPED_STEPS_CHILD: self.variable} if is_saved_model or self.choice != self._native else {}

    def skip(self, iterations: Any) -> Any:
        """Count a skipped step, or not.

        What is added is a number of Python's: for a tensor, replicas that do without ``merge_call`` would have to meet.
        """
        is_counted = self.variable.read_value() > 0
        return tf.cond(is_counted, as_branch(lambda: iterations.assign_add(1)), as_branch(lambda: None))


def require_valid(choice: str) -> None:
    """Refuse a word that is no choice."""
    if choice not in SKIPPED_STEPS:
        raise ValueError(f"skipped_steps is {choice!r}; valid: {', '.join(SKIPPED_STEPS)}")
