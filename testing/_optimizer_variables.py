"""Every variable that an inner optimizer holds, however deep, found without the code that saves optimizers."""

from typing import Any, Dict, Iterator, List, Mapping, Sequence, Set, Tuple

import collections
import collections.abc

import numpy as np

from ..serialization._keras_introspection import package_of

Numbers = Dict[str, Any]

_DEPTH = 10
_LISTS = ("_weights", "_variables")  # list variables again that other attributes hold
# attributes with variables of the model, and with what Keras and TensorFlow keep about an object
_NOT_STATE = frozenset(
    {"_trainable_variables", "_tracker", "_distribution_strategy", "_deferred_slot_restorations", "_coalesced_children"}
)
DERIVED = "_current_learning_rate"  # Keras computes it from a schedule and the iterations
_ITERATIONS = "_iterations"
_CODE = ("function", "method", "builtin_function_or_method", "module", "type", "ABCMeta", "MethodType")
_LIBRARIES = frozenset({"tensorflow", "tensorflow_core", "keras", "tf_keras", "numpy", "builtins"})


def owner_names(model: Any) -> Dict[int, str]:
    """Return identity → name of the model's variables; the second model of a name has the same names."""
    found = {}
    for layer in model.layers:
        for weight in layer.weights:
            found[identity(weight)] = f"{layer.name}/{weight.name.split('/')[-1].split(':')[0]}"
    return found


def held_variables(optimizer: Any, model: Any) -> Dict[str, Any]:
    """Return path → variable of all variables that an optimizer holds, each once, without the model's own."""
    owners = owner_names(model)
    keys = {}
    for weight in model.weights:
        variable = _tensorflow_variable(weight)
        for name in ("_unique_id", "_shared_name"):
            keys[getattr(variable, name, None)] = owners[identity(weight)]
    found: Dict[str, Any] = {}
    seen = set(owners)
    for path, variable in _walk(optimizer, (), set(), keys):
        if identity(variable) not in seen:
            seen.add(identity(variable))
            found[".".join(path)] = variable
    return found


def numbers_of(optimizer: Any, model: Any) -> Numbers:
    """Return path → value of the model's weights and of all variables that an optimizer holds."""
    owners = owner_names(model)
    weights = {owners[identity(weight)]: np.array(weight.numpy()) for weight in model.weights}
    held = held_variables(optimizer, model)
    return {**weights, **{path: np.array(_read(variable)) for path, variable in held.items()}}


def fill_with_unique_numbers(optimizer: Any, model: Any) -> None:
    """Give each weight, slot, learning rate and counter numbers of its own, so that a swap of two shows.

    Hyperparameters that are not the learning rate keep their values: files have these in the configuration.
    """
    number = 1
    for path, variable in [*_named_weights(model), *sorted(held_variables(optimizer, model).items())]:
        name = path.split(".")[-1]
        size = int(np.prod(variable.shape, dtype=int))
        kind = np.asarray(_read(variable)).dtype
        is_hyperparameter = "_hyper" in path.split(".") and name not in ("learning_rate", "lr")
        if kind == np.bool_ or is_hyperparameter or name == DERIVED:
            continue
        values: Any
        if np.issubdtype(kind, np.integer):
            values = np.arange(number, number + size) + 6
        else:  # below 1, as a learning rate or a product of momenta; exact in float16 too for small models
            values = np.arange(number, number + size) / 1024.0
        variable.assign(values.reshape([int(each) for each in variable.shape]).astype(kind))
        number += size


def difference(expected: Mapping[str, Any], actual: Mapping[str, Any], *, is_loaded: bool = False) -> str:
    """Return the first difference of two sets of numbers in a few words; empty if they are equal to the bit.

    Args:
        expected: Path → value.
        actual: The same.
        is_loaded: Whether ``actual`` was loaded and has taken no step since: a learning rate that Keras computes in
            the step, and iterations that optimizers share from the first step on, may be as before that step.
    """
    for path in sorted({*expected, *actual}):
        if is_loaded and (path.split(".")[-1] == DERIVED or _is_shared_later(path, expected, actual)):
            continue
        if path not in actual:
            return f"{path} is missing"
        if path not in expected and path.split(".")[-2:-1] in ([each] for each in _LISTS):
            continue  # a variable that no attribute has, such as iterations before they were shared
        if path not in expected:
            return f"{path} is a variable of its own"
        one, other = expected[path], actual[path]
        if one.dtype != other.dtype or one.shape != other.shape:
            return f"{path} is {other.dtype}{list(other.shape)} instead of {one.dtype}{list(one.shape)}"
        if one.tobytes() != other.tobytes():
            return f"{path} is {_shown(other, one)} instead of {_shown(one, other)}"
    return ""


