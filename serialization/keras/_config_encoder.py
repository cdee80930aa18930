"""An optimizer's configuration in the words of a TensorFlow that need not be installed: the reverse of ``declared``."""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ...registry._optimizer_spec import OPTIMIZERS, SCHEDULES
from ...registry.errors import TranslationError, shown
from .._conversion.target import FIRST_WITH_MODULES, FIRST_WITH_NEW_OPTIMIZERS, FIRST_WITH_NEW_WORDS, Aim
from ._optimizer_config import CLIPPING, KERAS_3, LEGACY, NEW, Declaration, arguments_for, in_newer_words

_FACTOR = "loss_scale_factor"  # Keras 3 has a fixed scale among the arguments of a bare optimizer
# TensorFlow's own classes → their parameters
_TENSORFLOWS = {
    "DynamicLossScale": ("initial_loss_scale", "increment_period", "multiplier"),
    "FixedLossScale": ("loss_scale_value",),
}
# parameters of ours → with which value a scale is the same without them
_SAYS_NOTHING = {"minimum": 1.0, "maximum": None, "skip_nonfinite": False}
_MULTIPLIER = 2.0  # of every dynamic scale from 2.4 on
_NEWER = {"DynamicLossScale": {"multiplier": _MULTIPLIER}}


class Said(NamedTuple):
    """A configuration, and what of the declaration it does not say."""

    config: Dict[str, Any]  # class_name and config
    family: str  # of the inner optimizer: LEGACY, NEW or KERAS_3
    has_wrapper: bool  # whether it is a LossScaleOptimizer's
    losses: List[str]
    in_full: Dict[str, Any]  # the same for who has this package: what the target has no words for is there in ours


def said_to(aim: Aim, declaration: Declaration) -> Said:
    """The optimizer with its loss scale as the target's own class would have written it.

    What has no words there is not in the configuration, and named as a loss; an inner optimizer that can't be declared
    is a :class:`TranslationError`.
    """
    family, entry = _constructor(aim, declaration)
    inner = _inner(aim, declaration, family, entry)
    words, losses = _scale(aim, declaration.policy)
    monitoring = declaration.monitoring or {}
    losses += [f"{name}={value}: {aim.target} keeps no eye on skipped steps" for name, value in monitoring.items()]
    in_full = None
    if losses or declaration.skipped_steps is not None:
        ours = {"loss_scale": declaration.policy, "skipped_steps": declaration.skipped_steps, **monitoring}
        told = {name: value for name, value in ours.items() if value is not None}
        in_full = _wrapped(aim, family, {_inner_key(aim): inner, **told})
    has_wrapper = words is not None and _FACTOR not in words
    if has_wrapper:
        name = {"name": declaration.name or "loss_scale_optimizer"} if aim.is_keras_3 else {}
        config = _wrapped(aim, family, {**name, _inner_key(aim): inner, **(words or {})})
    else:
        config = {**inner, "config": {**inner["config"], **(words or {})}}
    return Said(config, family, has_wrapper, losses, in_full or config)


# The inner optimizer


def _inner_key(aim: Aim) -> str:
    return "optimizer" if aim.target.version < FIRST_WITH_NEW_WORDS else "inner_optimizer"


def _constructor(aim: Aim, declaration: Declaration) -> Tuple[str, Mapping[str, Any]]:
    """The family that an optimizer is of on the target, and the table's entry of its class."""
    entries = {entry["class"]: entry for entry in aim.target.table[OPTIMIZERS].values()}
    name = declaration.class_name
    places: Dict[str, str] = {}
    if aim.is_keras_3:
        places[KERAS_3] = f"optimizers.{name}"
    elif aim.target.version >= FIRST_WITH_NEW_OPTIMIZERS:
        places[NEW] = f"optimizers.{name}"
        places[LEGACY] = f"optimizers.legacy.{name}"
    else:
        places[LEGACY] = f"optimizers.{name}"
    for family in sorted(places, key=lambda each: each != declaration.family):  # its own family first
        if places[family] in entries:
            return family, entries[places[family]]
    known = sorted({path.rpartition(".")[2] for path in entries})
    raise TranslationError(f"{aim.target} has no optimizer {shown(name)}; it has {', '.join(known)}")


