"""Checks of arguments that functions of several packages take, with errors that name the function and its call."""

from typing import Any

import inspect
import os

from .errors import ArgumentTypeError, shown

_VALUES = (str, bytes, bool, int, float, complex, list, tuple, dict, set, frozenset)


def described(given: Any) -> str:
    """Return what an argument is, for a message: ``a Sequential model``, ``the class Adam``, ``[1.0]``."""
    if given is None or isinstance(given, _VALUES):
        return shown(given)
    if inspect.isclass(given):
        return f"the class {given.__name__}"
    name = (getattr(given, "_public_class", None) or type(given)).__name__
    kind = "optimizer" if is_optimizer(given) else "model" * is_model(given)
    article = "an" if name[0] in "AEIOUaeiou" or name == "ndarray" else "a"
    return f"{article} {name}" if name.lower().endswith(kind) else f"{article} {name} {kind}"


def is_model(given: Any) -> bool:
    """Return whether an object has the members of a Keras model; its class has them, too, but is none."""
    return not inspect.isclass(given) and hasattr(type(given), "compile") and hasattr(type(given), "layers")


def is_optimizer(given: Any) -> bool:
    """Return whether an object has the members of a Keras optimizer."""
    return not inspect.isclass(given) and hasattr(type(given), "apply_gradients")


def path_of(given: Any, call: str) -> str:
    """Return a path as text.

    Args:
        given: The argument of the caller.
        call: The function with its arguments, as the caller has to write it: ``save_model(model, path)``.

    Raises:
        ArgumentTypeError: It is not a path.
    """
    try:
        return os.fsdecode(given)
    except TypeError:
        raise unexpected(call, "a path", given) from None


def require_model(given: Any, call: str) -> None:
    """Raise :class:`ArgumentTypeError` unless an argument is a Keras model."""
    if not is_model(given):
        instead = "; give the model that is compiled with it" if is_optimizer(given) else ""
        raise unexpected(call, "a Keras model", given, instead)


def unexpected(call: str, expected: str, given: Any, instead: str = "") -> ArgumentTypeError:
    """Return the error for an argument of another type, with the call that is meant."""
    function = call.partition("(")[0]
    return ArgumentTypeError(f"{function} expects {expected}, got {described(given)}: call {call}{instead}")
