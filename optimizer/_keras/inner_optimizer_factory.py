"""The inner optimizer that a configuration of any Keras declares, made by the installed one."""

from typing import Any, Collection, List, Mapping, Optional, Sequence

from ...registry.errors import TranslationError, unknown
from ...serialization._keras_introspection import is_keras_3, named_parameters
from ...serialization.keras._optimizer_config import LEGACY, NEW, Declaration, arguments_for
from .object_registration import in_scope, of_users

# what OptimizerV2 takes through **kwargs; global_clipnorm has come later
_LEGACY_KEYWORDS = ("clipnorm", "clipvalue", "decay", "lr")


def inner_optimizer(
    declaration: Declaration, keras: Any, kinds: Collection[str], custom_objects: Mapping[str, Any]
) -> Any:
    """An optimizer of one of these ``kinds``, LEGACY or NEW, of a Keras package; Keras 3 has one kind only.

    Where Keras has both, an optimizer stays of the kind it was: the two do not round alike. What that kind has no words
    for is tried in the other one.
    """
    if declaration.optimizer is not None:
        return declaration.optimizer
    modules = _modules(keras, kinds, declaration.family)
    own = of_users(keras, declaration.class_name, custom_objects)
    classes = [own] if own is not None else [getattr(each, declaration.class_name, None) for each in modules]
    refused: Optional[TranslationError] = None
    for cls in classes:
        if cls is None:
            continue
        parameters = named_parameters(cls)
        defaults = {name: each.default for name, each in parameters.items() if each.default is not each.empty}
        try:
            arguments = arguments_for(
                declaration,
                {*parameters, *_keywords(cls)},
                defaults,
                lambda name: _schedule_parameters(keras, name),
            )
        except TranslationError as error:
            refused = refused or error
            continue
        rate = arguments.get("learning_rate")
        if isinstance(rate, Mapping):
            arguments["learning_rate"] = _schedule(keras, rate, custom_objects)
        with in_scope(keras, custom_objects):
            return cls.from_config(arguments)
    raise refused or _not_there("optimizer", declaration.class_name, modules)


def _modules(keras: Any, kinds: Collection[str], family: str) -> List[Any]:
    """Where the optimizers are that can be wrapped, the kind that suits best first."""
    optimizers = keras.optimizers
    if is_keras_3(keras):
        return [optimizers]
    default = NEW if hasattr(optimizers.SGD, "update_step") else LEGACY
    modules = {default: optimizers}
    if default == NEW:
        modules[LEGACY] = getattr(optimizers, "legacy", None)
    else:
        modules[NEW] = getattr(optimizers, "experimental", None)
    first = family if family in (LEGACY, NEW) else default
    order = sorted(modules, key=lambda kind: kind != first)
    return [modules[kind] for kind in order if kind in kinds and modules[kind] is not None]


def _schedule(keras: Any, config: Mapping[str, Any], custom_objects: Mapping[str, Any]) -> Any:
    name = config["class_name"]
    cls = of_users(keras, name, custom_objects) or _schedule_class(keras, name)
    if cls is None:
        raise _not_there("learning-rate schedule", name, [keras.optimizers.schedules])
    with in_scope(keras, custom_objects):
        return cls.from_config(dict(config["config"]))


def _schedule_class(keras: Any, name: str) -> Any:
    """Some began under ``tf.keras.experimental``."""
    found = getattr(keras.optimizers.schedules, name, None)
    return getattr(getattr(keras, "experimental", None), name, None) if found is None else found


def _schedule_parameters(keras: Any, name: str) -> Optional[Collection[str]]:
    cls = _schedule_class(keras, name)
    return None if cls is None else set(named_parameters(cls))


def _keywords(cls: Any) -> Sequence[str]:
    if not hasattr(cls, "_set_hyper"):
        return ()
    return (*_LEGACY_KEYWORDS, "global_clipnorm") if hasattr(cls, "global_clipnorm") else _LEGACY_KEYWORDS


def _not_there(kind: str, name: str, modules: Sequence[Any]) -> TranslationError:
    valid = sorted({each for module in modules for each in dir(module) if each[:1].isupper()})
    return TranslationError(
        unknown(kind, name, valid, remedy="A class of your own is given in custom_objects, or registered with Keras.")
    )
