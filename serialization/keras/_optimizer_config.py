"""What an optimizer's configuration declares, whoever wrote it; and its arguments in the words of another Keras."""

from typing import Any, Callable, Collection, Dict, FrozenSet, List, Mapping, NamedTuple, Optional

import functools

import numpy as np

from ...registry._monitor_options import NAMES as MONITORING
from ...registry._optimizer_spec import OPTIMIZERS, SCHEDULES
from ...registry._targets import Target, known_targets, ranges
from ...registry.errors import TranslationError, shown

# Whose arguments an inner optimizer's are: those of OptimizerV2, of the new optimizers of Keras 2, or of Keras 3.
LEGACY, NEW, KERAS_3, UNKNOWN = "legacy", "new", "keras3", "unknown"

_WRAPPERS = ("LossScaleOptimizer", "LossScaleOptimizerV1", "LossScaleOptimizerV3")
_PACKAGES_OF_KERAS = ("Custom", "keras", "tf_keras")  # as in Custom>Adam
_SCALE = {"loss_scale", "dynamic", "initial_scale", "dynamic_growth_steps"}  # what a wrapper says of its scale
CLIPPING = ("clipnorm", "clipvalue", "global_clipnorm")
_AVERAGING = ("ema_momentum", "ema_overwrite_frequency")  # matter with use_ema only
# argument → values with which an optimizer trains as one that does not have the argument
_NEUTRAL: Dict[str, Any] = {
    **dict.fromkeys(CLIPPING, (None,)),
    "weight_decay": (None, 0, False),
    "use_ema": (False, None),
    "gradient_accumulation_steps": (None,),
    "loss_scale_factor": (None,),
}
_SAYS_NOTHING = ("is_legacy_optimizer", "jit_compile", "name")
# legacy Nadam has a decay of its own, of the momentum: a constructor takes it as schedule_decay, and ignores decay
_NADAM, _NADAMS_DECAY, _NEW_NADAMS_DECAY = "Nadam", 0.004, 1.0
_INVERSE_TIME_DECAY = "InverseTimeDecay"


class Declaration(NamedTuple):
    """An optimizer with its loss scale, as a configuration declares them."""

    class_name: str  # Adam; or a class of the user's, under its registered name: MyPackage>MyOptimizer
    arguments: Dict[str, Any]  # of the inner optimizer, as written
    policy: Optional[Dict[str, Any]] = None  # class_name and config of the loss scale; None: there is none
    skipped_steps: Optional[str] = None  # as written
    name: Optional[str] = None  # the wrapper's
    family: str = UNKNOWN  # LEGACY, NEW, KERAS_3 or UNKNOWN
    monitoring: Optional[Dict[str, Any]] = None  # what it keeps an eye on, as written
    optimizer: Any = None  # the inner optimizer, where the configuration holds an object already


def declared(config: Mapping[str, Any]) -> Declaration:
    """Read an optimizer's configuration: ``class_name`` and ``config``, or the inner mapping that from_config gets.

    >>> from scalekeeper.serialization.keras._optimizer_config import declared
    >>> sgd = {"class_name": "SGD", "config": {"learning_rate": 0.5, "decay": 0.0}}
    >>> declared({"inner_optimizer": sgd, "dynamic": False, "initial_scale": 128.0}).policy
    {'class_name': 'FixedLossScale', 'config': {'loss_scale_value': 128.0}}
    """
    try:
        return _declared(config)
    except TranslationError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:  # a list where a mapping should be, and its like
        message = f"{shown(config)} is not an optimizer's configuration: {type(error).__name__}: {error}"
        raise TranslationError(message) from error


