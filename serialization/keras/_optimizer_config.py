"""The configuration of an optimizer with its loss scale: decoded from any Keras, encoded for any Keras."""

from typing import Any, Callable, Collection, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Tuple

import functools
from types import MappingProxyType

import numpy as np

from ...registry._monitor_options import NAMES as MONITOR_OPTIONS
from ...registry._optimizer_spec import OPTIMIZERS, SCHEDULES
from ...registry._targets import Target, entries_by_class, ranges
from ...registry.errors import TranslationError, shown
from .profile import (
    CLIPPING,
    LEGACY,
    POLICY_KEY,
    UNKNOWN,
    EncodedLossScale,
    KerasProfile,
    Policy,
    Reader,
    decode_newer_keys,
    fixed_policy,
    plain_numbers,
    profile_of_inner,
    profiles,
)
from .target import KerasTarget

_SKIPPED_STEPS = "skipped_steps"
_MAX_DEPTH = 8  # of optimizers inside optimizers in an untrusted file


class OptimizerConfig(NamedTuple):
    """An optimizer with its loss scale, as a configuration of any Keras declares them."""

    class_name: str  # Adam; a custom class has its registered name: MyPackage>MyOptimizer
    arguments: Dict[str, Any]  # of the inner optimizer, as written
    policy: Optional[Dict[str, Any]] = None  # class_name and config of the loss scale; None: there is none
    skipped_steps: Optional[str] = None  # as written
    name: Optional[str] = None  # of the wrapper
    family: str = UNKNOWN  # of the inner optimizer
    monitoring: Optional[Dict[str, Any]] = None  # monitor options, as written
    optimizer: Any = None  # the inner optimizer, where the configuration holds the object itself
    unknown: Mapping[str, Any] = MappingProxyType(
        {}
    )  # entries of the wrapper that neither Keras nor scalekeeper writes


class EncodedConfig(NamedTuple):
    """A configuration for a target, and what of the optimizer it lacks."""

    config: Dict[str, Any]  # class_name and config, for plain Keras
    profile: KerasProfile  # the generation of the inner optimizer on the target
    has_wrapper: bool  # whether it is the configuration of a LossScaleOptimizer
    dropped: List[str]  # what plain Keras does not get, in sentences
    full_config: Dict[str, Any]  # the same for scalekeeper: complete

    @property
    def family(self) -> str:
        """The family of the inner optimizer."""
        return self.profile.family


# Decoding


def decode_config(config: Mapping[str, Any]) -> OptimizerConfig:
    """Return what the configuration of an optimizer declares, whichever Keras wrote it.

    Args:
        config: class_name and config, or the inner mapping that ``from_config`` receives.

    Raises:
        TranslationError: If it is not the configuration of an optimizer.

    >>> from scalekeeper.serialization.keras._optimizer_config import decode_config
    >>> sgd = {"class_name": "SGD", "config": {"learning_rate": 0.5, "decay": 0.0}}
    >>> decode_config({"inner_optimizer": sgd, "dynamic": False, "initial_scale": 128.0}).policy
    {'class_name': 'FixedLossScale', 'config': {'loss_scale_value': 128.0}}
    """
    try:
        return _decode(config)
    except TranslationError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:  # such as a list instead of a mapping
        message = f"{shown(config)} is not an optimizer's configuration: {type(error).__name__}: {error}"
        raise TranslationError(message) from error


def _decode(config: Mapping[str, Any]) -> OptimizerConfig:
    if "class_name" in config and not _is_wrapper(config):
        return _decode_inner(config)
    wrapper = config["config"] if "class_name" in config else config
    inner = _inner_of(wrapper)
    if isinstance(inner, Mapping):
        # beside the wrapper's scale, a scale of the inner optimizer is an ordinary argument
        decoded = _decode_inner(inner, keeps_scale=any(name in wrapper for name in _scale_keys()))
    elif inner is not None:
        decoded = OptimizerConfig("", {}, optimizer=inner)
    else:
        raise TranslationError(
            f"{shown(dict(config))} holds no optimizer: a LossScaleOptimizer's configuration has 'inner_optimizer' or, "
            "up to TensorFlow 2.3, 'optimizer'"
        )
    return decoded._replace(
        policy=decoded.policy or _decode_policy(wrapper),
        skipped_steps=wrapper.get(_SKIPPED_STEPS),
        name=wrapper.get("name"),
        monitoring={name: wrapper[name] for name in MONITOR_OPTIONS if name in wrapper},
        family=_family_of_wrapper(config, wrapper) if decoded.family == UNKNOWN else decoded.family,
        unknown=unknown_entries(wrapper),
    )


