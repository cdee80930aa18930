"""Creates the inner optimizer that a configuration of any Keras declares, with the classes of an installed Keras."""

from typing import Any, Collection, Dict, Iterable, Iterator, Mapping, Optional, Sequence

import functools

from ...registry.errors import TranslationError, unknown
from ...serialization._keras_introspection import named_parameters
from ...serialization.keras._optimizer_arguments import Constructor, translated_arguments
from ...serialization.keras._optimizer_config import OptimizerConfig
from ...serialization.keras.profile import profile_of_package, profiles
from .object_registration import custom_class, custom_object_scope

# what OptimizerV2 takes through **kwargs; later versions add global_clipnorm
_LEGACY_KEYWORDS = ("clipnorm", "clipvalue", "decay", "lr")


def create_inner_optimizer(
    config: OptimizerConfig, keras: Any, families: Optional[Collection[str]], custom_objects: Mapping[str, Any]
) -> Any:
    """Return the inner optimizer of a decoded configuration.

    An optimizer keeps its family where Keras has several, because their results differ in rounding. If its own family
    has no equivalent, the others are tried.

    Args:
        config: The decoded configuration.
        keras: The Keras package that has the classes.
        families: The families that can be wrapped; None for all.
        custom_objects: Classes of the user by name.

    Raises:
        TranslationError: If the Keras package has no equivalent.
    """
    if config.optimizer is not None:
        return config.optimizer
    modules = functools.partial(_modules, keras, families, config.family)
    custom = custom_class(keras, config.class_name, custom_objects)
    found = (getattr(each, config.class_name, None) for each in modules())
    classes: Iterable[Any] = found if custom is None else [custom]
    refused: Optional[TranslationError] = None
    for cls in classes:
        if cls is None:
            continue
        try:
            arguments = _arguments(cls, config, keras)
        except TranslationError as error:
            refused = refused or error
            continue
        rate = arguments.get("learning_rate")
        if isinstance(rate, Mapping):
            arguments["learning_rate"] = _schedule(keras, rate, custom_objects)
        with custom_object_scope(keras, custom_objects):
            return cls.from_config(arguments)
    raise refused or _unknown_class("optimizer", config.class_name, list(modules()))


def _modules(keras: Any, families: Optional[Collection[str]], family: str) -> Iterator[Any]:
    """Yield the modules with the optimizers that can be wrapped: those of the family first, then the default ones."""
    default = profile_of_package(keras).family
    usable = [each for each in profiles() if families is None or each.family in families]
    for profile in sorted(usable, key=lambda each: (each.family != family, each.family != default)):
        module = profile.optimizers_in(keras)
        if module is not None:
            yield module


def _arguments(cls: Any, config: OptimizerConfig, keras: Any) -> Dict[str, Any]:
    parameters = named_parameters(cls)
    defaults = {name: each.default for name, each in parameters.items() if each.default is not each.empty}
    accepted = {*parameters, *_keywords(cls)}
    constructor = Constructor(accepted, defaults, lambda name: _schedule_parameters(keras, name))
    return translated_arguments(config.class_name, config.arguments, config.family, constructor)


def _keywords(cls: Any) -> Sequence[str]:
    if not hasattr(cls, "_set_hyper"):
        return ()
    return (*_LEGACY_KEYWORDS, "global_clipnorm") if hasattr(cls, "global_clipnorm") else _LEGACY_KEYWORDS


def _schedule(keras: Any, config: Mapping[str, Any], custom_objects: Mapping[str, Any]) -> Any:
    name = config["class_name"]
    cls = custom_class(keras, name, custom_objects) or _schedule_class(keras, name)
    if cls is None:
        raise _unknown_class("learning-rate schedule", name, [keras.optimizers.schedules])
    with custom_object_scope(keras, custom_objects):
        return cls.from_config(dict(config["config"]))


def _schedule_class(keras: Any, name: str) -> Any:
    """Return a schedule's class; the first versions have some under ``tf.keras.experimental``."""
    found = getattr(keras.optimizers.schedules, name, None)
    return getattr(getattr(keras, "experimental", None), name, None) if found is None else found


def _schedule_parameters(keras: Any, name: str) -> Optional[Collection[str]]:
    cls = _schedule_class(keras, name)
    return None if cls is None else set(named_parameters(cls))


def _unknown_class(kind: str, name: str, modules: Sequence[Any]) -> TranslationError:
    valid = sorted({each for module in modules for each in dir(module) if each[:1].isupper()})
    remedy = "Pass your own class in custom_objects, or register it with Keras."
    return TranslationError(unknown(kind, name, valid, remedy=remedy))