def _declared(config: Mapping[str, Any]) -> Declaration:
    if "class_name" in config and not _is_wrapper(config):
        return _bare(config)
    wrapper = config["config"] if "class_name" in config else config
    inner = wrapper.get("inner_optimizer", wrapper.get("optimizer"))
    if isinstance(inner, Mapping):
        # a scale of its own beside the wrapper's is an argument like others
        declaration = _bare(inner, keeps_scale=bool(_SCALE & wrapper.keys()))
    elif inner is not None:
        declaration = Declaration("", {}, optimizer=inner)
    else:
        raise TranslationError(
            f"no optimizer is in {shown(dict(config))}: a LossScaleOptimizer's configuration has 'inner_optimizer' or, "
            "up to TensorFlow 2.3, 'optimizer'"
        )
    family = _family_by_wrapper(config, wrapper) if declaration.family == UNKNOWN else declaration.family
    return declaration._replace(
        policy=declaration.policy or _policy(wrapper),
        skipped_steps=wrapper.get("skipped_steps"),
        name=wrapper.get("name"),
        monitoring={name: wrapper[name] for name in MONITORING if name in wrapper},
        family=family,
    )


def _is_wrapper(config: Mapping[str, Any]) -> bool:
    inner = config.get("config")
    holds_one = isinstance(inner, Mapping) and bool({"inner_optimizer", "optimizer"} & inner.keys())
    return holds_one or str(config["class_name"]).split(">")[-1] in _WRAPPERS


def _bare(config: Mapping[str, Any], keeps_scale: bool = False) -> Declaration:
    """An optimizer without a wrapper; Keras 3's have a fixed loss scale among their arguments."""
    arguments = dict(config["config"])
    policy = None
    if not keeps_scale and arguments.get("loss_scale_factor") is not None:
        policy = _fixed(arguments.pop("loss_scale_factor"))
    return Declaration(_class_name(config, OPTIMIZERS), arguments, policy, family=_family(config))


def _policy(wrapper: Mapping[str, Any]) -> Dict[str, Any]:
    """The loss scale of a wrapper, in the words of 2.0, which are ours."""
    if "loss_scale" in wrapper:
        policy = wrapper["loss_scale"]
        if not isinstance(policy["class_name"], str):
            raise TypeError(f"{shown(policy['class_name'])} is not the name of a loss scale's class")
        return {"class_name": policy["class_name"], "config": dict(policy["config"])}
    scale, period = wrapper.get("initial_scale"), wrapper.get("dynamic_growth_steps")
    if wrapper.get("dynamic", True):
        words = {"initial_loss_scale": scale, "increment_period": period, "multiplier": 2.0}
        config = {name: plain_numbers(value) for name, value in words.items() if value is not None}
        return {"class_name": "DynamicLossScale", "config": config}
    if scale is None:
        raise TranslationError("dynamic is false and initial_scale is not there: give the scale that stays")
    return _fixed(scale)