def unknown_entries(wrapper: Mapping[str, Any]) -> Dict[str, Any]:
    """Return what neither Keras nor scalekeeper writes for a wrapper: arguments of a subclass, or mistakes."""
    known = {*_inner_keys(), *_scale_keys(), _SKIPPED_STEPS, *MONITOR_OPTIONS, *_WITHOUT_EFFECT_ON_WRAPPER}
    return {name: value for name, value in wrapper.items() if name not in known}


def _inner_keys() -> List[str]:
    return list(dict.fromkeys(each.inner_key for each in profiles()))


def _inner_of(wrapper: Mapping[str, Any]) -> Any:
    return next((wrapper[name] for name in _inner_keys() if name in wrapper), None)


def _scale_keys() -> List[str]:
    return list(dict.fromkeys([POLICY_KEY, *(name for each in profiles() for name in each.scale_keys)]))


def wrapper_class_names() -> List[str]:
    """Return the names of Keras's own LossScaleOptimizer classes in every generation, oldest first."""
    found = [name for each in profiles() for name in (each.wrapper_class_name, *each.old_wrapper_class_names)]
    return sorted(dict.fromkeys(found))


def _is_wrapper(config: Mapping[str, Any]) -> bool:
    inner = config.get("config")
    holds_optimizer = isinstance(inner, Mapping) and any(name in inner for name in _inner_keys())
    return holds_optimizer or str(config["class_name"]).split(">")[-1] in wrapper_class_names()


def _decode_inner(config: Mapping[str, Any], keeps_scale: bool = False) -> OptimizerConfig:
    """Decode an optimizer without a wrapper; those of Keras 3 may have a fixed loss scale among their arguments."""
    arguments, policy = dict(config["config"]), None
    for name in () if keeps_scale else _inner_scale_keys():
        if arguments.get(name) is not None:
            policy = fixed_policy(arguments.pop(name))
    profile = profile_of_inner(config)
    family = UNKNOWN if profile is None else profile.family
    return OptimizerConfig(class_name_of(config, OPTIMIZERS), arguments, policy, family=family)


def _inner_scale_keys() -> List[str]:
    return [each.inner_scale_key for each in profiles() if each.inner_scale_key is not None]


def _decode_policy(wrapper: Mapping[str, Any]) -> Dict[str, Any]:
    if POLICY_KEY in wrapper:
        policy = wrapper[POLICY_KEY]
        if not isinstance(policy["class_name"], str):
            raise TypeError(f"expected the name of a loss scale's class, got {shown(policy['class_name'])}")
        return {"class_name": policy["class_name"], "config": dict(policy["config"])}
    found = (each.decode_loss_scale(wrapper) for each in profiles())
    return next((each for each in found if each is not None), None) or decode_newer_keys(wrapper)


def _family_of_wrapper(config: Mapping[str, Any], wrapper: Mapping[str, Any]) -> str:
    found = (each.family for each in profiles() if each.recognizes_wrapper(config, wrapper))
    return next(found, UNKNOWN)


def has_loss_scale(config: Optional[Mapping[str, Any]]) -> bool:
    """Return whether the optimizer configuration of a model has a loss scale, of Keras or of scalekeeper."""
    config = config or {}
    name = str(config.get("class_name"))
    if "LossScaleOptimizer" in name or name in wrapper_class_names():
        return True
    return any(config.get("config", {}).get(key) for key in _inner_scale_keys())


