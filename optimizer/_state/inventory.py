"""Every variable of an optimizer, however deep: slots by owner, and all others by a name that lasts.

Keras lists only part of them: an optimizer may hold other optimizers, and lists and objects with variables.
"""

from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Set, Tuple

import collections.abc  # for isinstance: TensorFlow's wrapper of a dict is not a typing.Mapping

from ...serialization._keras_introspection import package_of
from ...serialization._object_paths import tracked_children
from ...serialization._variables import owners_of
from ...serialization.keras._slots import owner_after_part

ITERATIONS, RATE, MOMENTUM_CACHE = "iterations", "learning_rate", "momentum_cache"
_DEPTH = 8
_HYPERS = "_hyper"  # of optimizers with slots: their values are in the configuration
_LISTS = ("_weights", "_variables")  # list all variables again; an index in them is not a name that lasts
# attributes with variables of the model, with slots, and with what TensorFlow and Keras keep about an object
_NOT_STATE = frozenset(
    {
        "_trainable_variables",
        "_tracker",
        "_distribution_strategy",
        "_deferred_slot_restorations",
        "_slots",
        "_coalesced_children",  # of an object that was in a SavedModel
    }
)
_DERIVED = frozenset({"_current_learning_rate"})  # follows from the schedule and the iterations
_RANDOM = frozenset({"Generator", "SeedGenerator", "RandomSeedGenerator"})  # a process draws its own random numbers
_PRODUCTS = ("_u_product", "_m_cache")  # Nadam's product of momenta has another name in each generation
_CODE = ("function", "method", "builtin_function_or_method", "module", "partial")
_LIBRARIES = frozenset({"tensorflow", "tensorflow_core", "keras", "tf_keras", "numpy", "builtins"})


class Inventory(NamedTuple):
    """The variables of an optimizer without its own iterations and learning rate."""

    slots: Dict[str, Dict[str, Any]]  # owner → slot → variable; ``_optimizer.m`` is a slot of an optimizer inside
    others: Dict[str, Any]  # name → variable of any shape


def inventory(optimizer: Any, variables: Sequence[Any], *, with_strangers: bool = False) -> Inventory:
    """Return the variables of an optimizer, each once.

    Args:
        optimizer: The adapter of the optimizer.
        variables: The model variables whose slots are wanted.
        with_strangers: Whether to return slots of other variables, too, by the names that Keras gave them.
    """
    found = Inventory({}, {})
    seen = {identity(variable) for variable in variables}
    holders = {"": optimizer, **{f"{path}.": inside for path, inside in nested_adapters(optimizer).items()}}
    for prefix, each in holders.items():
        _add_slots(found, each, prefix, variables, seen, with_strangers)
    # some list the variables of the optimizer inside, too, where they have no owners
    for prefix, each in holders.items():
        _add_listed(found, each, prefix, seen)
    for path, each in _walk(optimizer.inner_optimizer, "", 0, set()):
        if is_variable(each) and identity(each) not in seen:
            seen.add(identity(each))
            found.others[path] = each
    return found


def nested_adapters(optimizer: Any) -> Dict[str, Any]:
    """Return path → adapter of the optimizers inside an optimizer."""
    found = _walk(optimizer.inner_optimizer, "", 0, set())
    return {path: optimizer._adapter_of_nested(each) for path, each in found if is_optimizer(each)}


def checkpoint_names(optimizer: Any) -> Dict[str, str]:
    """Return path in a checkpoint → path of the optimizers inside an optimizer."""
    paths = {id(each.inner_optimizer): path for path, each in nested_adapters(optimizer).items()}
    found: Dict[str, str] = {}
    level: List[Tuple[Any, Tuple[str, ...]]] = [(optimizer.inner_optimizer, ())] if paths else []
    seen: Set[int] = set()
    for _ in range(_DEPTH):
        following = []
        for holder, names in level:
            for name, child in tracked_children(holder, with_optimizers=True):
                if id(child) in seen or is_variable(child):
                    continue
                seen.add(id(child))
                if id(child) in paths:
                    found[".".join((*names, name))] = paths[id(child)]
                following.append((child, (*names, name)))
        level = following
    return found


def iterations_of(inner: Any) -> Any:
    """Return the variable that counts an optimizer's steps, accumulated ones of Keras 3 included."""
    iterations = inner.iterations
    return iterations if is_variable(iterations) else inner._iterations


def identity(variable: Any) -> int:
    """Return what a Keras 3 variable and the TensorFlow variable in it have in common."""
    return id(variable if callable(variable.value) else variable.value)


def is_variable(value: Any) -> bool:
    """Return whether it is a variable of TensorFlow or Keras."""
    return all(hasattr(value, name) for name in ("assign", "shape", "dtype"))


def is_optimizer(value: Any) -> bool:
    """Return whether it is a Keras optimizer."""
    return hasattr(value, "apply_gradients") and hasattr(value, "iterations") and not isinstance(value, type)


