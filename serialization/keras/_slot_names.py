"""Which slot a name stands for: in the files of every Keras, and among the attributes of optimizers without slots.

A slot has the name that TensorFlow 2.0's documentation gives it: there, ``Adam`` has ``m`` and ``v``. Later optimizers
keep lists of variables instead, under other names, and name the variables differently again.
"""

from typing import Any, Collection, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple


class Names(NamedTuple):
    """What a slot is called by optimizers that have none."""

    attributes: Tuple[str, ...]  # the lists of variables
    words: Tuple[str, ...]  # parts of the variables' names: those of Keras 2, those of Keras 3


_MOMENTUM = Names(("_momentums", "momentums"), ("m", "momentum"))
_ADAM = {
    "m": _MOMENTUM,
    "v": Names(("_velocities",), ("v", "velocity")),
    "vhat": Names(("_velocity_hats",), ("vhat", "velocity_hat")),
}
# class → slot → its names, in the order in which an optimizer makes them; the common class comes before its like
_SLOTS: Dict[str, Dict[str, Names]] = {
    "SGD": {"momentum": _MOMENTUM},
    "Adam": _ADAM,
    "AdamW": _ADAM,
    "Nadam": _ADAM,
    "Lamb": _ADAM,
    "ScheduleFreeAdamW": _ADAM,
    "Lion": {"momentum": _MOMENTUM},
    "Muon": {"momentum": _MOMENTUM, "velocity": Names(("adam_velocities",), ("velocity",))},
    "RMSprop": {
        "rms": Names(("_velocities",), ("velocity",)),
        "momentum": Names(("_momentums",), ("momentum",)),
        "mg": Names(("_average_gradients",), ("average_gradient",)),
    },
    "Adagrad": {"accumulator": Names(("_accumulators",), ("accumulator",))},
    "Adadelta": {
        "accum_grad": Names(("_accumulated_grads",), ("accumulated_grad",)),
        "accum_var": Names(("_accumulated_delta_vars",), ("accumulated_delta_var",)),
    },
    "Adamax": {"m": Names(("_m",), ("m", "momentum")), "v": Names(("_u",), ("u", "norm"))},
    "Ftrl": {
        "accumulator": Names(("_accumulators",), ("accumulator",)),
        "linear": Names(("_linears",), ("linear",)),
    },
}
# what an optimizer of any class may have, if asked to
_OF_ALL: Dict[str, Names] = {
    "average": Names(("_model_variables_moving_average",), ("average",)),
    "gradient_accumulator": Names(("_accumulated_gradients",), ("gradient_accumulator",)),
}


# what Keras 3's own class calls a loss scale's state → what we and Keras 2 call it, in the order of its variables
KERAS_3_STATE = {"step_counter": "good_steps", "dynamic_scale": "current_loss_scale"}


def slots_of_class(class_name: str) -> List[str]:
    """The slots that an optimizer of a class may have; none for a class that is not known."""
    return list(_SLOTS.get(class_name, {}))


def class_with_slots(slots: Collection[str]) -> str:
    """The first class that may have all of these slots; empty if there is none."""
    return next((name for name, known in _SLOTS.items() if set(slots) <= {*known, *_OF_ALL}), "")


def words_of(slot: str, class_name: str) -> Tuple[str, str]:
    """What Keras 2's new optimizers and Keras 3's have in the names of a slot's variables."""
    names = {**_SLOTS.get(class_name, {}), **_OF_ALL}.get(slot)
    return (slot, slot) if names is None else (names.words[0], names.words[-1])


def attributes_of_slot(slot: str, class_name: Optional[str]) -> List[str]:
    """The attributes that may hold a slot's list; of an unknown class, those of every class with such a slot."""
    classes = [_SLOTS[class_name]] if class_name in _SLOTS else list(_SLOTS.values())
    found = [known[slot].attributes for known in [*classes, _OF_ALL] if slot in known]
    return list(dict.fromkeys(name for names in found for name in names))


def attribute_names(class_names: Iterable[str]) -> Dict[str, Tuple[str, ...]]:
    """Slot → the attributes that may hold its list; the first known class of a class and its bases counts."""
    known = next((_SLOTS[name] for name in class_names if name in _SLOTS), {})
    return {slot: names.attributes for slot, names in {**known, **_OF_ALL}.items()}


def slot_of_word(word: str, class_name: Optional[str]) -> Optional[str]:
    """The slot that a part of a variable's name stands for; None if an optimizer of that class has no such slot."""
    known = {**_SLOTS.get(class_name or "", {}), **_OF_ALL}
    if word in known:
        return word
    return next((slot for slot, names in known.items() if word in names.words), None)