def config_with_policy(config: Optional[Mapping[str, Any]], policy: Optional[Policy]) -> Dict[str, Any]:
    """Return what ``from_config`` receives of a configuration of any Keras, with a policy; None keeps its own."""
    wrapper = dict(config or {})
    name = str(wrapper.get("class_name"))
    is_wrapper = "LossScaleOptimizer" in name or name in wrapper_class_names()
    wrapper = dict(wrapper["config"]) if is_wrapper else {"inner_optimizer": wrapper}
    if policy is not None:
        for key in _scale_keys():
            wrapper.pop(key, None)
        wrapper[POLICY_KEY] = policy
    return wrapper


def inner_config(config: Any) -> Any:
    """Return the configuration of the innermost optimizer: a LossScaleOptimizer's holds another one."""
    for _ in range(_MAX_DEPTH):
        inside = config.get("config") if isinstance(config, Mapping) else None
        inner = _inner_of(inside) if isinstance(inside, Mapping) else None
        if not isinstance(inner, Mapping):
            break
        config = inner
    return config


def inner_class(config: Any) -> Optional[str]:
    """Return the class of the innermost optimizer without its package; None if the configuration does not name it."""
    return _class_name(inner_config(config))


def class_chain(config: Any) -> List[str]:
    """Return the classes of an optimizer and of the optimizers inside it, from the outermost on."""
    found: List[str] = []
    for _ in range(_MAX_DEPTH):
        name = _class_name(config)
        found += [] if name is None else [name]
        inside = config.get("config") if isinstance(config, Mapping) else None
        config = _inner_of(inside) if isinstance(inside, Mapping) else None
    return found


def _class_name(config: Any) -> Optional[str]:
    """Return the class that a configuration names, without its package."""
    class_name = config.get("class_name") if isinstance(config, Mapping) else None
    return class_name.split(">")[-1] if isinstance(class_name, str) else None


# Encoding


def encode_wrapper(profile: KerasProfile, inner: Any, policy: Policy, name: Optional[str] = None) -> Dict[str, Any]:
    """Return what ``get_config`` returns: the keys of a generation's LossScaleOptimizer, complete for scalekeeper."""
    keys = profile.encode_loss_scale(policy, Reader.SCALEKEEPER).wrapper
    return _wrapper_keys(profile, inner, keys or {}, name)


def encode_config(target: KerasTarget, optimizer: OptimizerConfig) -> EncodedConfig:
    """Return the configuration of an optimizer with its loss scale, as the target's own class writes it."""
    profile, entry = _target_entry(target, optimizer)
    inner = _encode_inner(target, optimizer, profile, entry)
    policy, where = optimizer.policy, str(target)
    scale = EncodedLossScale(None, {}, [])
    if policy is not None:
        scale = profile.encode_loss_scale(policy, Reader.PLAIN_KERAS, where)
    monitoring = optimizer.monitoring or {}
    dropped = [*scale.dropped, *(f"{key}={value}: {where} does not monitor steps" for key, value in monitoring.items())]
    if scale.wrapper is not None:
        keys = _wrapper_keys(profile, inner, scale.wrapper, optimizer.name or "loss_scale_optimizer")
        config = profile.wrapper_entry(keys, target.package, target.writes_modules)
    else:
        config = {**inner, "config": {**inner["config"], **scale.inner}}
    full_config = config
    if dropped or optimizer.skipped_steps is not None:
        options = {POLICY_KEY: policy, _SKIPPED_STEPS: optimizer.skipped_steps, **monitoring}
        given = {key: value for key, value in options.items() if value is not None}
        keys = {profile.inner_key: inner, **given}
        full_config = profile.wrapper_entry(keys, target.package, target.writes_modules)
    return EncodedConfig(config, profile, scale.wrapper is not None, dropped, full_config)


def _wrapper_keys(profile: KerasProfile, inner: Any, scale: Mapping[str, Any], name: Optional[str]) -> Dict[str, Any]:
    named = {"name": name} if profile.writes_wrapper_name else {}
    return {**named, profile.inner_key: inner, **scale}


