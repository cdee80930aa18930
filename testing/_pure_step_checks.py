"""Checks of the pure step, in NumPy."""

from typing import Any

import numpy as np

from ..lossscales._numpy_state import OPS
from ..lossscales.report import Report, State
from ._check import CheckFailedError, check, require
from ._steps import exact, mixed_reports, plain, states_after
from ._subject import Subject


@check(pure_step=True)
def initial_state(subject: Subject) -> None:
    """initial_state returns finite NumPy scalars by name: a new mapping with the same values at each call."""
    policy = subject.make()
    state = policy.initial_state()
    for name, value in state.items():
        require(
            isinstance(name, str) and isinstance(value, np.generic),
            f"initial_state has {value!r} under {name!r}",
            "Give NumPy scalars under text: np.float32(…) for a scale, np.int64(…) for a counter, np.bool_(…)",
        )
        require(
            np.isfinite(value),
            f"initial_state has {name}={value!r}, which no file and no load_state takes",
            "Begin with a finite number, and keep what is unknown in a counter or a flag beside it",
        )
    again = policy.initial_state()
    require(
        exact(plain(again)) == exact(plain(state)) and (again is not state or not state),
        f"initial_state gave {plain(state)}, and then {plain(again)}" + (", the same object" * (again is state)),
        "Make a new mapping at each call, of the parameters alone",
    )


@check(pure_step=True)
def step_is_pure(subject: Subject) -> None:
    """next_state does not change its arguments, keeps names and types, and returns the same at each call."""
    policy = subject.make()
    state = dict(policy.initial_state())
    for number, report in enumerate(mixed_reports(policy.needs)):
        before = dict(state)
        following, again = _stepped(policy, state, report), _stepped(policy, dict(before), report)
        require(
            state.keys() == before.keys() and exact(plain(state)) == exact(plain(before)),
            f"next_state changed the state that it was given, at step {number}, from {before} into {state}",
            "Return a new mapping, and leave the argument unchanged",
        )
        _require_same_types(before, following, number)
        require(
            exact(plain(following)) == exact(plain(again)),
            f"from the same state and report, next_state gave {plain(following)} and then {plain(again)}",
            "Keep all that a step remembers in the state, and nothing in the object or the class",
        )
        state = dict(following)


def _stepped(policy: Any, state: State, report: Report) -> Any:
    with np.errstate(all="ignore"):
        return policy.next_state(state, report, OPS)


def _require_same_types(before: State, following: State, number: int) -> None:
    require(
        following.keys() == before.keys(),
        f"step {number} made {sorted(following)} of the state {sorted(before)}",
        "Return every piece of the state at every step: a graph has one variable for each",
    )
    for name, value in following.items():
        kind = before[name].dtype
        require(
            getattr(value, "dtype", None) == kind and np.ndim(value) == 0,
            f"step {number} turned {name} from a {kind} into {value!r}",
            f"Write constants as ops.{kind}(…), so that NumPy and TensorFlow compute in {kind}",
        )


class _RestrictedReport:
    """A report that raises an error when the policy reads a field that ``needs`` does not name."""

    def __init__(self, report: Report, needs: Any) -> None:
        self._report, self._needs = report, needs

    def __getattr__(self, name: str) -> Any:
        if name in Report._fields and name not in self._needs:
            raise CheckFailedError(
                f"the step reads report.{name}, and needs names {sorted(self._needs) or 'nothing'}",
                f"Add {name!r} to needs: what is not named is not computed, and None",
            )
        return getattr(self._report, name)


@check(pure_step=True)
def needs_are_honoured(subject: Subject) -> None:
    """needs lists fields of the report, the same at each call, and the step reads no other field."""
    policy = subject.make()
    needs = policy.needs
    require(
        not isinstance(needs, str) and set(needs) <= set(Report._fields),
        f"needs is {needs!r}",
        f"Make it a frozenset of fields of the report: {', '.join(Report._fields)}",
    )
    state = policy.initial_state()
    for report in mixed_reports(needs):
        restricted: Any = _RestrictedReport(report, needs)
        with np.errstate(all="ignore"):
            policy.should_apply(state, restricted, OPS)
            state = policy.next_state(state, restricted, OPS)
        require(
            policy.needs == needs,
            f"needs was {sorted(needs)} at first, and {sorted(policy.needs)} later",
            "Let it depend on the parameters alone: a graph is made once",
        )


@check(pure_step=True)
def decision(subject: Subject) -> None:
    """should_apply returns a boolean for every step, or Python's True for all steps."""
    policy = subject.make()
    state, are_always = policy.initial_state(), set()
    for number, report in enumerate(mixed_reports(policy.needs)):
        with np.errstate(all="ignore"):
            applied = policy.should_apply(state, report, OPS)
        require(
            applied is True or isinstance(applied, np.bool_),
            f"should_apply gave {applied!r} at step {number}",
            "Return report.finite, or what ops makes of booleans; None comes of a field that needs does not name",
        )
        are_always.add(applied is True)
        require(
            len(are_always) == 1,
            f"should_apply gave Python's True at some steps, and a computed boolean at others, such as step {number}",
            "Return True only where the parameters alone say so: a graph asks once",
        )
        (state,) = states_after(policy, state, [report])
