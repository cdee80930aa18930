"""Policies that each break their contract in one method, and the parts of the error that explains it."""

from typing import Any, Dict, NamedTuple, Tuple

import functools

import numpy as np

import scalekeeper


class Sound(scalekeeper.LossScale):
    """The policy that the broken ones derive from."""

    def initial_state(self) -> Dict[str, Any]:
        return {"current_loss_scale": np.float32(1024), "good_steps": np.int64(0)}

    def next_state(self, state: Any, report: Any, ops: Any) -> Any:
        scale = state["current_loss_scale"]
        halved = ops.where(report.finite, scale, scale * ops.float32(0.5))
        return {"current_loss_scale": halved, "good_steps": state["good_steps"] + ops.int64(1)}


class Broken(NamedTuple):
    """A broken member of a policy.

    Attributes:
        method: The name of the member.
        member: The member.
        message: Parts of the error.
        in_numpy: Whether it breaks in NumPy.
        in_eager_mode: Whether it breaks in an eager step.
    """

    method: str
    member: Any
    message: Tuple[str, ...]
    in_numpy: bool = True
    in_eager_mode: bool = True


def _next(**changes: Any) -> Any:
    """Return a ``next_state`` that changes entries of the state by functions of the state, the report and ``ops``."""

    def next_state(self: Any, state: Any, report: Any, ops: Any) -> Any:
        return {**state, **{name: change(state, report, ops) for name, change in changes.items()}}

    return next_state


_ENTRIES = "it must return a mapping with the entries of the state: current_loss_scale (float32), good_steps (int64)"

BROKEN = {
    "PythonFloat": Broken(
        "next_state",
        _next(current_loss_scale=lambda state, report, ops: 2.0),
        ("turned 'current_loss_scale' from float32 into 2.0 (a Python float): write constants as ops.float32(…)",),
    ),
    "NoReturn": Broken(
        "next_state",
        lambda self, state, report, ops: None,
        ("returned None", _ENTRIES, "Is a `return` missing?"),
    ),
    "NotAMapping": Broken("next_state", lambda self, state, report, ops: [1], ("a Python list", _ENTRIES)),
    "WrongName": Broken(
        "next_state",
        _next(current_loss_scale=lambda state, report, ops: state["loss_scale"]),
        ("raised KeyError at broken_policies.py:", "'loss_scale'", "the entries 'current_loss_scale', 'good_steps'"),
    ),
    "ExtraEntry": Broken(
        "next_state",
        _next(extra=lambda state, report, ops: ops.float32(1)),
        ("turned the state ['current_loss_scale', 'good_steps'] into ['current_loss_scale', 'extra', 'good_steps']",),
    ),
    "MissingEntry": Broken(
        "next_state",
        lambda self, state, report, ops: {"good_steps": state["good_steps"]},
        ("turned the state ['current_loss_scale', 'good_steps'] into ['good_steps']", _ENTRIES),
    ),
    "WrongDtype": Broken(
        "next_state",
        _next(current_loss_scale=lambda state, report, ops: state["good_steps"]),
        ("turned 'current_loss_scale' from float32 into int64",),
    ),
    "WrongShape": Broken(
        "next_state",
        _next(current_loss_scale=lambda state, report, ops: np.ones(2, np.float32)),
        ("into a float32 array of shape (2,): each entry is a scalar",),
    ),
    "UnnamedField": Broken(
        "next_state",
        _next(current_loss_scale=lambda state, report, ops: report.largest_magnitude * ops.float32(2)),
        ("a field of the report is None unless `needs` names it, and `needs` is ['finite']",),
    ),
    "UnknownOperation": Broken(
        "next_state",
        _next(current_loss_scale=lambda state, report, ops: ops.clip(state["current_loss_scale"])),
        ("the operations of `ops` are float32, int64, ",),
    ),
    "PythonIf": Broken(
        "next_state",
        lambda self, state, report, ops: dict(state) if report.finite else {},
        ("`if`, `and`, `or` and `not` can't decide on a tensor; use ops.where(…)",),
        in_numpy=False,
        in_eager_mode=False,
    ),
    "NoDecision": Broken("should_apply", lambda self, state, report, ops: None, ("report.finite", "`return` missing")),
    "NumberAsDecision": Broken(
        "should_apply",
        lambda self, state, report, ops: state["current_loss_scale"],
        ("returned a float32 scalar", "or True if every step is applied"),
    ),
    "NoScale": Broken("scale", lambda self, state, ops: None, ("a float32 scalar", "`return` missing")),
    "FloatInInitialState": Broken(
        "initial_state",
        lambda self: {"current_loss_scale": 8.0},
        ("returned 8.0 (a Python float) under 'current_loss_scale'", "NumPy scalars"),
    ),
    "NoInitialState": Broken("initial_state", lambda self: None, ("returned None", "`return` missing")),
    "TextAsNeeds": Broken("needs", "finite", ("is 'finite'", "a frozenset of fields of the report: 'finite', ")),
}


@functools.lru_cache(maxsize=None)
def make(name: str) -> Any:
    """Return the class of a broken policy, or the sound one."""
    if name == "Sound":
        return Sound
    return type(name, (Sound,), {BROKEN[name].method: BROKEN[name].member, "__module__": __name__})
