"""The adapter for an inner optimizer: one per Keras generation, chosen by what the optimizer's Keras offers."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import sys
import types
import weakref

import tensorflow as tf

from ...registry.errors import NameTakenError, WrongArgumentError, shown
from ...serialization.keras.keras2_new_optimizers import KERAS_2_NEW_OPTIMIZERS, is_preview
from ...serialization.keras.keras3 import KERAS_3_PROFILE
from ...serialization.keras.optimizer_v2 import OPTIMIZER_V2
from ...serialization.keras.profile import KerasProfile
from ...serialization.keras.tf_2_0_to_2_3 import TF_2_0_TO_2_3
from .config_objects import share_registered_name

KERAS_PACKAGES = {"keras", "tf_keras", "tensorflow", "tensorflow_core"}


class _Adapter(NamedTuple):
    load: Callable[[], Any]
    wrapper_class: Callable[[Any, Any], Optional[Any]]


_adapters: Dict[str, _Adapter] = {}
_concrete_classes: Dict[Tuple[Any, Any, Any], Any] = {}
# class of an inner optimizer → what was found for it; every construction asks
_found_adapters: "weakref.WeakKeyDictionary[Any, Tuple[Any, Any]]" = weakref.WeakKeyDictionary()
_found_packages: "weakref.WeakKeyDictionary[Any, Any]" = weakref.WeakKeyDictionary()


def register_adapter(
    profile: KerasProfile, load: Callable[[], Any], wrapper_class: Callable[[Any, Any], Optional[Any]]
) -> None:
    """Add the adapter of a Keras generation; those registered last are asked first.

    Args:
        profile: The generation.
        load: Returns the adapter, a subclass of LossScaleOptimizer; called when the first optimizer needs it.
        wrapper_class: Called with a Keras package and an inner optimizer. Returns Keras's own LossScaleOptimizer class
            for that optimizer, or None if the optimizer is of another generation.

    Raises:
        NameTakenError: If the generation has an adapter.
    """
    if profile.name in _adapters:
        raise NameTakenError(f"the Keras profile {shown(profile.name)} has an adapter already: choose another profile")
    _adapters[profile.name] = _Adapter(load, wrapper_class)
    _found_adapters.clear()


def unregister_adapter(profile: KerasProfile) -> None:
    """Remove the adapter of a Keras generation."""
    del _adapters[profile.name]
    _found_adapters.clear()


def concrete_class(cls: Any, optimizer: Any) -> Any:
    """Return the class that can wrap an optimizer, derived from ``cls`` and from Keras's own LossScaleOptimizer."""
    keras = keras_of(optimizer)
    adapter, wrapper = adapter_for(keras, optimizer)
    if issubclass(cls, (wrapper,)):
        return cls
    key = (cls, adapter, wrapper)
    if key not in _concrete_classes:
        is_public = issubclass(adapter, cls)  # and not a subclass that a user has written
        bases = (adapter, wrapper) if is_public else (cls, adapter, wrapper)
        # files name the class: under the name of Keras's own class, plain TensorFlow can load them
        named = wrapper if is_public else cls
        names = {"__module__": named.__module__, "__qualname__": named.__qualname__, "__doc__": cls.__doc__}
        names["_public_class"] = cls
        created = types.new_class(named.__name__, bases, {}, lambda namespace: namespace.update(names))
        _concrete_classes.setdefault(key, created)  # another thread may have been faster, and there must be one class
    share_registered_name(keras, _concrete_classes[key], cls)
    return _concrete_classes[key]


def adapter_for(keras: Any, optimizer: Any) -> Tuple[Any, Any]:
    """Return the adapter for an optimizer of a Keras package, and Keras's own LossScaleOptimizer class for it."""
    found = _found_adapters.get(type(optimizer))
    if found is not None:
        return found
    for adapter in reversed(list(_adapters.values())):
        wrapper = adapter.wrapper_class(keras, optimizer)
        if wrapper is not None:
            return _found_adapters.setdefault(type(optimizer), (adapter.load(), wrapper))
    raise _not_an_optimizer(optimizer)


