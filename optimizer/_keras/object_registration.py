"""Classes that Keras finds by name: registered, in a ``custom_object_scope``, or given in ``custom_objects``."""

from typing import Any, Dict, Iterator, Mapping

import contextlib
import threading

from ...registry._optimizer_spec import OPTIMIZERS, SCHEDULES
from ...serialization.keras._optimizer_arguments import shipped
from ...serialization.keras._optimizer_config import wrapper_class_names

_lock = threading.RLock()


def custom_objects() -> Dict[str, Any]:
    """Return custom objects with which Keras creates scalekeeper's LossScaleOptimizer instead of its own.

    Pass them to ``custom_object_scope``, or as ``custom_objects=`` to ``tf.keras.optimizers.deserialize`` and
    ``tf.keras.models.load_model``.

    Returns:
        The class under every name that some version of Keras looks for.
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
