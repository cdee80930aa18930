"""Constructor arguments of an optimizer that its ``get_config`` leaves out, for complete copies.

A copy is created from the configuration. An argument that the configuration lacks has its default there, while the
original keeps the value in an attribute: such attributes are compared, and copied if they hold plain data.
"""

from typing import Any, Dict, Set

import collections.abc
import re

import numpy as np

from ...registry.errors import UnsupportedOperationError
from ...serialization._keras_introspection import named_parameters, package_of
from .inventory import is_optimizer, is_variable

_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic, np.ndarray, type(re.compile("")))
_FUNCTIONS = ("function", "builtin_function_or_method", "type")
_LIBRARIES = ("keras", "tf_keras", "tensorflow", "tensorflow_core")


def attributes_to_copy(original: Any, config: Dict[str, Any]) -> Dict[str, Any]:
    """Return the attributes that an optimizer made from a configuration lacks, as plain data.

    Args:
        original: The optimizer.
        config: The result of its ``get_config``.

    Raises:
        UnsupportedOperationError: One of them cannot be copied.
    """
    cls = type(original)
    left_out = {name for name in named_parameters(cls) if name not in config and name not in ("lr", "name")}
    if package_of(cls) in _LIBRARIES or not left_out:
        return {}
    rebuilt = cls.from_config(dict(config))
    found = {}
    for name in vars(rebuilt).keys() - _attributes_of_keras(cls):
        here, there = vars(original).get(name), vars(rebuilt)[name]
        # TensorFlow lists there what it tracks in a checkpoint
        if name.startswith("_self_") or _are_equal(here, there):
            continue
        is_argument = name.strip("_") in left_out
        if not _is_plain(here) or (isinstance(here, (bool, int)) and not is_argument):
            arguments = ", ".join(sorted(left_out))
            raise UnsupportedOperationError(
                f"{cls.__name__} cannot be copied: its get_config leaves out {arguments}, and its attribute {name} "
                f"differs in a copy ({there!r} instead of {here!r}): return these arguments in get_config"
            )
        found[name] = _copied(here)
    return found


def _attributes_of_keras(cls: Any) -> Set[str]:
    """Return the attributes that the constructor of the optimizer's base class in Keras sets."""
    base = next(each for each in cls.__mro__ if package_of(each) in _LIBRARIES)
    for arguments in ((), (0.001,), ("optimizer",)):
        try:
            return set(vars(base(*arguments)))
        except (TypeError, ValueError):
            continue
    return set()


def _are_equal(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if _holds_state(one) and _holds_state(other):
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    if isinstance(one, collections.abc.Mapping):
        return one.keys() == other.keys() and all(_are_equal(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_are_equal, one, other))
    if hasattr(one, "get_config"):
        return _are_equal(one.get_config(), other.get_config())
    if isinstance(one, (*_PLAIN, set, frozenset)) or type(one).__name__ in _FUNCTIONS:
        return bool(one == other)
    return hasattr(one, "__dict__") and _are_equal(vars(one), vars(other))


def _holds_state(value: Any) -> bool:
    """Return whether it is a variable, an optimizer or an empty or filled list of them, whose state is transferred."""
    if isinstance(value, collections.abc.Mapping):
        return all(map(_holds_state, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_holds_state, value))
    return is_variable(value) or (is_optimizer(value) and not hasattr(value, "get_config"))


def _is_plain(value: Any) -> bool:
    if isinstance(value, collections.abc.Mapping):
        return all(_is_plain(name) and _is_plain(each) for name, each in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN) or type(value).__name__ in _FUNCTIONS


def _copied(value: Any) -> Any:
    """Return a copy without the wrappers with which TensorFlow tracks lists and mappings."""
    if isinstance(value, collections.abc.Mapping):
        return {name: _copied(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_copied(each) for each in value]
    if isinstance(value, tuple):
        return tuple(_copied(each) for each in value)
    return value.copy() if isinstance(value, (np.ndarray, set)) else value