def in_newer_words(policy: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
    """A policy's configuration as 2.4 and later have it, if they can say it: a fixed scale, or a plain dynamic one."""
    class_name, config = policy["class_name"], dict(policy["config"])
    if class_name == "FixedLossScale" and config.keys() == {"loss_scale_value"}:
        return {"dynamic": False, "initial_scale": config["loss_scale_value"], "dynamic_growth_steps": None}
    if class_name == "DynamicLossScale" and config.pop("multiplier", None) == 2.0 and len(config) == 2:
        scale, period = config["initial_loss_scale"], config["increment_period"]
        return {"dynamic": True, "initial_scale": scale, "dynamic_growth_steps": period}
    return None


def _fixed(scale: Any) -> Dict[str, Any]:
    return {"class_name": "FixedLossScale", "config": {"loss_scale_value": plain_numbers(scale)}}


def _class_name(config: Mapping[str, Any], kind: str) -> str:
    """The class without what Keras puts before its own; a user's class keeps its registered name."""
    name = str(config["class_name"])
    registered = config.get("registered_name")
    if registered and registered.split(">")[0] not in (*_PACKAGES_OF_KERAS, registered):
        return str(registered)
    package, _, bare = name.rpartition(">")
    return bare if package in _PACKAGES_OF_KERAS and bare in shipped(kind) else name


def _family(config: Mapping[str, Any]) -> str:
    arguments, module = config["config"], str(config.get("module"))
    if "is_legacy_optimizer" in arguments:
        return LEGACY if arguments["is_legacy_optimizer"] else NEW
    if module.endswith(".legacy") or "decay" in arguments:
        return LEGACY
    if "jit_compile" in arguments or str(config["class_name"]).startswith("Custom>"):
        return NEW
    return KERAS_3 if "use_ema" in arguments else UNKNOWN


def _family_by_wrapper(config: Mapping[str, Any], wrapper: Mapping[str, Any]) -> str:
    """For an inner optimizer that does not tell, such as a user's: the wrapper's class and words do."""
    name = config.get("class_name")
    if name == "LossScaleOptimizerV3":
        return NEW
    if "optimizer" in wrapper or name == "LossScaleOptimizerV1":
        return LEGACY
    if name == "LossScaleOptimizer" and "dynamic" in wrapper:
        return LEGACY
    return KERAS_3 if config.get("module") == "keras.optimizers" else UNKNOWN


# The same in the words of another Keras


def arguments_for(
    declaration: Declaration,
    accepted: Collection[str],
    defaults: Mapping[str, Any],
    accepted_by_schedule: Callable[[str], Optional[Collection[str]]],
) -> Dict[str, Any]:
    """The arguments of the inner optimizer as a constructor with the ``accepted`` names takes them.

    ``defaults`` are that constructor's. ``accepted_by_schedule(class_name)`` gives the names that a learning-rate
    schedule's constructor accepts; None where there is no such class. What the constructor does not know is left out
    if training is the same without it; otherwise it is a :class:`TranslationError`.
    """
    given: Dict[str, Any] = plain_numbers(declaration.arguments)
    problems: List[str] = []
    if "lr" in given:  # it wins, as in the constructors that have both
        given["learning_rate"] = given.pop("lr")
    if isinstance(given.get("learning_rate"), Mapping):
        given["learning_rate"] = _schedule(given["learning_rate"], accepted_by_schedule, problems)
    _translate_decay(declaration, given, accepted, defaults, problems)

    if "use_ema" not in accepted and not given.get("use_ema"):
        for name in _AVERAGING:
            given.pop(name, None)
    for name in CLIPPING:  # null where there is none; old constructors refuse to be told so
        if given.get(name, 0) is None:
            del given[name]
    is_keras_s = declaration.class_name in shipped(OPTIMIZERS)
    for name, value in list(given.items()):
        if name in accepted or name == "schedule_decay":
            continue
        if _says_nothing(OPTIMIZERS, declaration.class_name, name, value):
            del given[name]
        elif is_keras_s or name in _NEUTRAL:
            problems.append(f"{name}={shown(value)} changes training" + _on(OPTIMIZERS, declaration.class_name, name))
    if problems:
        raise TranslationError(
            f"the installed {declaration.class_name} can't be made as it is declared:\n"
            + "".join(f"  {problem}\n" for problem in problems)
            + f"It accepts {', '.join(sorted(accepted))}. Make the optimizer in code with what it shall have instead, "
            "or use a TensorFlow that has these arguments."
        )
    return given


def _translate_decay(
    declaration: Declaration,
    given: Dict[str, Any],
    accepted: Collection[str],
    defaults: Mapping[str, Any],
    problems: List[str],
) -> None:
    """Legacy ``decay`` divides the learning rate by 1 + decay × iterations: new optimizers have a schedule for that."""
    decay = given.pop("decay", None)
    if declaration.class_name == _NADAM:
        _translate_nadams_decay(declaration, decay, given, accepted, problems)
        return
    if not decay:
        return
    rate = given.get("learning_rate", defaults.get("learning_rate"))
    if "decay" in accepted:
        given["decay"] = decay
    elif isinstance(rate, Mapping):
        problems.append(f"decay={decay} together with a learning-rate schedule changes training")
    else:
        words = {"initial_learning_rate": rate, "decay_steps": 1, "decay_rate": decay}
        given["learning_rate"] = {"class_name": _INVERSE_TIME_DECAY, "config": words}


def _translate_nadams_decay(
    declaration: Declaration, decay: Any, given: Dict[str, Any], accepted: Collection[str], problems: List[str]
) -> None:
    """How fast the momentum of Nadam warms up: legacy ones have an argument for it, for new ones it is a constant."""
    if decay is None:
        if declaration.family not in (NEW, KERAS_3):
            return
        decay = _NEW_NADAMS_DECAY
    if "decay" in accepted:
        if decay != _NADAMS_DECAY:
            given["schedule_decay"] = decay
    elif decay != _NEW_NADAMS_DECAY:
        problems.append(
            f"decay={decay} of the momentum changes training: it is {_NEW_NADAMS_DECAY:g} here, and can't be given"
            + _on(OPTIMIZERS, _NADAM, "decay")
        )


def _schedule(
    config: Mapping[str, Any],
    accepted_by_schedule: Callable[[str], Optional[Collection[str]]],
    problems: List[str],
) -> Dict[str, Any]:
    """A learning-rate schedule as ``class_name`` and ``config``, with the arguments that its constructor accepts."""
    class_name, arguments = _class_name(config, SCHEDULES), dict(config["config"])
    if arguments.get("name", "") is None:
        del arguments["name"]  # where there is a default, it is not null
    if class_name not in shipped(SCHEDULES):
        return {"class_name": class_name, "config": arguments}
    accepted = accepted_by_schedule(class_name)
    if accepted is None:
        problems.append(f"the learning-rate schedule {class_name} is not there" + _on(SCHEDULES, class_name, None))
        return {"class_name": class_name, "config": arguments}
    if arguments.get("warmup_target", 0) is None and "warmup_steps" not in accepted:
        arguments.pop("warmup_steps", None)  # without a target, the warmup's length says nothing
    for name, value in list(arguments.items()):
        if name not in accepted:
            if not _says_nothing(SCHEDULES, class_name, name, value):
                where = _on(SCHEDULES, class_name, name)
                problems.append(f"{name}={shown(value)} of {class_name} changes training" + where)
            del arguments[name]
    return {"class_name": class_name, "config": arguments}


def _says_nothing(kind: str, class_name: str, name: str, value: Any) -> bool:
    """Whether training is the same without this argument: it has no effect, or is what it is where it can't be given.

    An argument that was added at some time came with a default that left training as it was before.
    """
    if name in _SAYS_NOTHING or value is None:
        return True
    if name in _NEUTRAL:
        return value in _NEUTRAL[name]
    return any(_same(value, default) for default in _defaults(kind, class_name, name))


def _same(value: Any, default: Any) -> bool:
    """Equal, or so once both are float32, as after training."""
    if isinstance(value, (int, float)) and isinstance(default, (int, float)):
        return bool(np.float32(value) == np.float32(default))
    return bool(value == default)


def plain_numbers(value: Any) -> Any:
    """The same with Python's numbers for NumPy's, which a configuration holds after training."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: plain_numbers(each) for name, each in value.items()}
    return [plain_numbers(each) for each in value] if isinstance(value, (list, tuple)) else value


# What Keras has had, from the tables of signatures


@functools.lru_cache(maxsize=None)
def shipped(kind: str) -> FrozenSet[str]:
    """The classes that some Keras has shipped."""
    return frozenset(name for target in known_targets() for name in _classes(kind, target))


def _classes(kind: str, target: Target) -> Dict[str, List[Any]]:
    """Class → its entries in the table: up to three, of the default, legacy and experimental optimizers."""
    found: Dict[str, List[Any]] = {}
    for entry in target.table[kind].values():
        found.setdefault(entry["class"].rpartition(".")[2], []).append(entry)
    return found


def _defaults(kind: str, class_name: str, argument: str) -> List[Any]:
    entries = [entry for target in known_targets() for entry in _classes(kind, target).get(class_name, ())]
    return [entry["arguments"][argument] for entry in entries if argument in entry["arguments"]]


def _on(kind: str, class_name: str, argument: Optional[str]) -> str:
    """Where a class, or an argument of it, is known, for a message."""

    def has_it(target: Target) -> bool:
        entries = _classes(kind, target).get(class_name, ())
        return any(argument is None or argument in entry["arguments"] for entry in entries)

    found = ranges(has_it)
    return f"; it is there on TensorFlow {' and '.join(found)}" if found else ""
