"""The objects that a configuration declares: inner optimizer and policy, of classes that Keras finds by name."""

from typing import Any, Collection, Dict, Iterable, Iterator, Mapping, Optional, Sequence

import contextlib
import functools
import json
import threading

import numpy as np

from ...lossscales.contract import without_added_defaults
from ...registry._optimizer_spec import OPTIMIZERS, SCHEDULES
from ...registry._plugins import loss_scales
from ...registry.errors import (
    ArgumentError,
    ArgumentTypeError,
    InvalidSpecError,
    Problem,
    TranslationError,
    WrongArgumentError,
    shown,
    unknown,
)
from ...serialization._keras_introspection import named_parameters
from ...serialization.keras._optimizer_config import (
    Constructor,
    OptimizerConfig,
    shipped,
    translated_arguments,
    wrapper_class_names,
)
from ...serialization.keras.profile import profile_of_package, profiles

# what OptimizerV2 takes through **kwargs; later versions add global_clipnorm
_LEGACY_KEYWORDS = ("clipnorm", "clipvalue", "decay", "lr")
_lock = threading.RLock()


def create_inner_optimizer(
    config: OptimizerConfig, keras: Any, families: Optional[Collection[str]], custom_objects: Mapping[str, Any]
) -> Any:
    """Return the inner optimizer of a decoded configuration.

    An optimizer keeps its family where Keras has several, because their results differ in rounding. If its own family
    has no equivalent, the others are tried.
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
    arguments = dict(config["config"])
    if "from_config" not in vars(cls):  # such a method may create the schedules inside itself
        for argument, value in arguments.items():
            if isinstance(value, Mapping) and {"class_name", "config"} <= value.keys():
                arguments[argument] = _schedule(keras, value, custom_objects)
    with custom_object_scope(keras, custom_objects):
        return cls.from_config(arguments)


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


# The policy


def policy_from_arguments(
    loss_scale: Any, dynamic: Optional[bool], initial_scale: Optional[float], dynamic_growth_steps: Optional[int]
) -> Any:
    """Return the policy that the arguments of LossScaleOptimizer describe."""
    if not (dynamic is None or isinstance(dynamic, bool)):
        raise WrongArgumentError(f"dynamic must be True or False, got {shown(dynamic)}: give bool(…) of it")
    newer = {"dynamic": dynamic, "initial_scale": initial_scale, "dynamic_growth_steps": dynamic_growth_steps}
    given = [name for name, value in newer.items() if value is not None]
    if not given:
        return loss_scales.resolve(loss_scale)
    if loss_scale != "dynamic":
        raise ArgumentError(f"got loss_scale and {', '.join(given)}, which both set the loss scale: give one of them")
    if dynamic is not False:
        parameters = {"initial_loss_scale": initial_scale, "increment_period": dynamic_growth_steps}
        spec = {"name": "dynamic", **{name: value for name, value in parameters.items() if value is not None}}
        return loss_scales.resolve(spec)
    if initial_scale is None:
        raise ArgumentError("got dynamic=False without initial_scale: give initial_scale, the fixed scale")
    if dynamic_growth_steps is not None:
        raise ArgumentError("got dynamic=False and dynamic_growth_steps: a fixed scale does not grow, give one of them")
    return loss_scales.resolve({"name": "fixed", "loss_scale_value": initial_scale})


def encode_policy(policy: Any, keras: Any) -> Dict[str, Any]:
    """Return class_name and config of a policy, without parameters that TensorFlow lacks and that have their default.

    A class that is registered with Keras, and not with scalekeeper, has the name that it is registered under.
    """
    config = without_added_defaults(policy)
    cls = type(policy)
    name = registered_name(keras, cls)
    is_registered_with_keras = name is not None and cls not in loss_scales.classes().values()
    return {"class_name": name if is_registered_with_keras else cls.__name__, "config": json_values(config)}


def decode_policy(config: Mapping[str, Any], keras: Any, custom_objects: Mapping[str, Any]) -> Any:
    """Return the policy of class_name and config, of a class that scalekeeper, Keras or ``custom_objects`` has."""
    class_name = config["class_name"]
    cls = custom_class(keras, class_name, custom_objects) or loss_scales.class_named(class_name)
    if cls is None:
        message = unknown(
            "loss scale class",
            class_name,
            sorted({*loss_scales.classes(), *custom_objects}),
            remedy="Register it, or pass custom_objects.",
        )
        raise InvalidSpecError([Problem(("loss_scale", "class_name"), message, "unknown_name")])
    return cls.from_config(dict(config["config"]))


def json_values(value: Any) -> Any:
    """Return the same nest with values that JSON can hold.

    NumPy numbers become Python numbers, tuples lists, and objects of Keras, such as a schedule inside a schedule, their
    configurations: TensorFlow 2.0 leaves them as they are.
    """
    return json.loads(json.dumps(value, default=_plain_value))


def _plain_value(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if hasattr(value, "get_config"):
        return {"class_name": type(value).__name__, "config": value.get_config()}
    raise ArgumentTypeError(f"expected a value that JSON can hold in a configuration, got {shown(value)}")


# Classes that Keras finds by name: registered, in a ``custom_object_scope``, or given in ``custom_objects``


def custom_objects() -> Dict[str, Any]:
    """Return custom objects with which Keras creates scalekeeper's LossScaleOptimizer instead of its own.

    Pass them to ``custom_object_scope``, or as ``custom_objects=`` to ``tf.keras.optimizers.deserialize`` and
    ``tf.keras.models.load_model``.

    Returns:
        The class under every name that some version of Keras looks for.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> config = tf.keras.optimizers.serialize(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1)))
        >>> with tf.keras.utils.custom_object_scope(scalekeeper.custom_objects()):
        ...     optimizer = tf.keras.optimizers.deserialize(config)
        >>> isinstance(optimizer, scalekeeper.LossScaleOptimizer)
        True
    """
    from ..loss_scale_optimizer import LossScaleOptimizer

    names = wrapper_class_names()
    return dict.fromkeys((*names, *map(str.lower, names)), LossScaleOptimizer)  # Keras looks for lower case up to 2.15


def registered_class(keras: Any, name: str) -> Any:
    """Return the class that is registered with a Keras package, or in scope, under a name; None if there is none."""
    find = getattr(keras.utils, "get_registered_object", None)
    found = None if find is None else find(name)
    return keras.utils.get_custom_objects().get(name) if found is None else found


def registered_name(keras: Any, cls: Any) -> Any:
    """Return the name, with its package, that a class is registered under; None if it is not registered."""
    names = (name for name, each in keras.utils.get_custom_objects().items() if each is cls and ">" in name)
    return next(names, None)


def custom_class(keras: Any, name: str, custom_objects: Mapping[str, Any]) -> Any:
    """Return a class of the user: given in ``custom_objects`` or registered with Keras; None if there is none."""
    if name in custom_objects:
        return custom_objects[name]
    found = registered_class(keras, name)
    is_shipped = name in shipped(OPTIMIZERS) | shipped(SCHEDULES)  # Keras may register its own classes like this
    return registered_class(keras, f"Custom>{name}") if found is None and not is_shipped else found


@contextlib.contextmanager
def custom_object_scope(keras: Any, custom_objects: Mapping[str, Any]) -> Iterator[None]:
    """Let Keras find classes by name, in one thread at a time.

    In some versions the names are visible in all threads, and what another thread registers meanwhile is lost.
    """
    if not custom_objects:
        yield
        return
    with _lock, keras.utils.custom_object_scope(dict(custom_objects)):
        yield


def share_registered_name(keras: Any, derived: Any, cls: Any) -> None:
    """Let Keras write the name that ``cls`` is registered under for objects of ``derived``, a subclass of it.

    Keras keeps one class per name. The subclass is registered first, then the name is given back to ``cls``.
    """
    name = registered_name(keras, cls)
    if name is None or vars(derived).get("_registered_name") == name:
        return
    with _lock:
        objects = keras.utils.get_custom_objects()
        package, _, bare = name.partition(">")
        del objects[name]
        try:
            keras.utils.register_keras_serializable(package, bare)(derived)
        finally:
            objects[name] = cls
        derived._registered_name = name
