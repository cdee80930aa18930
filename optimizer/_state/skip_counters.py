"""Skipped steps: whether they advance ``iterations``, how many there were, and which variables caused them."""

from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import inspect

import numpy as np
import tensorflow as tf

from ...registry._documents import ADVANCE, HOLD, NATIVE, SKIPPED_STEPS
from ...registry._monitor_options import Monitoring
from ...registry.errors import WHAT_TO_TRY, ArgumentError
from ...serialization._variables import assign, assign_all, owners_of, value_of, values_of
from ...serialization.keras.profile import SKIPPED_STEPS_CHILD
from ...serialization.training_state import IN_A_ROW, LAST, OVERFLOWS, SKIP_COUNTERS, SKIPS, TOTAL
from .._step.control_flow import is_compiled_by_xla
from .._step.gate import as_branch
from .._step.graph_state import make_variable
from .model_names import ModelNames

_MOST_SHOWN = 1000  # variables in the error that a graph raises
_COMPILES = {"experimental_compile", "jit_compile"} & set(inspect.signature(tf.function).parameters)
_CAN_COMPILE_TEXT = "jit_compile" in _COMPILES or not _COMPILES  # TF 2.0 has neither, and can


def require_valid_choice(choice: str) -> None:
    """Raise :class:`ArgumentError` for a value that ``skipped_steps`` does not take."""
    if choice not in SKIPPED_STEPS:
        raise ArgumentError(f"skipped_steps is {choice!r}; valid: {', '.join(SKIPPED_STEPS)}")


class AdvanceOnSkip:
    """Whether a skipped step advances ``iterations``, in a variable that is 1 or 0.

    A checkpoint can restore the variable, and a traced step follows it. Files leave it out as long as it has the value
    that Keras's own class implies, so that they stay files of that class.
    """

    def __init__(self, choice: str, advances_natively: bool) -> None:
        self._native = ADVANCE if advances_natively else HOLD
        self._is_explicit = choice != NATIVE
        self.variable = make_variable(SKIPPED_STEPS_CHILD, self._value(choice))

    def _value(self, choice: str) -> Any:
        return np.int64((self._native if choice == NATIVE else choice) == ADVANCE)

    @property
    def choice(self) -> str:
        """``"advance"`` or ``"hold"``."""
        with tf.init_scope():  # may be read while a step is traced
            return ADVANCE if value_of(self.variable) else HOLD

    @choice.setter
    def choice(self, choice: str) -> None:
        require_valid_choice(choice)
        self._is_explicit = False
        with tf.init_scope():
            assign(self.variable, self._value(choice))

    def config(self) -> Dict[str, str]:
        """Return the entry of a configuration: none, unless the user or a file chose other than the native behavior."""
        choice = self.choice
        return {"skipped_steps": choice} if self._is_explicit or choice != self._native else {}

    def children(self, is_saved_model: bool) -> Dict[str, Any]:
        """Return the children in a file; a SavedModel may hold traced steps, which need the variable in any case."""
        return {SKIPPED_STEPS_CHILD: self.variable} if is_saved_model or self.choice != self._native else {}

    def advance(self, iterations: Any) -> Any:
        """Return the operation that advances ``iterations`` if a skipped step does so."""
        # Add a Python int: adding a tensor would require merge_call.
        is_counted = self.variable.read_value() > 0
        return tf.cond(is_counted, as_branch(lambda: iterations.assign_add(1)), as_branch(lambda: None))


class _Group(NamedTuple):
    """The variables of one call of ``apply_gradients`` that have a gradient.

    Attributes:
        names: The names of the variables.
        counts: For each variable, at how many steps its gradient was non-finite.
        latest: For each variable, the last such step; 0 if there was none.
    """

    names: Tuple[str, ...]
    counts: Any
    latest: Any


