"""Which Keras an optimizer comes from, and which of our classes wraps it: asked by what is there, never by version."""

from typing import Any, Dict, List, Tuple

import importlib
import sys
import types

import tensorflow as tf

from ...serialization._keras_introspection import is_keras_3
from .object_registration import register_alike


def concrete_class(cls: Any, optimizer: Any) -> Any:
    """The class, derived from ``cls`` and from Keras's own, that can wrap this optimizer."""
    keras = keras_of(optimizer)
    adapter_name, upstream = _adapter_and_upstream(keras, optimizer)
    adapter: Any = importlib.import_module("." + adapter_name, __package__).Adapter
    if issubclass(cls, upstream):
        return cls
    key = (cls, upstream)
    if key not in _made:
        is_public = issubclass(adapter, cls)  # and not a class that a user has derived from ours
        bases = (adapter, upstream) if is_public else (cls, adapter, upstream)
        # a file names the class: under Keras's own name, which differs by generation, plain TensorFlow can load it
        named = upstream if is_public else cls
        names = {"__module__": named.__module__, "__qualname__": named.__qualname__, "__doc__": cls.__doc__}
        names["_public_class"] = cls
        made = types.new_class(named.__name__, bases, {}, lambda namespace: namespace.update(names))
        _made.setdefault(key, made)  # another thread may have made it meanwhile, and there is to be one
    register_alike(keras, _made[key], cls)
    return _made[key]


_made: Dict[Tuple[Any, Any], Any] = {}


def keras_of(optimizer: Any) -> Any:
    """The Keras package that an optimizer belongs to: a process may hold Keras 3 and tf_keras."""
    roots = [base.__module__.split(".")[0] for base in type(optimizer).__mro__]
    if not hasattr(optimizer, "apply_gradients") or not {"keras", "tf_keras", "tensorflow", "tensorflow_core"} & {
        *roots
    }:
        raise ValueError(
            f"{optimizer!r} is no optimizer of Keras: give an object such as tf.keras.optimizers.Adam(), not its name"
        )
    return keras_of_class(type(optimizer))


def own_classes(optimizer: Any) -> List[Any]:
    """The public classes of an optimizer's Keras that wrap another, as ours does."""
    mixed_precision = getattr(keras_of(optimizer), "mixed_precision", None)
    found = [getattr(each, "LossScaleOptimizer", None) for each in (mixed_precision, _experimental(mixed_precision))]
    return [each for each in found if each is not None]


def _experimental(mixed_precision: Any) -> Any:
    return getattr(mixed_precision, "experimental", None)


def _adapter_and_upstream(keras: Any, optimizer: Any) -> Tuple[str, Any]:
    if is_keras_3(keras):
        return "keras3", keras.optimizers.LossScaleOptimizer
    public = getattr(keras.mixed_precision, "LossScaleOptimizer", None)
    if public is None:
        return "tf_2_0_to_2_3", _experimental(keras.mixed_precision).LossScaleOptimizer
    # since 2.9 the public class is the base of two, one for each kind of optimizer
    both = sys.modules[public.__module__]
    if hasattr(optimizer, "update_step"):
        return "keras2_new_optimizers", both.LossScaleOptimizerV3
    return "optimizer_v2", both.LossScaleOptimizer


def keras_of_class(cls: Any) -> Any:
    """The Keras package that a class, or the one that it derives from, belongs to; of ours alone, TensorFlow's."""
    roots = [base.__module__.split(".")[0] for base in cls.__mro__]
    if "tf_keras" in roots:
        return sys.modules["tf_keras"]
    if "keras" in roots and is_keras_3(sys.modules["keras"]):  # whatever tf.keras is
        return sys.modules["keras"]
    return tf.keras
