"""How gradients are aggregated over replicas and workers before the decision, by the inner optimizer's own methods."""

from typing import Any, Callable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import contextlib
import functools
import inspect

import tensorflow as tf

from .keras_dispatch import KERAS_PACKAGES

Pairs = List[Tuple[Any, Any]]


class Aggregation(NamedTuple):
    """Gradients that the inner optimizer applies without aggregating them again.

    Attributes:
        pairs: The aggregated gradients, each with its variable.
        also_checked: Gradients, one for each pair, that must be finite as well, because the inner optimizer has changed
            them before it aggregated them; None if there are none.
    """

    pairs: Pairs
    also_checked: Optional[List[Any]] = None


def has_replicas() -> bool:
    """Return whether the current strategy has more than one replica."""
    return bool(tf.distribute.get_strategy().num_replicas_in_sync > 1)


def is_overridden(optimizer: Any, name: str) -> bool:
    """Return whether an optimizer has a method of its own instead of that of Keras."""
    if name in vars(optimizer):
        return True
    owner = next((cls for cls in type(optimizer).__mro__ if name in vars(cls)), None)
    return owner is not None and not is_of_keras(owner)


def is_of_keras(defined: Any) -> bool:
    """Return whether Keras defines a class or function."""
    return str(getattr(defined, "__module__", "")).split(".")[0] in KERAS_PACKAGES


class Accepts(NamedTuple):
    """Whether ``apply_gradients`` takes an argument: by its name, or perhaps, as one of ``**kwargs``."""

    by_name: bool
    in_kwargs: bool


def accepts(optimizer: Any, argument: str) -> Accepts:
    """Return whether ``apply_gradients`` of an optimizer takes an argument, or hands it on to a method that does."""
    own = vars(optimizer).get("apply_gradients")
    cls: Any = type(optimizer)
    return _class_accepts(cls, argument) if own is None else _any_accepts([own], argument)


@functools.lru_cache(maxsize=64)
def _class_accepts(cls: Any, argument: str) -> Accepts:
    methods = [vars(each)["apply_gradients"] for each in cls.__mro__ if "apply_gradients" in vars(each)]
    return _any_accepts(methods, argument)


def _any_accepts(methods: Sequence[Any], argument: str) -> Accepts:
    """Return whether the first of these methods takes an argument, given that each one calls the next."""
    for position, method in enumerate(methods):
        parameters = inspect.signature(method).parameters
        if argument in parameters:
            return Accepts(position == 0, position > 0)
        if all(each.kind is not each.VAR_KEYWORD for each in parameters.values()):
            break
    return Accepts(False, False)


@contextlib.contextmanager
def with_methods(optimizer: Any, replaced: Mapping[str, Callable[..., Any]]) -> Iterator[Any]:
    """Yield a copy of an optimizer that shares all its variables, with some methods replaced.

    It is a copy, because other threads and the replicas of a strategy may use the optimizer meanwhile. Attributes that
    are set in the copy are set in the optimizer as well.
    """
    before = dict(vars(optimizer))
    twin = object.__new__(type(optimizer))
    vars(twin).update({**before, **replaced})
    yield twin
    changed = {name: value for name, value in vars(twin).items() if before.get(name, twin) is not value}
    vars(optimizer).update({name: value for name, value in changed.items() if name not in replaced})