def _add_slots(
    found: Inventory, optimizer: Any, prefix: str, variables: Sequence[Any], seen: Set[int], with_strangers: bool
) -> None:
    """Add the slots and counters of one optimizer; those that are seen already are not added again."""
    inner = optimizer.inner_optimizer
    for owner, slots in _own_slots(optimizer, variables).items():
        new = {prefix + name: slot for name, slot in slots.items() if identity(slot) not in seen}
        if new:
            found.slots.setdefault(owner, {}).update(new)
    seen.update(identity(slot) for slots in found.slots.values() for slot in slots.values())
    for name, slot in optimizer._all_slots():
        if identity(slot) not in seen:
            seen.add(identity(slot))
            if with_strangers:
                found.slots.setdefault(_owner_by_name(slot, name), {})[prefix + name] = slot
    others = {ITERATIONS: iterations_of(inner), RATE: rate_of(inner)}
    if not prefix:  # those of the outermost optimizer have their own fields in a training state
        seen.update(identity(each) for each in others.values() if each is not None)
    others = {name: each for name, each in others.items() if each is not None and identity(each) not in seen}
    product = next((each for each in (getattr(inner, name, None) for name in _PRODUCTS) if is_variable(each)), None)
    if product is not None and identity(product) not in seen:
        others[MOMENTUM_CACHE] = product
    seen.update(identity(each) for each in others.values())
    found.others.update({prefix + name: each for name, each in others.items()})


def _add_listed(found: Inventory, optimizer: Any, prefix: str, seen: Set[int]) -> None:
    """Add the other variables that one optimizer lists."""
    for weight in optimizer.weights:
        if identity(weight) not in seen:
            seen.add(identity(weight))
            found.others[_unique(prefix + _path(weight)[-1], found.others)] = weight


def _own_slots(optimizer: Any, variables: Sequence[Any]) -> Dict[str, Dict[str, Any]]:
    """Return owner → slot → variable, the slots in the order in which the optimizer lists them."""
    positions = {identity(weight): position for position, weight in enumerate(optimizer.weights)}
    names = optimizer.get_slot_names()
    found = {}
    for owner, variable in zip(owners_of(variables), variables):
        slots = {name: _slot(optimizer, variable, name) for name in names}
        present = [item for item in slots.items() if item[1] is not None]
        if present:
            found[owner] = dict(
                sorted(present, key=lambda item: positions.get(identity(item[1]), len(positions)))  # a stable sort
            )
    return found


def _slot(optimizer: Any, variable: Any, name: str) -> Any:
    try:
        return optimizer.get_slot(variable, name)
    except KeyError:  # a variable that the optimizer has not seen
        return None


def _owner_by_name(slot: Any, name: str) -> str:
    """Return the owner in the name of a slot variable: ``Adam/d1/kernel/m`` or ``m/d1/kernel``."""
    *owner, last = _path(slot)
    return "/".join(owner) if last == name else owner_after_part("/".join(_path(slot)))


def _path(variable: Any) -> List[str]:
    path: str = getattr(variable, "path", variable.name)
    return path.split(":")[0].split("/")


def _unique(name: str, taken: Mapping[str, Any]) -> str:
    number, unique = 1, name
    while unique in taken:
        unique, number = f"{name}#{number}", number + 1
    return unique


def rate_of(inner: Any) -> Any:
    """Return the variable of the learning rate; None for a schedule, and before it exists."""
    rate = getattr(inner, _HYPERS, {}).get(RATE, getattr(inner, "_learning_rate", None))
    return rate if is_variable(rate) else None


# Variables and optimizers in attributes, lists and mappings


def _walk(holder: Any, path: str, depth: int, visited: Set[int]) -> Iterator[Tuple[str, Any]]:
    """Yield path and object of each variable and each optimizer inside an object; attributes before containers."""
    if depth > _DEPTH or id(holder) in visited:
        return
    visited.add(id(holder))
    items = sorted(_items(holder), key=lambda item: (not is_variable(item[1]), item[0] in _LISTS))
    for name, value in items:
        inside = f"{path}.{name}" if path else name
        if is_variable(value):
            yield inside, value
        elif is_optimizer(value) and id(value) not in visited:
            yield inside, value
            yield from _walk(value, inside, depth + 1, visited)
        elif _may_hold_variables(value):
            yield from _walk(value, inside, depth + 1, visited)


def _items(holder: Any) -> List[Tuple[str, Any]]:
    if isinstance(holder, collections.abc.Mapping):
        return [(name if isinstance(name, str) else str(index), holder[name]) for index, name in enumerate(holder)]
    if isinstance(holder, (list, tuple, set, frozenset)):
        return [(str(index), value) for index, value in enumerate(holder)]
    found = []
    for name, value in list(vars(holder).items()):
        if name == _HYPERS:  # a schedule may hold variables
            found += [(each, hyper) for each, hyper in value.items() if not is_variable(hyper)]
        elif not name.startswith("_self_") and name not in _NOT_STATE | _DERIVED:
            found.append((name, value))
    return found


def _may_hold_variables(value: Any) -> bool:
    if isinstance(value, (collections.abc.Mapping, list, tuple, set, frozenset)):
        return len(value) > 0
    cls = type(value)
    if isinstance(value, type) or not hasattr(value, "__dict__") or cls.__name__ in (*_RANDOM, *_CODE):
        return False
    if hasattr(value, "trainable_weights"):  # a layer or model, whose variables are the model's
        return False
    is_tracked = hasattr(value, "_lookup_dependency")
    return is_tracked or package_of(cls) not in _LIBRARIES