def class_of_words(words: Sequence[str]) -> Optional[str]:
    """A class whose variables are named with these words, in the order in which they stand in a file.

    It is for files that do not say the class. Adam has a momentum and then a velocity, RMSprop has a velocity and then
    perhaps a momentum: so the order tells which. Of classes that have the same slots, it is the first.
    """
    own = [word for word in dict.fromkeys(words) if slot_of_word(word, None) is None]
    return next((name for name, slots in _SLOTS.items() if own and _fits(own, list(slots.values()))), None)


def _fits(words: Sequence[str], slots: Sequence[Names]) -> bool:
    if words[0] not in slots[0].words:
        return False
    places = [next((place for place, names in enumerate(slots) if word in names.words), -1) for word in words]
    return -1 not in places and places == sorted(places)


def owner_and_slot(name: str, class_name: Optional[str], owners: Collection[str]) -> Optional[Tuple[str, str]]:
    """Whose slot a variable of an optimizer is, and which, by its name; None for what is no slot.

    ``Adam/d1/kernel/m`` is what legacy optimizers write, ``m/d1/kernel`` the new ones of Keras 2, and
    ``adam/d1_kernel_momentum`` those of Keras 3. A known owner in the name decides where it ends.
    """
    parts = name.split("/")
    for start in range(len(parts)):
        if start and "/".join(parts[start:]) in owners:
            slot = slot_of_word(parts[start - 1], class_name) or parts[start - 1]
            return "/".join(parts[start:]), slot
        owner = "/".join(parts[start:-1])
        if owner in owners:
            return owner, slot_of_word(parts[-1], class_name) or parts[-1]
    return _of_keras_3(parts[-1], class_name, owners)


def _of_keras_3(last: str, class_name: Optional[str], owners: Collection[str]) -> Optional[Tuple[str, str]]:
    """An owner's path with underscores for slashes, and the slot's word."""
    fitting = [owner for owner in owners if last.startswith(owner.replace("/", "_") + "_")]
    if not fitting:
        return None
    owner = max(fitting, key=len)
    word = last[len(owner) + 1 :]
    return owner, slot_of_word(word, class_name) or word


def word_of(name: str, owners: Collection[str]) -> Optional[str]:
    """The word for a slot in a variable's name, as it is written; None for what is no slot."""
    found = owner_and_slot(name, None, owners)
    return None if found is None else found[1]


def inner_class(optimizer_config: Any) -> Optional[str]:
    """The class of the optimizer inside a configuration, whichever Keras wrote it, without its package's name."""
    config = inner_config(optimizer_config)
    class_name = config.get("class_name") if isinstance(config, Mapping) else None
    return class_name.split(">")[-1] if isinstance(class_name, str) else None


def inner_config(optimizer_config: Any) -> Any:
    """The configuration of the innermost optimizer: that of a LossScaleOptimizer holds another."""
    for _ in range(8):  # nobody nests deeper, and a file must not make us loop
        config = optimizer_config.get("config") if isinstance(optimizer_config, Mapping) else None
        inner = _first_of(config, ["inner_optimizer", "optimizer"]) if isinstance(config, Mapping) else None
        if not isinstance(inner, Mapping):
            break
        optimizer_config = inner
    return optimizer_config


def _first_of(mapping: Mapping[str, Any], keys: List[str]) -> Any:
    return next((mapping[key] for key in keys if key in mapping), None)


def scalar_named(name: str, class_name: Optional[str] = None) -> str:
    """What an optimizer's variable that is no slot is called, by its name or attribute in any generation."""
    last = name.split("/")[-1]
    if class_name == "Nadam" and last.startswith("variable"):  # Keras 3 gives the one that it has no name
        return "momentum_cache"
    return _SCALARS.get(last, last)


# Nadam's product of momenta has another name in each generation
_SCALARS = {"_u_product": "momentum_cache", "u_product": "momentum_cache", "_m_cache": "momentum_cache"}


def ending_word(name: str) -> Optional[str]:
    """The word for a slot that a variable's name ends with, as Keras 3 names them; None if there is none."""
    return max((word for word in _WORDS if name.endswith("_" + word)), key=len, default=None)


_WORDS = frozenset(word for slots in [*_SLOTS.values(), _OF_ALL] for names in slots.values() for word in names.words)


def owner_after_word(name: str) -> str:
    """Whose slot it is by ``m/d1/kernel`` or ``Adam/m/d1/kernel``, where no owner is known: what follows the word."""
    parts = name.split("/")
    words = [place for place, part in enumerate(parts[:-1]) if part in _WORDS]
    return "/".join(parts[words[0] + 1 :] if words else parts[1:])