def _is_shared_later(path: str, expected: Mapping[str, Any], actual: Mapping[str, Any]) -> bool:
    """Return whether it is the iterations of an optimizer inside, with the number that the outer one has."""
    if path in expected or path.split(".")[-1] != _ITERATIONS:
        return False
    return _ITERATIONS in actual and int(actual[path]) == int(actual[_ITERATIONS])


def _shown(values: Any, others: Any) -> str:
    """Return the first number in which an array differs from another."""
    flat, rest = np.ravel(values), np.ravel(others)
    index = next(index for index in range(flat.size) if flat[index].tobytes() != rest[index].tobytes())
    return f"{flat[index].item()!r}" + (f" at index {index}" if flat.size > 1 else "")


def _named_weights(model: Any) -> List[Tuple[str, Any]]:
    owners = owner_names(model)
    return [(owners[identity(weight)], weight) for weight in model.weights]


def _read(variable: Any) -> Any:
    return variable.numpy() if hasattr(variable, "numpy") else variable


def _tensorflow_variable(variable: Any) -> Any:
    return variable if callable(variable.value) else variable.value


def identity(variable: Any) -> int:
    """Return what a Keras 3 variable and the TensorFlow variable in it have in common."""
    return id(_tensorflow_variable(variable))


def is_variable(value: Any) -> bool:
    """Return whether it is a variable of TensorFlow or Keras."""
    return all(hasattr(value, name) for name in ("assign", "shape", "dtype", "value"))


def is_optimizer(value: Any) -> bool:
    """Return whether it is a Keras optimizer."""
    return hasattr(value, "apply_gradients") and hasattr(value, "get_config") and not isinstance(value, type)


def optimizers_in(optimizer: Any) -> List[Any]:
    """Return an optimizer and the optimizers in its attributes, at any depth."""
    found, waiting = [], [optimizer]
    seen: Set[int] = set()
    while waiting:
        holder = waiting.pop(0)
        if id(holder) in seen or len(seen) > 10_000:
            continue
        seen.add(id(holder))
        if is_optimizer(holder):
            found.append(holder)
        waiting += [value for _, value in _items(holder, {}) if not is_variable(value) and _may_hold(value)]
    return found


def _walk(
    holder: Any, path: Tuple[str, ...], visited: Set[int], keys: Mapping[Any, str]
) -> Iterator[Tuple[Tuple[str, ...], Any]]:
    """Yield path and variable; attributes before containers, and lists of variables that have other names last."""
    if len(path) > _DEPTH or id(holder) in visited:
        return
    visited.add(id(holder))
    for name, value in sorted(_items(holder, keys), key=lambda item: (_rank(item), item[0])):
        if is_variable(value):
            yield (*path, name), value
        elif _may_hold(value):
            yield from _walk(value, (*path, name), visited, keys)


def _rank(item: Tuple[str, Any]) -> int:
    name, value = item
    return 3 if name in _LISTS else 0 if is_variable(value) else 2 if is_optimizer(value) else 1


def _items(holder: Any, keys: Mapping[Any, str]) -> Sequence[Tuple[str, Any]]:
    if isinstance(holder, collections.abc.Mapping):
        names = [
            keys.get(name, name) if isinstance(name, str) else str(position) for position, name in enumerate(holder)
        ]
        return list(zip(names, holder.values()))
    if isinstance(holder, (list, tuple, set, frozenset, collections.deque)):
        return [(f"{position:04d}", value) for position, value in enumerate(holder)]
    return [
        (name, value)
        for name, value in list(vars(holder).items())
        if not name.startswith("_self_") and name not in _NOT_STATE
    ]


def _may_hold(value: Any) -> bool:
    if isinstance(value, (collections.abc.Mapping, list, tuple, set, frozenset, collections.deque)):
        return len(value) > 0
    cls = type(value)
    if isinstance(value, type) or not hasattr(value, "__dict__") or cls.__name__ in _CODE:
        return False
    if hasattr(value, "trainable_weights"):  # a layer or model, whose variables are the model's
        return False
    return hasattr(value, "_lookup_dependency") or package_of(cls) not in _LIBRARIES
