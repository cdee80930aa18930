"""The arguments of an inner optimizer or a schedule, translated for the constructor of another Keras."""

from typing import Any, Callable, Collection, Dict, FrozenSet, List, Mapping, NamedTuple, Optional

import functools

import numpy as np

from ...registry._optimizer_spec import OPTIMIZERS, SCHEDULES
from ...registry._targets import Target, entries_by_class, ranges
from ...registry.errors import TranslationError, shown
from .profile import CLIPPING, LEGACY, UNKNOWN, plain_numbers, profiles

_KERAS_PACKAGES = ("Custom", "keras", "tf_keras")  # as in Custom>Adam
_AVERAGING = ("ema_momentum", "ema_overwrite_frequency")  # have an effect with use_ema only
# argument → values with which an optimizer trains as one without the argument
_NEUTRAL: Dict[str, Any] = {
    **dict.fromkeys(CLIPPING, (None,)),
    "weight_decay": (None, 0, False),
    "use_ema": (False, None),
    "gradient_accumulation_steps": (None,),
    "loss_scale_factor": (None,),
}
_WITHOUT_EFFECT = ("jit_compile", "name")
# legacy Nadam decays its momentum: a constructor takes that decay as schedule_decay, and ignores decay
_NADAM, _NADAM_DECAY, _NEW_NADAM_DECAY = "Nadam", 0.004, 1.0
_INVERSE_TIME_DECAY = "InverseTimeDecay"


class Constructor(NamedTuple):
    """What the constructors of one Keras accept."""

    accepted: Collection[str]  # argument names of the optimizer
    defaults: Mapping[str, Any]  # of these arguments
    accepted_by_schedule: Callable[[str], Optional[Collection[str]]]  # class name → argument names; None: no such class


def translated_arguments(
    class_name: str, arguments: Mapping[str, Any], family: str, constructor: Constructor
) -> Dict[str, Any]:
    """Return the arguments of an inner optimizer as a constructor of another Keras takes them.

    Arguments that the constructor does not have are left out if training is the same without them.

    Args:
        class_name: The class of the optimizer.
        arguments: Its arguments, as a configuration holds them.
        family: The family of the optimizer that the configuration is of.
        constructor: What the constructor accepts.

    Raises:
        TranslationError: If an argument that changes training has no equivalent.
    """
    return _Translation(class_name, family, constructor).translated(plain_numbers(arguments))