def _inner(aim: Aim, declaration: Declaration, family: str, entry: Mapping[str, Any]) -> Dict[str, Any]:
    """All arguments, as a configuration has them: what is not declared is at its default."""
    defaults = dict(entry["arguments"])
    given = arguments_for(declaration, set(defaults), defaults, lambda name: _schedule_arguments(aim, name))
    config = {**defaults, "name": declaration.class_name, **given}
    if family == LEGACY:
        for name in CLIPPING:
            if config.get(name) is None:
                config.pop(name, None)
    if family == NEW:
        config["is_legacy_optimizer"] = False
    if isinstance(config.get("learning_rate"), Mapping):
        config["learning_rate"] = _with_module(aim, config["learning_rate"], "optimizers.schedules", family)
    return _with_module(aim, {"class_name": declaration.class_name, "config": config}, "optimizers", family)


def _schedule_arguments(aim: Aim, class_name: str) -> Optional[List[str]]:
    for entry in aim.target.table[SCHEDULES].values():
        if entry["class"].rpartition(".")[2] == class_name:
            return list(entry["arguments"])
    return None


def _with_module(aim: Aim, config: Mapping[str, Any], module: str, family: str) -> Dict[str, Any]:
    """From 2.12 on a configuration says where its class is."""
    if aim.target.version < FIRST_WITH_MODULES:
        return dict(config)
    place = f"keras.{module}" + (".legacy" if family == LEGACY and module == "optimizers" else "")
    return {"module": place, **config, "registered_name": None}


# The loss scale


def _scale(aim: Aim, policy: Optional[Mapping[str, Any]]) -> Tuple[Optional[Dict[str, Any]], List[str]]:
    """What the target's wrapper says of the loss scale; None: there is no wrapper. And what it can't say."""
    if policy is None:
        return None, []
    name, config = policy["class_name"], dict(policy["config"])
    if name not in _TENSORFLOWS:
        if aim.target.version < FIRST_WITH_NEW_WORDS:
            return {"loss_scale": {"class_name": name, "config": config}}, []
        return None, [f"the loss scale {name}: {aim.target} has no words for it, and trains without one"]
    ours = {key: config.pop(key) for key in [*config] if key not in _TENSORFLOWS[name]}
    losses = [
        f"{key}={value} of the loss scale: {aim.target} has no such argument"
        for key, value in ours.items()
        if key not in _SAYS_NOTHING or value != _SAYS_NOTHING[key]
    ]
    if aim.target.version < FIRST_WITH_NEW_WORDS:
        return {"loss_scale": {"class_name": name, "config": config}}, losses
    if config.get("multiplier", _MULTIPLIER) != _MULTIPLIER:
        losses.insert(0, f"multiplier={config['multiplier']} of the loss scale: {aim.target} has {_MULTIPLIER}")
    words = in_newer_words({"class_name": name, "config": {**config, **_NEWER.get(name, {})}})
    assert words is not None
    if aim.is_keras_3:
        return ({_FACTOR: words["initial_scale"]} if not words.pop("dynamic") else words), losses
    return words, losses


def _wrapped(aim: Aim, family: str, config: Dict[str, Any]) -> Dict[str, Any]:
    class_name = "LossScaleOptimizerV3" if family == NEW else "LossScaleOptimizer"
    if aim.is_keras_3:
        return {"module": "keras.optimizers", "class_name": class_name, "config": config, "registered_name": None}
    if aim.target.version < FIRST_WITH_MODULES:
        return {"class_name": class_name, "config": config}
    module = f"{aim.package}.src.mixed_precision.loss_scale_optimizer"
    return {"module": module, "class_name": class_name, "config": config, "registered_name": class_name}