class SkipCounters:
    """How many steps were skipped, how many in a row, which was the last, and on request because of which variables.

    Only a skipped step touches these variables, so an applied step costs nothing. Steps are numbered from 1 and are not
    counted here: their number follows from the inner optimizer's ``iterations``, plus the skipped steps where these do
    not advance it. A run of skipped steps has ended if the last of them is not the last step.

    Attributes:
        module: The counters, by their names in a checkpoint.
        attribution: The counters by variable.
        attributes_overflows: Whether a skipped step records which gradients were non-finite.
    """

    def __init__(self, options: Monitoring) -> None:
        self._stop_after = options.stop_after_skips
        self.attributes_overflows = options.attribute_overflows or options.stop_after_skips is not None
        self.module = tf.Module(name="skips")
        for name in SKIP_COUNTERS:
            setattr(self.module, name, make_variable(name, np.int64(0)))
        self.attribution = tf.Module(name="overflows")
        self._groups: Dict[Tuple[int, ...], _Group] = {}
        self._restored_overflows: Dict[str, int] = {}

    @property
    def _counters(self) -> List[Any]:
        return [getattr(self.module, name) for name in SKIP_COUNTERS]

    # In a step

    def group_of(self, variables: Sequence[Any]) -> Tuple[int, ...]:
        """Create the counters of these variables before the step, if they do not exist, and return their key."""
        key = tuple(id(variable) for variable in variables)
        if key not in self._groups:
            number, zeros = len(self._groups), np.zeros(len(variables), np.int64)
            counts = make_variable(f"counts_{number}", zeros)
            latest = make_variable(f"latest_{number}", zeros)
            self._groups[key] = _Group(tuple(owners_of(variables)), counts, latest)
            setattr(self.attribution, f"counts_{number}", counts)
            setattr(self.attribution, f"latest_{number}", latest)
        return key

    def count(
        self, iterations: Any, is_counted: Any, loss_scale: Any, group: Optional[Tuple[int, ...]], nonfinite: Any
    ) -> List[Any]:
        """Return the operations that count a skipped step.

        Args:
            iterations: The value of ``iterations`` before the step.
            is_counted: Whether skipped steps advance ``iterations``.
            loss_scale: The loss scale after the step, for the error of ``stop_after_skips``.
            group: The key of the variables of the step; None if they are not recorded.
            nonfinite: For each variable, a number above 0 if its gradient was non-finite.
        """
        total, in_a_row, last = self._counters
        total_before = total.read_value()
        step = tf.where(is_counted, iterations, iterations + total_before)
        run = tf.where(tf.equal(step, last.read_value()), in_a_row.read_value() + 1, tf.ones([], tf.int64))
        reads = [] if tf.executing_eagerly() else [total_before, step, run]
        with tf.control_dependencies(reads):
            operations = [total.assign(total_before + 1), in_a_row.assign(run), last.assign(step + 1)]
        if group is not None:
            operations += self._attribute(self._groups[group], step + 1, nonfinite)
        if self._stop_after is not None and not tf.executing_eagerly():
            with tf.control_dependencies([each for each in tf.nest.flatten(operations) if each is not None]):
                operations.append(self._stop(run, step + 1, loss_scale, group, nonfinite))
        return operations

    @staticmethod
    def _attribute(group: _Group, step: Any, nonfinite: Any) -> List[Any]:
        is_nonfinite = nonfinite > 0
        counts, latest = group.counts.read_value(), group.latest.read_value()
        return [
            group.counts.assign(counts + tf.cast(is_nonfinite, tf.int64)),
            group.latest.assign(tf.where(is_nonfinite, tf.zeros_like(latest) + step, latest)),
        ]

    def _stop(self, run: Any, step: Any, loss_scale: Any, group: Any, nonfinite: Any) -> Any:
        """Return an operation that fails after too many skipped steps: a graph cannot raise another error.

        Steps that XLA compiles never fail; there, ``raise_if_stuck`` raises. From 2.1 to 2.4 XLA does not compile
        strings, and no version compiles operations on strings, which would make one text of the parts.
        """
        flags = tf.cast(nonfinite[:_MOST_SHOWN] > 0, tf.int64)
        data = [step, loss_scale, flags]
        if _CAN_COMPILE_TEXT or not is_compiled_by_xla():
            data = [
                f"{self._stop_after} steps in a row were skipped (stop_after_skips). The last is step",
                step,
                "and the loss scale now",
                loss_scale,
                "Variables:",
                self._groups[group].names[:_MOST_SHOWN],
                "of which those with a 1 were not finite:",
                flags,
                WHAT_TO_TRY,
            ]
        return tf.raw_ops.Assert(
            condition=run < tf.constant(self._stop_after, tf.int64),
            data=[tf.convert_to_tensor(each) for each in data],
            summarize=_MOST_SHOWN,
            name=f"{self._stop_after}_steps_in_a_row_were_skipped__raise_if_stuck_tells_more",
        )

    # Between steps

    def read(self, iterations: int, is_counted: bool) -> Dict[str, int]:
        """Return the counters and ``steps`` as numbers; a run of skipped steps that has ended counts 0."""
        total, in_a_row, last = map(int, values_of(self._counters))
        steps = iterations if is_counted else iterations + total
        return {"steps": steps, TOTAL: total, IN_A_ROW: in_a_row if last == steps else 0, LAST: last}

    def overflows(self) -> Dict[str, int]:
        """Return for each variable at how many steps its gradient was non-finite."""
        counted = dict(self._restored_overflows)
        for group in self._groups.values():
            for name, count in zip(group.names, value_of(group.counts).tolist()):
                counted[name] = counted.get(name, 0) + count
        return counted

    def last_overflows(self) -> List[str]:
        """Return the variables whose gradients were non-finite at the last skipped step."""
        last = int(value_of(self._counters[2]))
        return [
            name
            for group in self._groups.values()
            for name, step in zip(group.names, value_of(group.latest).tolist())
            if last and step == last
        ]

    # In files

    def children(self, is_saved_model: bool) -> Dict[str, Any]:
        """Return the children in a file: none until a step is skipped, except in a SavedModel, which may hold steps."""
        if is_saved_model:
            return {SKIPS: self.module, **({"overflows": self.attribution} if self._groups else {})}
        with tf.init_scope():
            return {SKIPS: self.module} if value_of(self._counters[0]) else {}

    def state(self) -> Dict[str, Any]:
        """Return the counters by name; empty if no step was skipped."""
        state: Dict[str, Any] = dict(zip(SKIP_COUNTERS, map(int, values_of(self._counters))))
        if not state[TOTAL]:
            return {}
        return {**state, **({OVERFLOWS: self.overflows()} if self.attributes_overflows else {})}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``state`` returned; a missing counter means that no step was skipped."""
        with tf.init_scope():
            counts = [np.int64(state.get(name, 0)) for name in SKIP_COUNTERS]
            groups = [
                (each, len(group.names)) for group in self._groups.values() for each in (group.counts, group.latest)
            ]
            zeros = [(variable, np.zeros(length, np.int64)) for variable, length in groups]
            assign_all([*zip(self._counters, counts), *zeros])
        self._restored_overflows = dict(state.get(OVERFLOWS, {}))


class StepMonitor:
    """Everything a LossScaleOptimizer records beside the loss scale.

    Attributes:
        options: ``stop_after_skips``, ``attribute_overflows`` and ``watch``.
        advance: Whether a skipped step advances ``iterations``.
        counters: The counters of skipped steps.
        watched: Variables with the statistics of the last step's gradients, by name.
    """

    def __init__(self, options: Monitoring, skipped_steps: str, advances_natively: bool) -> None:
        self.options = options
        self.counters = SkipCounters(options)
        self.watched: Dict[str, Any] = {}
        self.watch(options.watch)
        self.advance = AdvanceOnSkip(skipped_steps, advances_natively)
        self._model_names: Optional[ModelNames] = None

    @property
    def model_names(self) -> ModelNames:
        """The names of nested models in a checkpoint; created for the first checkpoint."""
        if self._model_names is None:
            self._model_names = ModelNames()
        return self._model_names

    def watch(self, names: Iterable[str]) -> bool:
        """Measure these statistics in every step that is traced from now on; return whether one of them is new."""
        new = [name for name in names if name not in self.watched]
        for name in new:
            self.watched[name] = make_variable(name, np.float32("nan"))  # until a step is measured
        return bool(new)

    def skip(self, iterations: Any, advance: Any, loss_scale: Any, group: Any, nonfinite: Any) -> List[Any]:
        """Return the operations of a skipped step.

        Args:
            iterations: The TensorFlow variable that counts the inner optimizer's steps.
            advance: The variable to advance if a skipped step does so; None to never advance it.
            loss_scale: Returns the loss scale.
            group: The key of the step's variables, or None.
            nonfinite: For each variable of the group, a number above 0 if its gradient was non-finite.
        """
        is_counted = self.advance.variable.read_value() > 0
        before = tf.cast(iterations.read_value(), tf.int64)
        operations = self.counters.count(before, is_counted, loss_scale(), group, nonfinite)
        with tf.control_dependencies([] if tf.executing_eagerly() else [before]):
            return [*operations, None if advance is None else self.advance.advance(advance)]

    def read(self, iterations: Any) -> Dict[str, int]:
        """Return the counters as numbers, given the variable that counts the inner optimizer's steps."""
        return self.counters.read(int(value_of(iterations)), self.advance.choice == ADVANCE)

    def config(self) -> Dict[str, Any]:
        """Return the entries of a configuration: those that are not at their defaults."""
        return {**self.advance.config(), **self.options.said()}

    def children(self, is_saved_model: bool) -> Dict[str, Any]:
        """Return the children in a file that Keras's own class does not write."""
        watched = {f"watched_{name}": variable for name, variable in self.watched.items()}
        return {
            **self.advance.children(is_saved_model),
            **self.counters.children(is_saved_model),
            **(watched if is_saved_model else {}),
        }
