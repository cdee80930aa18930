"""A policy as TensorFlow sees it: a ``Trackable``, and an instance of its ``LossScale``.

TensorFlow asks both with ``isinstance``. Its ``LossScale`` classes are abstract base classes, where policies are
registered. ``Trackable`` is an ordinary class, so policies have to derive from it: it becomes a base class of
``LossScale`` when TensorFlow is loaded.
"""

from typing import Any, Dict, List, Mapping, Set

import abc
import sys
import types

from .._built_in_plugins import loaders
from ._tensorflow_import import loaded_tensorflow
from .contract import TENSORFLOW_HALF, TENSORFLOW_PARAMETERS, LossScale, has_pure_step
from .dynamic import DynamicLossScale
from .fixed import FixedLossScale


class TrackedState:
    """The methods of ``Trackable`` by which a checkpoint finds the variables of a policy.

    They have the names of the entries of the state, as in TensorFlow's ``DynamicLossScale``. A policy with its own
    ``update`` has the variables that are its attributes.
    """

    def _state_variables(self) -> Dict[str, Any]:
        tensorflow = loaders[TENSORFLOW_HALF]()
        held = tensorflow.state_variables(self) if has_pure_step(self) else {}
        return {**tensorflow.variable_attributes(self), **held}

    def __tf_tracing_type__(self, context: Any) -> Any:  # from 2.9 on
        """Return what the policy is as an argument of a ``tf.function``: its loss scale, also of a graph."""
        tensorflow: Any = loaded_tensorflow()
        return tensorflow.TensorSpec((), tensorflow.float32)

    def _tracked_names(self) -> Set[str]:
        state: Mapping[str, Any] = self.initial_state() if isinstance(self, LossScale) and has_pure_step(self) else {}
        return {*loaders[TENSORFLOW_HALF]().variable_attributes(self), *state}

    @property
    def _checkpoint_dependencies(self) -> List[Any]:
        inherited = list(super()._checkpoint_dependencies)  # type: ignore[misc]
        known = {each.name for each in inherited}
        reference = sys.modules[_trackable_class().__module__].TrackableReference
        own = self._state_variables().items()
        return inherited + [reference(name=name, ref=each) for name, each in own if name not in known]

    def _trackable_children(self, *args: Any, **kwargs: Any) -> Dict[str, Any]:  # in newer versions
        inherited = super()._trackable_children(*args, **kwargs)  # type: ignore[misc]
        return {**self._state_variables(), **inherited}

    def _lookup_dependency(self, name: str, *args: Any, **kwargs: Any) -> Any:
        found = super()._lookup_dependency(name, *args, **kwargs)  # type: ignore[misc]
        if found is None and name in self._tracked_names():  # others are looked up while the state is moved
            found = self._state_variables()[name]
        return found


class _Updated(abc.ABC):  # noqa: B024  (a class for issubclass only)
    """The policies whose ``update`` TensorFlow has to call at each step, as that of its ``DynamicLossScale``.

    Without them, ``tf.compat.v1.train.experimental.MixedPrecisionLossScaleOptimizer`` would never update them.
    """

    # From 2.4 on, Keras replaces a DynamicLossScale by a dynamic scale with the same three parameters.
    is_replaced = False

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        if not issubclass(other, LossScale) or issubclass(other, FixedLossScale):
            return False
        has_parameters = all(hasattr(other, name) for name in TENSORFLOW_PARAMETERS)
        return issubclass(other, DynamicLossScale) or not (cls.is_replaced and has_parameters)


def connect(_: types.ModuleType) -> None:
    """Make policies instances of ``Trackable`` and of TensorFlow's ``LossScale`` classes."""
    trackable = _trackable_class()
    if not issubclass(LossScale, trackable):
        base = type("TrackablePolicy", (TrackedState, trackable), {"__module__": __name__})
        LossScale.__bases__ = (*LossScale.__bases__, base)
    python = trackable.__module__.partition(".python.")[0] + ".python"
    own = sys.modules.get(python + ".training.experimental.loss_scale")
    takes_objects = hasattr(own, "get_loss_scale_weights")  # which Keras calls up to 2.3
    if not takes_objects:
        # the loss scale of Keras's optimizers is a tensor: tf.is_tensor, tf.print and tf.keras.backend.get_value ask
        LossScale.is_tensor_like = True  # type: ignore[attr-defined]
    if own is not None:
        _Updated.is_replaced = not takes_objects
        own.LossScale.register(LossScale)
        own.FixedLossScale.register(FixedLossScale)
        own.DynamicLossScale.register(_Updated)


def _trackable_class() -> Any:
    """Return TensorFlow's ``Trackable``; it has no public name on older versions."""
    tensorflow: Any = loaded_tensorflow()
    return next(cls for cls in tensorflow.Module.__mro__ if cls.__name__ == "Trackable")
