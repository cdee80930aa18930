"""The results that the methods of a policy must return, and the errors for a policy that returns something else.

The checks run on first use and while a step is traced. A policy that breaks its contract in a later step raises an
error of Python, NumPy or TensorFlow, which ``broken_call`` explains.
"""

from typing import TYPE_CHECKING, Any, FrozenSet, List, Mapping, Optional, Tuple

import os
import re
import sys
import traceback

import numpy as np

from ..registry.errors import PolicyContractError, ScalekeeperError, StateTypeError, did_you_mean, shown
from .report import Report, State

if TYPE_CHECKING:
    from .contract import LossScale

# what Python, NumPy and TensorFlow raise for a wrong name, type, dtype or shape
BUGS = (AttributeError, LookupError, TypeError, ValueError)
_FROM_A_CONDITION = re.compile(r"as a Python .?bool")  # TensorFlow's words for `if` on a tensor of a graph
_ARGUMENTS = {
    "initial_state": "(self)",
    "scale": "(self, state, ops)",
    "should_apply": "(self, state, report, ops)",
    "next_state": "(self, state, report, ops)",
}


def checked_needs(policy: "LossScale") -> FrozenSet[str]:
    """Return the fields of the report that a policy needs.

    Raises:
        PolicyContractError: It has something else than a frozenset of fields.
    """
    needs: Any = policy.needs
    if not isinstance(needs, frozenset) or not needs <= set(Report._fields):
        fields = ", ".join(map(repr, Report._fields))
        raise _wrong(policy, "needs", f"is {shown(needs)}", f"it must be a frozenset of fields of the report: {fields}")
    return needs


def checked_initial_state(policy: "LossScale") -> State:
    """Return the initial state of a policy.

    Raises:
        PolicyContractError: ``needs`` or ``initial_state`` breaks the contract.
    """
    checked_needs(policy)
    try:
        state = policy.initial_state()
    except BUGS as error:
        raise broken_call(policy, "initial_state", error) from error
    expected = "it must return a mapping of names to NumPy scalars, such as {'good_steps': np.int64(0)}"
    if not isinstance(state, Mapping):
        raise _wrong(policy, "initial_state", f"returned {_described(state)}", expected)
    for name, value in state.items():
        if not isinstance(name, str) or not isinstance(value, np.generic) or value.dtype.kind not in "fiub":
            raise _wrong(policy, "initial_state", f"returned {_described(value)} under {name!r}", expected)
    return state


def require_next_state(policy: "LossScale", following: Any, state: Mapping[str, Any]) -> None:
    """Raise :class:`StateTypeError` unless ``next_state`` returned the entries of the state, each with its type.

    Args:
        policy: The policy.
        following: The result of ``next_state``.
        state: The state before the step.
    """
    entries = ", ".join(f"{name} ({_dtype(value)})" for name, value in state.items()) or "none"
    expected = f"it must return a mapping with the entries of the state: {entries}"
    if not isinstance(following, Mapping):
        given = f"returned {_described(following)}"
        raise _wrong(policy, "next_state", given, expected, StateTypeError)
    if following.keys() != state.keys():
        given = f"turned the state {sorted(state)} into {sorted(map(str, following))}"
        raise _wrong(policy, "next_state", given, expected, StateTypeError)
    for name, value in following.items():
        dtype = _dtype(state[name])
        if _dtype(value) != dtype or _rank(value) not in (0, None):
            is_scalar = _rank(value) in (0, None)
            turned_into = _dtype(value) if is_scalar and _dtype(value) else _described(value)
            given = f"turned {name!r} from {dtype} into {turned_into}"
            expected = f"write constants as ops.{dtype}(…)" if dtype in ("float32", "int64") else "keep its type"
            expected = expected if is_scalar else "each entry is a scalar"
            raise _wrong(policy, "next_state", given, expected, StateTypeError)


def require_decision(policy: "LossScale", decision: Any) -> None:
    """Raise :class:`PolicyContractError` unless ``should_apply`` returned a boolean scalar, or ``True``."""
    if decision is not True and (_dtype(decision) != "bool" or _rank(decision) not in (0, None)):
        expected = "it must return report.finite or another boolean of ops, or True if every step is applied"
        given = f"returned {_described(decision)}"
        raise _wrong(policy, "should_apply", given, expected)