def _target_entry(target: KerasTarget, optimizer: OptimizerConfig) -> Tuple[KerasProfile, Mapping[str, Any]]:
    """Return the generation that an optimizer is of on the target, and the entry of its class in the target's table."""
    entries = {entry["class"]: entry for entry in target.target.table[OPTIMIZERS].values()}
    for profile in sorted(target.profiles, key=lambda each: each.family != optimizer.family):  # its own family first
        path = f"{profile.optimizers_path(target.tensorflow)}.{optimizer.class_name}"
        if path in entries:
            return profile, entries[path]
    known = sorted({path.rpartition(".")[2] for path in entries})
    raise TranslationError(f"{target} has no optimizer {shown(optimizer.class_name)}; it has {', '.join(known)}")


def _encode_inner(
    target: KerasTarget, optimizer: OptimizerConfig, profile: KerasProfile, entry: Mapping[str, Any]
) -> Dict[str, Any]:
    """Return the inner optimizer with all arguments, as configurations have them."""
    defaults = dict(entry["arguments"])
    constructor = Constructor(set(defaults), defaults, lambda name: _schedule_arguments(target, name))
    given = translated_arguments(optimizer.class_name, optimizer.arguments, optimizer.family, constructor)
    config = {**defaults, "name": optimizer.class_name, **given, **profile.extra_arguments}
    if profile.omits_unset_clipping:
        config = {key: value for key, value in config.items() if key not in CLIPPING or value is not None}
    if isinstance(config.get("learning_rate"), Mapping):
        config["learning_rate"] = _entry(target, config["learning_rate"], "optimizers.schedules")
    path = profile.optimizers_path(target.tensorflow)
    return _entry(target, {"class_name": optimizer.class_name, "config": config}, path)


def _schedule_arguments(target: KerasTarget, class_name: str) -> Optional[List[str]]:
    for entry in target.target.table[SCHEDULES].values():
        if entry["class"].rpartition(".")[2] == class_name:
            return list(entry["arguments"])
    return None


def _entry(target: KerasTarget, config: Mapping[str, Any], module: str) -> Dict[str, Any]:
    if not target.writes_modules:
        return dict(config)
    return {"module": f"keras.{module}", **config, "registered_name": None}


# Arguments of an inner optimizer or a schedule, for the constructor of another Keras


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
# arguments of all optimizers, which some versions of Keras 3 write for the wrapper too
_WITHOUT_EFFECT_ON_WRAPPER = (*_NEUTRAL, *_AVERAGING, *_WITHOUT_EFFECT, "learning_rate", "is_legacy_optimizer")
# legacy Nadam decays its momentum: a constructor takes that decay as schedule_decay, and ignores decay
_NADAM, _NADAM_DECAY, _NEW_NADAM_DECAY = "Nadam", 0.004, 1.0
_INVERSE_TIME_DECAY = "InverseTimeDecay"


class Constructor(NamedTuple):
    """The arguments that the constructors of one Keras accept."""

    accepted: Collection[str]  # argument names of the optimizer
    defaults: Mapping[str, Any]  # of these arguments
    accepted_by_schedule: Callable[[str], Optional[Collection[str]]]  # class name → argument names; None: no such class


def translated_arguments(
    class_name: str, arguments: Mapping[str, Any], family: str, constructor: Constructor
) -> Dict[str, Any]:
    """Return the arguments of an inner optimizer as a constructor of another Keras takes them.

    Arguments that the constructor does not have are left out if training is the same without them.
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
    """Return the class without the package that Keras puts before its own; a custom class has its registered name."""
    name = str(config["class_name"])
    registered = config.get("registered_name")
    if registered and registered.split(">")[0] not in (*_KERAS_PACKAGES, registered):
        return str(registered)
    package, _, bare = name.rpartition(">")
    bare = _names_in_lower_case().get(bare, bare) if kind == OPTIMIZERS else bare
    return bare if package in ("", *_KERAS_PACKAGES) and bare in shipped(kind) else name


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


# The entries of the tables of signatures


@functools.lru_cache(maxsize=None)
def shipped(kind: str) -> FrozenSet[str]:
    """Return the classes that some Keras ships: OPTIMIZERS or SCHEDULES."""
    return frozenset(entries_by_class(kind))


@functools.lru_cache(maxsize=None)
def _names_in_lower_case() -> Dict[str, str]:
    """Return the optimizers by the names that Keras's ``deserialize`` takes as well, and writes into its argument."""
    return {name.lower(): name for name in shipped(OPTIMIZERS)}


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
