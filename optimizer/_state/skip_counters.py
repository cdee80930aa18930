"""What is known of skipped steps. Only a skipped step touches it, so that it costs nothing while all goes well."""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import inspect

import numpy as np
import tensorflow as tf

from ...registry._monitor_options import Monitoring
from ...registry.errors import WHAT_TO_TRY
from ...serialization._skip_record import COUNTERS, IN_A_ROW, LAST, NAME, OVERFLOWS, TOTAL
from ...serialization._variable_io import assign, value_of
from ...serialization._variable_matching import owners_of
from .._step.graph_state import make_variable

_MOST_SHOWN = 1000  # of the variables, in the error that a graph raises
_COMPILES = {"experimental_compile", "jit_compile"} & set(inspect.signature(tf.function).parameters)
_CAN_COMPILE_TEXT = "jit_compile" in _COMPILES or not _COMPILES  # 2.0 has neither, and can


class _Group(NamedTuple):
    """The variables of one call of ``apply_gradients`` that have a gradient, and what is known of each of them."""

    names: Tuple[str, ...]
    counts: Any  # how often its gradient was not finite
    latest: Any  # and at which step it was so last; 0: never


class Skips:
    """How many steps were skipped, how many in a row, and which was the last; on request, because of which variables.

    Steps are numbered from 1, and not counted here: the inner optimizer's iterations say how many there were, together
    with the skipped ones where these do not count. A run of skipped steps ends when one is missing in between, so that
    a step that is applied has nothing to reset.
    """

    def __init__(self, monitoring: Monitoring) -> None:
        self._stop_after = monitoring.stop_after_skips
        self.attributes = monitoring.attribute_overflows or monitoring.stop_after_skips is not None
        self.module = tf.Module(name="skips")  # a checkpoint finds the counters in it by name
        for name in COUNTERS:
            setattr(self.module, name, make_variable(name, np.int64(0)))
        self.attribution = tf.Module(name="overflows")
        self._groups: Dict[Tuple[int, ...], _Group] = {}
        self._before: Dict[str, int] = {}  # what a file brought

    @property
    def _counters(self) -> List[Any]:
        return [getattr(self.module, name) for name in COUNTERS]

    # In a step

    def know(self, variables: Sequence[Any]) -> Optional[Tuple[int, ...]]:
        """Make what is needed to tell these variables apart, before the step; gives the key to it."""
        if not self.attributes:
            return None
        key = tuple(id(variable) for variable in variables)
        if key not in self._groups:
            number, nothing = len(self._groups), np.zeros(len(variables), np.int64)
            counts = make_variable(f"counts_{number}", nothing)
            latest = make_variable(f"latest_{number}", nothing)
            self._groups[key] = _Group(tuple(owners_of(variables)), counts, latest)
            setattr(self.attribution, f"counts_{number}", counts)
            setattr(self.attribution, f"latest_{number}", latest)
        return key

    def count(
        self, iterations: Any, is_counted: Any, loss_scale: Any, key: Optional[Tuple[int, ...]], bad: Any
    ) -> List[Any]:
        """The operations that count a step which is skipped; ``bad`` is above 0 where a gradient was not finite."""
        total, in_a_row, last = self._counters
        so_far = total.read_value()
        step = tf.where(is_counted, iterations, iterations + so_far)
        run = tf.where(tf.equal(step, last.read_value()), in_a_row.read_value() + 1, tf.ones([], tf.int64))
        reads = [] if tf.executing_eagerly() else [so_far, step, run]
        with tf.control_dependencies(reads):
            done = [total.assign(so_far + 1), in_a_row.assign(run), last.assign(step + 1)]
        if key is not None:
            done += self._attribute(self._groups[key], step + 1, bad)
        if self._stop_after is not None and not tf.executing_eagerly():
            with tf.control_dependencies([each for each in tf.nest.flatten(done) if each is not None]):
                done.append(self._stop(run, step + 1, loss_scale, key, bad))
        return done

    @staticmethod
    def _attribute(group: _Group, step: Any, bad: Any) -> List[Any]:
        is_bad = bad > 0
        counts, latest = group.counts.read_value(), group.latest.read_value()
        return [
            group.counts.assign(counts + tf.cast(is_bad, tf.int64)),
            group.latest.assign(tf.where(is_bad, tf.zeros_like(latest) + step, latest)),
        ]

    def _stop(self, run: Any, step: Any, loss_scale: Any, key: Any, bad: Any) -> Any:
        """An operation that fails when it is enough: a graph has no other way to raise an error.

        What XLA has compiled never fails; there, ``raise_if_stuck`` tells. From 2.1 to 2.4 it does not compile what has
        text in it: there the operation's name has to do.
        """
        is_bad = tf.cast(bad[:_MOST_SHOWN] > 0, tf.int64)
        told = [step, loss_scale, is_bad]
        if _CAN_COMPILE_TEXT:
            told = [
                f"{self._stop_after} steps in a row were skipped (stop_after_skips). The last is step",
                step,
                "and the loss scale now",
                loss_scale,
                "Variables:",
                self._groups[key].names[:_MOST_SHOWN],
                "of which those with a 1 were not finite:",
                is_bad,
                WHAT_TO_TRY,
            ]
        return tf.raw_ops.Assert(
            condition=run < tf.constant(self._stop_after, tf.int64),
            data=[tf.convert_to_tensor(each) for each in told],
            summarize=_MOST_SHOWN,
            name=f"{self._stop_after}_steps_in_a_row_were_skipped__raise_if_stuck_tells_more",
        )

    # Between steps

    def read(self, iterations: int, is_counted: bool) -> Dict[str, int]:
        """The counters as numbers; ``steps``, and a run of skipped steps only if it has not ended."""
        total, in_a_row, last = (int(value_of(counter)) for counter in self._counters)
        steps = iterations if is_counted else iterations + total
        return {"steps": steps, TOTAL: total, IN_A_ROW: in_a_row if last == steps else 0, LAST: last}

    def overflows(self) -> Dict[str, int]:
        """Variable → how often its gradient was not finite."""
        counted = dict(self._before)
        for group in self._groups.values():
            for name, count in zip(group.names, value_of(group.counts).tolist()):
                counted[name] = counted.get(name, 0) + count
        return counted

    def last_overflows(self) -> List[str]:
        """The variables whose gradients were not finite at the step that was skipped last."""
        last = int(value_of(self._counters[2]))
        return [
            name
            for group in self._groups.values()
            for name, step in zip(group.names, value_of(group.latest).tolist())
            if last and step == last
        ]

    # In files

    def in_file(self, is_saved_model: bool) -> Dict[str, Any]:
        """What a file holds of it, by name: nothing as long as no step was skipped. In a SavedModel may be steps."""
        if is_saved_model:
            return {NAME: self.module, **({"overflows": self.attribution} if self._groups else {})}
        with tf.init_scope():
            return {NAME: self.module} if value_of(self._counters[0]) else {}

    def state(self) -> Dict[str, Any]:
        """The counters as they are, by name; empty if no step was skipped."""
        state: Dict[str, Any] = dict(zip(COUNTERS, (int(value_of(counter)) for counter in self._counters)))
        if not state[TOTAL]:
            return {}
        return {**state, **({OVERFLOWS: self.overflows()} if self.attributes else {})}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state`` gave; a state without a counter stands for none skipped."""
        with tf.init_scope():
            for name, counter in zip(COUNTERS, self._counters):
                assign(counter, np.int64(state.get(name, 0)))
            for group in self._groups.values():
                for variable in (group.counts, group.latest):
                    assign(variable, np.zeros(len(group.names), np.int64))
        self._before = dict(state.get(OVERFLOWS, {}))
