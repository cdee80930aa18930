"""The slots of every Keras optimizer: their names, the attributes and variable names they have, and their order.

A slot has the name that TensorFlow 2.0 documents: ``Adam`` has ``m`` and ``v``. Later optimizers keep lists of
variables under other attributes, and name the variables differently again.
"""

from typing import Any, Collection, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import re


class SlotNames(NamedTuple):
    """The names that optimizers without slots have for one slot."""

    attributes: Tuple[str, ...]  # of the optimizer: lists of variables
    parts: Tuple[str, ...]  # of the variables' names: first as in Keras 2, last as in Keras 3


_MOMENTUM = SlotNames(("_momentums", "momentums"), ("m", "momentum"))
_ADAM = {
    "m": _MOMENTUM,
    "v": SlotNames(("_velocities",), ("v", "velocity")),
    "vhat": SlotNames(("_velocity_hats",), ("vhat", "velocity_hat")),
}
# class → slot → names, in the order in which an optimizer creates them; common classes come before similar ones
_SLOTS: Dict[str, Dict[str, SlotNames]] = {
    "SGD": {"momentum": _MOMENTUM},
    "Adam": _ADAM,
    "AdamW": _ADAM,
    "Nadam": _ADAM,
    "Lamb": _ADAM,
    "ScheduleFreeAdamW": _ADAM,
    "Lion": {"momentum": _MOMENTUM},
    "Muon": {"momentum": _MOMENTUM, "velocity": SlotNames(("adam_velocities",), ("velocity",))},
    "RMSprop": {
        "rms": SlotNames(("_velocities",), ("velocity",)),
        "momentum": SlotNames(("_momentums",), ("momentum",)),
        "mg": SlotNames(("_average_gradients",), ("average_gradient",)),
    },
    "Adagrad": {"accumulator": SlotNames(("_accumulators",), ("accumulator",))},
    "Adadelta": {
        "accum_grad": SlotNames(("_accumulated_grads",), ("accumulated_grad",)),
        "accum_var": SlotNames(("_accumulated_delta_vars",), ("accumulated_delta_var",)),
    },
    "Adamax": {"m": SlotNames(("_m",), ("m", "momentum")), "v": SlotNames(("_u",), ("u", "norm"))},
    "Ftrl": {
        "accumulator": SlotNames(("_accumulators",), ("accumulator",)),
        "linear": SlotNames(("_linears",), ("linear",)),
    },
    "Adafactor": {
        "r": SlotNames(("_r",), ("r",)),
        "c": SlotNames(("_c",), ("c",)),
        "v": SlotNames(("_v",), ("v", "velocity")),
    },
}
_AVERAGE = "average"  # the moving average of the model's variables
_ACCUMULATOR = "gradient_accumulator"
# class → slot → the argument without which an optimizer has no such slot
_CONDITIONS = {
    **{name: {"vhat": "amsgrad"} for name in ("Adam", "AdamW", "Nadam", "Lamb", "ScheduleFreeAdamW")},
    "SGD": {"momentum": "momentum"},
    "RMSprop": {"momentum": "momentum", "mg": "centered"},
}
_IRREGULAR = ("Muon",)  # which variables have which slots depends on more than their shapes
# slots that an optimizer of any class may have
_OPTIONAL: Dict[str, SlotNames] = {
    _AVERAGE: SlotNames(("_model_variables_moving_average",), ("average",)),
    _ACCUMULATOR: SlotNames(("_accumulated_gradients",), ("gradient_accumulator",)),
}
_PARTS = frozenset(part for slots in [*_SLOTS.values(), _OPTIONAL] for names in slots.values() for part in names.parts)
_LAST = ("vhat",)  # slots in a block after all others
# Nadam's product of momenta has another name in each generation
_SCALARS = {"_u_product": "momentum_cache", "u_product": "momentum_cache", "_m_cache": "momentum_cache"}


# Slots by class


def slots_of_class(class_name: str) -> List[str]:
    """Return the slots that an optimizer of a class may have; none for an unknown class."""
    return list(_SLOTS.get(class_name, {}))


def known_class(classes: Sequence[type]) -> str:
    """Return the name of the first of a class and its bases whose slots are known, or that of the class itself."""
    return next((cls.__name__ for cls in classes if cls.__name__ in _SLOTS), classes[0].__name__)


