"""Classes that Keras knows by name: registered with it, in a ``custom_object_scope``, or in ``custom_objects``."""

from typing import Any, Dict, Iterator, Mapping

import contextlib
import threading

from ...registry._optimizer_spec import OPTIMIZERS, SCHEDULES
from ...serialization.keras._optimizer_config import shipped

_NAMES = ("LossScaleOptimizer", "LossScaleOptimizerV1", "LossScaleOptimizerV3")  # of Keras's own classes
_one_at_a_time = threading.RLock()


def custom_objects() -> Dict[str, Any]:
    """What has Keras make our optimizer of a configuration, where it would make its own: for ``custom_object_scope``.

    It also goes into ``custom_objects=`` of ``tf.keras.optimizers.deserialize`` and ``tf.keras.models.load_model``. The
    class stands under every name that some version looks for.
    """
    from ..loss_scale_optimizer import LossScaleOptimizer

    # up to 2.15, Keras looks for optimizers of its own by their names in small letters
    return dict.fromkeys((*_NAMES, *map(str.lower, _NAMES)), LossScaleOptimizer)


def registered(keras: Any, name: str) -> Any:
    """The class that is registered with a Keras package, or in scope, under this name; None if there is none."""
    find = getattr(keras.utils, "get_registered_object", None)
    found = None if find is None else find(name)
    return keras.utils.get_custom_objects().get(name) if found is None else found


def registered_name(keras: Any, cls: Any) -> Any:
    """The name with a package in it that a class is registered under; None if it is not."""
    names = (name for name, each in keras.utils.get_custom_objects().items() if each is cls and ">" in name)
    return next(names, None)


def of_users(keras: Any, name: str, custom_objects: Mapping[str, Any]) -> Any:
    """A class that the caller has given, or registered with Keras, under this name; None if there is none."""
    if name in custom_objects:
        return custom_objects[name]
    found = registered(keras, name)
    is_keras_s = name in shipped(OPTIMIZERS) | shipped(SCHEDULES)  # and may be registered like this
    return registered(keras, f"Custom>{name}") if found is None and not is_keras_s else found


@contextlib.contextmanager
def in_scope(keras: Any, custom_objects: Mapping[str, Any]) -> Iterator[None]:
    """Have Keras find these classes by name.

    In some versions the names are known in all threads, and what is registered elsewhere meanwhile is lost at the end:
    so this is done for one thread at a time, and only if there are any.
    """
    if not custom_objects:
        yield
        return
    with _one_at_a_time, keras.utils.custom_object_scope(dict(custom_objects)):
        yield


def register_alike(keras: Any, made: Any, cls: Any) -> None:
    """Have Keras write the name that ``cls`` is registered under also of objects of ``made``, a class derived from it.

    Keras gives a name to one class only. So the derived one is registered anew, and the name leads to the other again.
    """
    name = registered_name(keras, cls)
    if name is None or vars(made).get("_registered_name") == name:
        return
    with _one_at_a_time:
        objects = keras.utils.get_custom_objects()
        package, _, bare = name.partition(">")
        del objects[name]
        try:
            keras.utils.register_keras_serializable(package, bare)(made)
        finally:
            objects[name] = cls
        made._registered_name = name