def require_scale(policy: "LossScale", scale: Any) -> None:
    """Raise :class:`PolicyContractError` unless ``scale`` returned a float32 scalar."""
    if _dtype(scale) != "float32" or _rank(scale) not in (0, None):
        expected = "it must return a float32 scalar: an entry of the state, or ops.float32(…)"
        raise _wrong(policy, "scale", f"returned {_described(scale)}", expected)


def unpacked_update(policy: Any, result: Any) -> Tuple[Any, Any]:
    """Return what ``update`` of a policy in TensorFlow's style returned, or raise :class:`PolicyContractError`."""
    if isinstance(result, (tuple, list)) and len(result) == 2 and result[1] is not None:
        return result[0], result[1]
    expected = "it must return (update_op, should_apply): an operation or None, and a boolean"
    raise _wrong(policy, "update", f"returned {_described(result)}", expected)


def broken_call(
    policy: Any, method: str, error: BaseException, state: Optional[Mapping[str, Any]] = None
) -> ScalekeeperError:
    """Return the error for a method of a policy that raised one; an error of scalekeeper is returned unchanged."""
    if isinstance(error, ScalekeeperError):
        return error
    text = " ".join(str(error).split())
    text = text if len(text) <= 300 else text[:300] + "…"
    given = f"raised {type(error).__name__}{_place(policy, error)} ({text})"
    if re.search(r"\bNone(Type)?\b", text):
        expected = f"a field of the report is None unless `needs` names it, and `needs` is {sorted(policy.needs)}"
    elif " argument" in text and f"{method}()" in text:
        expected = f"its arguments are {_ARGUMENTS.get(method, '()')}"
    elif isinstance(error, AttributeError) and "Ops' object" in text:
        expected = f"the operations of `ops` are {', '.join(_operations())}"
    elif _FROM_A_CONDITION.search(text):
        expected = (
            "a step runs in a graph, where `if`, `and`, `or` and `not` can't decide on a tensor; use ops.where(…), "
            "ops.logical_and(…), ops.logical_or(…) and ops.logical_not(…)"
        )
    elif isinstance(error, KeyError) and state is not None and error.args and isinstance(error.args[0], str):
        near = did_you_mean(error.args[0], list(state))
        expected = f"the state has the entries {', '.join(map(repr, state)) or '(none)'}"
        expected += "" if near is None else f", and {near!r} may be meant"
        if method == "scale" and error.args[0] == "current_loss_scale":
            expected += "; name the loss scale 'current_loss_scale', or define scale(self, state, ops)"
    else:
        expected = (
            "it must compute with `ops` and Python's operators on scalars of one type; write constants as "
            "ops.float32(…) or ops.int64(…)"
        )
    return _wrong(policy, method, given, expected)


def _wrong(policy: Any, method: str, given: str, expected: str, kind: Any = PolicyContractError) -> ScalekeeperError:
    name = type(policy).__name__
    hint = " Is a `return` missing?" if given == "returned None" else ""
    check = f"scalekeeper.testing.check_loss_scale({name}) checks the whole contract"
    error: ScalekeeperError = kind(f"{name}.{method} {given}: {expected}.{hint} {check}")
    return error


def _described(value: Any) -> str:
    """Return a value with its type, for a message."""
    if value is None:
        return "None"
    dtype, rank = _dtype(value), _rank(value)
    if dtype == "":
        kind = type(value).__name__
        return f"{shown(value)} (a Python {kind})"
    return f"{_with_article(dtype)} {'scalar' if rank in (0, None) else f'array of shape {_shape(value)}'}"


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _dtype(value: Any) -> str:
    """Return the name of the dtype of a NumPy or TensorFlow value; empty for a Python object."""
    return str(getattr(getattr(value, "dtype", None), "name", ""))


def _shape(value: Any) -> str:
    return str(value.shape).replace("TensorShape", "").strip()


def _rank(value: Any) -> Optional[int]:
    """Return the number of dimensions; None if it is not known yet."""
    shape = getattr(value, "shape", ())
    return len(shape) if isinstance(shape, tuple) else getattr(shape, "rank", None)


def _operations() -> List[str]:
    from ._numpy_state import NumpyOps

    return [name for name in vars(NumpyOps) if not name.startswith("_")]


def _place(policy: Any, error: BaseException) -> str:
    """Return the line of the policy's module that raised an error."""
    own = getattr(sys.modules.get(type(policy).__module__), "__file__", None)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == own]
    return f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