def listed_slots(
    class_name: Optional[str],
    arguments: Mapping[str, Any],
    shape: Tuple[int, ...],
    *,
    has_unused_momentum: bool,
    lists_placeholders: bool,
) -> Optional[Dict[str, Tuple[int, ...]]]:
    """Return slot → shape of the slots that an optimizer without slots lists for a variable; None if that is unknown.

    Args:
        class_name: The class of the optimizer.
        arguments: Its configuration.
        shape: The shape of the variable.
        has_unused_momentum: Whether SGD has a slot for a momentum of zero.
        lists_placeholders: Whether Adafactor lists a number for a variable that it does not factor.
    """
    if class_name not in _SLOTS or class_name in _IRREGULAR:
        return None
    conditions = {} if class_name == "SGD" and has_unused_momentum else _CONDITIONS.get(class_name, {})
    names = [name for name in _SLOTS[class_name] if name not in conditions or arguments.get(conditions[name])]
    found = dict.fromkeys(names, shape)
    if class_name == "Adafactor":
        is_factored = len(shape) > 1
        found.update({"r": shape[:-1], "c": (*shape[:-2], *shape[-1:])} if is_factored else {"r": (), "c": ()})
        if not is_factored and not lists_placeholders:
            del found["r"], found["c"]
    optional = {_AVERAGE: "use_ema", _ACCUMULATOR: "gradient_accumulation_steps"}
    found.update({name: shape for name, argument in optional.items() if arguments.get(argument)})
    return found


def class_with_slots(slots: Collection[str]) -> str:
    """Return the first class that may have all of these slots, or an empty string."""
    return next((name for name, known in _SLOTS.items() if set(slots) <= {*known, *_OPTIONAL}), "")


def class_of_name(name: str) -> str:
    """Return the class that Keras finds by a name such as ``adam``."""
    return next((each for each in _SLOTS if each.lower() == name.lower()), name)


def name_parts(slot: str, class_name: str) -> Tuple[str, str]:
    """Return the parts that stand for a slot in the variable names of Keras 2's new optimizers and of Keras 3."""
    names = {**_SLOTS.get(class_name, {}), **_OPTIONAL}.get(slot)
    return (slot, slot) if names is None else (names.parts[0], names.parts[-1])


def attributes_of_slot(slot: str, class_name: Optional[str]) -> List[str]:
    """Return the attributes that may hold a slot's list; for an unknown class, those of all classes with that slot."""
    classes = [_SLOTS[class_name]] if class_name in _SLOTS else list(_SLOTS.values())
    found = [known[slot].attributes for known in [*classes, _OPTIONAL] if slot in known]
    return list(dict.fromkeys(name for names in found for name in names))


def attribute_names(class_names: Iterable[str]) -> Dict[str, Tuple[str, ...]]:
    """Map slots to the attributes that may hold their lists, by the first known class of a class and its bases."""
    known = next((_SLOTS[name] for name in class_names if name in _SLOTS), {})
    return {slot: names.attributes for slot, names in {**known, **_OPTIONAL}.items()}


# Slots by variable name


def slot_of_part(part: str, class_name: Optional[str]) -> Optional[str]:
    """Return the slot that a part of a variable's name stands for; None if the class has no such slot."""
    known = {**_SLOTS.get(class_name or "", {}), **_OPTIONAL}
    if part in known:
        return part
    return next((slot for slot, names in known.items() if part in names.parts), None)


def class_of_parts(parts: Sequence[str]) -> Optional[str]:
    """Return a class whose variables have these name parts, given in the order of a file that does not name the class.

    The order matters: Adam has a momentum, then a velocity; RMSprop has a velocity, then perhaps a momentum. Of classes
    with equal slots the first one is returned.
    """
    own = [part for part in dict.fromkeys(parts) if slot_of_part(part, None) is None]
    return next((name for name, slots in _SLOTS.items() if own and _fits(own, list(slots.values()))), None)


def class_of_slots(class_name: Optional[str], names: Sequence[str], parts: Sequence[str]) -> Optional[str]:
    """Return the class of the optimizer whose slots have these names, of which the caller expects one.

    Args:
        class_name: The class that the caller expects.
        names: The names of the slots: Keras 3 puts the name of the optimizer first, ``adam/dense_kernel_momentum``.
        parts: The words in the keys of the slots that name a slot.
    """
    scopes = {re.sub(r"_[0-9]+$", "", name.split("/")[-2]) for name in names if "/" in name}
    known = {name.lower(): name for name in _SLOTS}
    found = {known[scope] for scope in scopes if scope in known}
    if len(found) == 1:
        return found.pop()
    own = [part for part in dict.fromkeys(parts) if slot_of_part(part, None) is None]
    expected = list(_SLOTS.get(class_name or "", {}).values())
    if class_name is not None and (not expected or not own or _fits(own, expected)):
        return class_name
    return class_of_parts(parts)