def keras_of(optimizer: Any) -> Any:
    """Return the Keras package of an optimizer: a process may hold Keras 3 and tf_keras."""
    packages = {base.__module__.split(".")[0] for base in type(optimizer).__mro__}
    if not hasattr(optimizer, "apply_gradients") or not packages & KERAS_PACKAGES:
        raise _not_an_optimizer(optimizer)
    return keras_of_class(type(optimizer))


def _not_an_optimizer(given: Any) -> WrongArgumentError:
    return WrongArgumentError(f"expected a Keras optimizer such as tf.keras.optimizers.Adam(), got {shown(given)}")


def keras_of_class(cls: Any) -> Any:
    """Return the Keras package of a class or of the class it derives from; TensorFlow's for scalekeeper's own."""
    if cls not in _found_packages:
        _found_packages[cls] = _find_package([base.__module__.split(".")[0] for base in cls.__mro__])
    return _found_packages[cls]


def _find_package(packages: List[str]) -> Any:
    if "tf_keras" in packages:
        return sys.modules["tf_keras"]
    if "keras" in packages and KERAS_3_PROFILE.is_in(sys.modules["keras"]):  # whatever tf.keras is
        return sys.modules["keras"]
    return tf.keras


def own_classes(optimizer: Any) -> List[Any]:
    """Return the public LossScaleOptimizer classes of an optimizer's Keras."""
    mixed_precision = getattr(keras_of(optimizer), "mixed_precision", None)
    modules = (mixed_precision, getattr(mixed_precision, "experimental", None))
    found = [getattr(each, "LossScaleOptimizer", None) for each in modules]
    return [each for each in found if each is not None]


# The adapters of the four generations. Each is imported when it is needed: Keras 3's imports Keras.


def _tf_2_0_to_2_3() -> Any:
    from .tf_2_0_to_2_3 import Adapter

    return Adapter


def _optimizer_v2() -> Any:
    from .optimizer_v2 import Adapter

    return Adapter


def _keras2_new_optimizers() -> Any:
    from .keras2_new_optimizers import Adapter

    return Adapter


def _keras3() -> Any:
    from .keras3 import Adapter

    return Adapter


def _experimental_wrapper(keras: Any, optimizer: Any) -> Any:
    """Return the class of TensorFlow 2.0 to 2.3, where no public one exists."""
    return keras.mixed_precision.experimental.LossScaleOptimizer if TF_2_0_TO_2_3.is_in(keras) else None


def _keras_2_wrapper(name: str, has_update_step: bool) -> Callable[[Any, Any], Any]:
    """Return the class for optimizers with, or without, ``update_step``: since 2.9 the public class is their base."""

    def wrapper_class(keras: Any, optimizer: Any) -> Any:
        public = getattr(getattr(keras, "mixed_precision", None), "LossScaleOptimizer", None)
        if is_preview(type(optimizer)):
            raise WrongArgumentError(
                f"expected an optimizer of tf.keras.optimizers, got experimental.{type(optimizer).__name__} of "
                "TensorFlow 2.9: use tf.keras.optimizers, or TensorFlow 2.10 or newer"
            )
        if public is None or hasattr(optimizer, "update_step") != has_update_step:
            return None
        return getattr(sys.modules[public.__module__], name)

    return wrapper_class


register_adapter(TF_2_0_TO_2_3, _tf_2_0_to_2_3, _experimental_wrapper)
register_adapter(OPTIMIZER_V2, _optimizer_v2, _keras_2_wrapper(OPTIMIZER_V2.wrapper_class_name, False))
register_adapter(
    KERAS_2_NEW_OPTIMIZERS, _keras2_new_optimizers, _keras_2_wrapper(KERAS_2_NEW_OPTIMIZERS.wrapper_class_name, True)
)
register_adapter(
    KERAS_3_PROFILE,
    _keras3,
    lambda keras, optimizer: keras.optimizers.LossScaleOptimizer if KERAS_3_PROFILE.is_in(keras) else None,
)