class _Translation:
    def __init__(self, class_name: str, family: str, constructor: Constructor) -> None:
        self._class_name = class_name
        self._family = family
        self._accepted, self._defaults, self._accepted_by_schedule = constructor
        self._problems: List[str] = []

    def translated(self, given: Dict[str, Any]) -> Dict[str, Any]:
        if "lr" in given:  # it wins in constructors that have both
            given["learning_rate"] = given.pop("lr")
        if isinstance(given.get("learning_rate"), Mapping):
            given["learning_rate"] = self._schedule(given["learning_rate"])
        self._translate_decay(given)
        if "use_ema" not in self._accepted and not given.get("use_ema"):
            for name in _AVERAGING:
                given.pop(name, None)
        for name in CLIPPING:  # older constructors refuse null
            if given.get(name, 0) is None:
                del given[name]
        self._drop_neutral(given)
        if self._problems:
            raise TranslationError(
                f"the target's {self._class_name} has no equivalent for the given arguments:\n"
                + "".join(f"  {problem}\n" for problem in self._problems)
                + f"It accepts {', '.join(sorted(self._accepted))}. Create the optimizer in code with other arguments, "
                "or use a TensorFlow that has these."
            )
        return given

    def _drop_neutral(self, given: Dict[str, Any]) -> None:
        is_shipped = self._class_name in shipped(OPTIMIZERS)
        for name, value in list(given.items()):
            if name in self._accepted or name == "schedule_decay":
                continue
            if _is_neutral(OPTIMIZERS, self._class_name, name, value):
                del given[name]
            elif is_shipped or name in _NEUTRAL:
                where = _available_on(OPTIMIZERS, self._class_name, name)
                self._problems.append(f"{name}={shown(value)} changes training" + where)

    def _translate_decay(self, given: Dict[str, Any]) -> None:
        """Legacy ``decay`` divides the learning rate by 1 + decay × iterations; new optimizers need a schedule."""
        decay = given.pop("decay", None)
        if self._class_name == _NADAM:
            self._translate_nadam_decay(decay, given)
            return
        if not decay:
            return
        rate = given.get("learning_rate", self._defaults.get("learning_rate"))
        if "decay" in self._accepted:
            given["decay"] = decay
        elif isinstance(rate, Mapping):
            self._problems.append(f"decay={decay} together with a learning-rate schedule changes training")
        else:
            config = {"initial_learning_rate": rate, "decay_steps": 1, "decay_rate": decay}
            given["learning_rate"] = {"class_name": _INVERSE_TIME_DECAY, "config": config}

    def _translate_nadam_decay(self, decay: Any, given: Dict[str, Any]) -> None:
        """The decay of Nadam's momentum is an argument of legacy optimizers and a constant in newer ones."""
        if decay is None:
            if self._family in (LEGACY, UNKNOWN):
                return
            decay = _NEW_NADAM_DECAY
        if "decay" in self._accepted:
            if decay != _NADAM_DECAY:
                given["schedule_decay"] = decay
        elif decay != _NEW_NADAM_DECAY:
            self._problems.append(
                f"decay={decay} of the momentum changes training: the target's constant is {_NEW_NADAM_DECAY:g}"
                + _available_on(OPTIMIZERS, _NADAM, "decay")
            )

    def _schedule(self, config: Mapping[str, Any]) -> Dict[str, Any]:
        """Return class_name and config of a learning-rate schedule, with the arguments that its constructor accepts."""
        class_name, arguments = class_name_of(config, SCHEDULES), dict(config["config"])
        entry = {"class_name": class_name, "config": arguments}
        if arguments.get("name", "") is None:
            del arguments["name"]  # no constructor has null as the default
        if class_name not in shipped(SCHEDULES):
            return entry
        accepted = self._accepted_by_schedule(class_name)
        if accepted is None:
            where = _available_on(SCHEDULES, class_name, None)
            self._problems.append(f"the learning-rate schedule {class_name} does not exist" + where)
            return entry
        if arguments.get("warmup_target", 0) is None and "warmup_steps" not in accepted:
            arguments.pop("warmup_steps", None)  # has no effect without a target
        for name, value in list(arguments.items()):
            if name not in accepted:
                if not _is_neutral(SCHEDULES, class_name, name, value):
                    where = _available_on(SCHEDULES, class_name, name)
                    self._problems.append(f"{name}={shown(value)} of {class_name} changes training" + where)
                del arguments[name]
        return entry


def class_name_of(config: Mapping[str, Any], kind: str) -> str:
    """Return the class without the package that Keras puts before its own; custom classes keep their registered name.

    Args:
        config: class_name, config and perhaps registered_name.
        kind: OPTIMIZERS or SCHEDULES.
    """
    name = str(config["class_name"])
    registered = config.get("registered_name")
    if registered and registered.split(">")[0] not in (*_KERAS_PACKAGES, registered):
        return str(registered)
    package, _, bare = name.rpartition(">")
    return bare if package in _KERAS_PACKAGES and bare in shipped(kind) else name


def _is_neutral(kind: str, class_name: str, name: str, value: Any) -> bool:
    """Return whether training is the same without an argument.

    Keras adds arguments with defaults that keep training as it was, so every default is neutral.
    """
    if name in _WITHOUT_EFFECT or value is None or any(name in each.extra_arguments for each in profiles()):
        return True
    if name in _NEUTRAL:
        return value in _NEUTRAL[name]
    return any(_is_same(value, default) for default in _defaults(kind, class_name, name))


def _is_same(value: Any, default: Any) -> bool:
    """Return whether values are equal, or equal as float32, which they are after training."""
    if isinstance(value, (int, float)) and isinstance(default, (int, float)):
        return bool(np.float32(value) == np.float32(default))
    return bool(value == default)


# What the tables of signatures hold


@functools.lru_cache(maxsize=None)
def shipped(kind: str) -> FrozenSet[str]:
    """Return the classes that some Keras ships: OPTIMIZERS or SCHEDULES."""
    return frozenset(entries_by_class(kind))


def _defaults(kind: str, class_name: str, argument: str) -> List[Any]:
    entries = entries_by_class(kind).get(class_name, [])
    return [entry["arguments"][argument] for entry in entries if argument in entry["arguments"]]


def _available_on(kind: str, class_name: str, argument: Optional[str]) -> str:
    """Return where a class, or an argument of it, exists, for a message."""

    def has_it(target: Target) -> bool:
        entries = [each for each in target.table[kind].values() if each["class"].rpartition(".")[2] == class_name]
        return any(argument is None or argument in entry["arguments"] for entry in entries)

    found = ranges(has_it)
    return f"; available on TensorFlow {' and '.join(found)}" if found else ""