def slot_of_attribute(attribute: str, class_name: Optional[str]) -> Optional[str]:
    """Return the slot whose list is in an attribute of an optimizer; None if there is none."""
    known = {**_SLOTS.get(class_name or "", {}), **_OPTIONAL}
    return next((slot for slot, names in known.items() if attribute in names.attributes), None)


def is_slot_attribute(attribute: str) -> bool:
    """Return whether any optimizer of Keras has the list of a slot in this attribute."""
    return any(attribute in names.attributes for slots in [*_SLOTS.values(), _OPTIONAL] for names in slots.values())


def _fits(parts: Sequence[str], slots: Sequence[SlotNames]) -> bool:
    if parts[0] not in slots[0].parts:
        return False
    indices = [next((index for index, names in enumerate(slots) if part in names.parts), -1) for part in parts]
    return -1 not in indices and indices == sorted(indices)


def owner_and_slot(name: str, class_name: Optional[str], owners: Collection[str]) -> Optional[Tuple[str, str]]:
    """Return the model variable and the slot that an optimizer variable's name means; None if it is not a slot.

    Legacy optimizers write ``Adam/d1/kernel/m``, the new ones of Keras 2 ``m/d1/kernel``, and those of Keras 3
    ``adam/d1_kernel_momentum``. A known owner in the name decides where the owner ends.
    """
    parts = name.split("/")
    for start in range(len(parts)):
        if start and "/".join(parts[start:]) in owners:
            slot = slot_of_part(parts[start - 1], class_name) or parts[start - 1]
            return "/".join(parts[start:]), slot
        owner = "/".join(parts[start:-1])
        if owner in owners:
            return owner, slot_of_part(parts[-1], class_name) or parts[-1]
    return _owner_joined_by_underscores(parts[-1], class_name, owners)


def _owner_joined_by_underscores(
    last: str, class_name: Optional[str], owners: Collection[str]
) -> Optional[Tuple[str, str]]:
    fitting = [owner for owner in owners if last.startswith(owner.replace("/", "_") + "_")]
    if not fitting:
        return None
    owner = max(fitting, key=len)
    part = last[len(owner) + 1 :]
    return owner, slot_of_part(part, class_name) or part


def slot_part(name: str, owners: Collection[str]) -> Optional[str]:
    """Return the part of a variable's name that stands for a slot, as written; None if it is not a slot."""
    found = owner_and_slot(name, None, owners)
    return None if found is None else found[1]


def ending_part(name: str) -> Optional[str]:
    """Return the longest part for a slot that a Keras 3 variable's name ends with; None if there is none."""
    return max((part for part in _PARTS if name.endswith("_" + part)), key=len, default=None)


def leading_part(name: str) -> Optional[str]:
    """Return the part for a slot in ``m/d1/kernel`` or ``Adam/m/d1/kernel``; None if there is none."""
    return next((part for part in name.split("/")[:-1] if part in _PARTS), None)


def owner_after_part(name: str) -> str:
    """Return the owner in ``m/d1/kernel`` or ``Adam/m/d1/kernel`` where no owners are known."""
    parts, part = name.split("/"), leading_part(name)
    return "/".join(parts[1:] if part is None else parts[parts.index(part) + 1 :])


def scalar_name(name: str, class_name: Optional[str] = None) -> str:
    """Return the common name of an optimizer variable that is not a slot, given its name in any generation."""
    last = name.split("/")[-1]
    if class_name == "Nadam" and last.startswith("variable"):  # Keras 3 does not name Nadam's only scalar
        return "momentum_cache"
    return _SCALARS.get(last, last)


# Order


def ordered_slots(
    slots: Mapping[str, Mapping[str, Any]], class_name: str, owners: Sequence[str], in_blocks: bool
) -> List[Tuple[str, str]]:
    """Return owner and slot of every slot variable in the order in which an optimizer lists them.

    Args:
        slots: The slots of each owner.
        class_name: The class of the optimizer.
        owners: The model variables in their order.
        in_blocks: Whether a slot of all variables comes before the next slot; otherwise all slots of a variable come
            before those of the next variable.
    """
    present = {name for each in slots.values() for name in each}
    known = [name for name in slots_of_class(class_name) if name in present]
    first = [name for name in (_AVERAGE, _ACCUMULATOR) if name in present]  # created before all others
    names = [*known, *sorted(present - {*known, *first})]
    if in_blocks:
        groups = [[name] for name in names]
    else:
        interleaved = [name for name in names if name not in _LAST]
        groups = [interleaved, *([name] for name in names if name in _LAST)]
    groups = [*([name] for name in first), *groups]
    return [(owner, name) for group in groups for owner in owners for name in group if name in slots.get(owner, {})]
