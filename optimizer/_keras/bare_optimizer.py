"""The training state of a model's optimizer that is not scalekeeper's: a bare one, or Keras's own LossScaleOptimizer.

An object of this module reads and writes the variables of the optimizer through the methods of the adapter that the
optimizer would have inside a LossScaleOptimizer. Nothing is wrapped, and the optimizer does not know of the object.
"""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import types

from ...serialization._keras_introspection import installed_keras
from ...serialization._variables import by_owner
from ...serialization.keras._optimizer_config import decode_config
from ...serialization.keras.keras3 import KERAS_3_PROFILE
from ...serialization.optimizer_adapter import OptimizerAdapter
from ...serialization.training_state import TrainingState
from .._state import state_transfer
from .config_objects import create_inner_optimizer, json_values
from .keras_dispatch import KERAS_PACKAGES, adapter_for, keras_of, own_classes

_classes: Dict[Any, Any] = {}  # adapter → the class derived from it


class _Policy(NamedTuple):
    """The variables of a loss scale, as ``state_transfer`` expects them."""

    variables: Mapping[str, Any]
    is_pure: bool = True


def state_adapter(model: Any) -> Optional[OptimizerAdapter]:
    """Return what gives and takes the training state of a model's optimizer; None if there is no Keras optimizer."""
    optimizer = getattr(model, "optimizer", None)
    if not hasattr(optimizer, "apply_gradients"):
        return None
    found: OptimizerAdapter = adapter_of_optimizer(optimizer, model)
    return found


def adapter_of_optimizer(optimizer: Any, model: Any = None) -> Any:
    """Return the adapter of an optimizer that is not scalekeeper's, for the variables of a model if it is known."""
    wrapper = optimizer if _is_keras_wrapper(optimizer) else None
    inner = optimizer if wrapper is None else _inner_of(wrapper)
    adapter, _ = adapter_for(keras_of(optimizer), inner)
    if adapter not in _classes:
        _classes[adapter] = types.new_class(_BareOptimizer.__name__, (_BareOptimizer, adapter))
    found = object.__new__(_classes[adapter])
    vars(found).update(_optimizer=inner, _scalekeeper_model=model, _keras_wrapper=wrapper)
    return found


def create_bare_optimizer(config: Mapping[str, Any], custom_objects: Mapping[str, Any]) -> Any:
    """Return the optimizer without a loss scale that a configuration of any Keras declares."""
    return create_inner_optimizer(decode_config(config), installed_keras(), None, custom_objects)


def _is_keras_wrapper(optimizer: Any) -> bool:
    classes = [*own_classes(optimizer), getattr(keras_of(optimizer).optimizers, "LossScaleOptimizer", None)]
    return isinstance(optimizer, tuple(each for each in classes if each is not None))


def _inner_of(wrapper: Any) -> Any:
    return wrapper.inner_optimizer if hasattr(wrapper, "inner_optimizer") else wrapper._optimizer


class _BareOptimizer:
    """Overrides what an adapter gets from its base class in Keras, which is missing here."""

    _optimizer: Any
    _scalekeeper_model: Any
    _keras_wrapper: Any

    def __getattr__(self, name: str) -> Any:
        """Return what optimizers with slots have themselves, such as ``weights``."""
        return getattr(self._optimizer, name)

    def __repr__(self) -> str:
        return f"<training state of {self._optimizer!r}>"

    @property
    def inner_optimizer(self) -> Any:
        return self._optimizer

    @property
    def built(self) -> bool:
        return bool(getattr(self._optimizer, "built", False))

    def build(self, var_list: Sequence[Any]) -> None:
        for each in (self._optimizer, self._keras_wrapper):
            if each is not None and not getattr(each, "built", False):
                each.build(var_list)

    def _known_variables(self) -> List[Any]:
        """Return the variables with slots in the order of the slots; if no variable has one, those that are trained."""
        model, weights = self._scalekeeper_model, self.weights
        if model is None:
            return []
        positions = {id(weight): position for position, weight in enumerate(weights)}
        variables = by_owner(model.variables)
        first = {
            owner: min(positions.get(id(slot), len(weights)) for slot in slots.values())
            for owner, slots in state_transfer.slots_of(self, model.variables).items()
        }
        return [variables[owner] for owner in sorted(first, key=first.__getitem__)] or list(model.trainable_variables)

    @property
    def variables(self) -> List[Any]:
        owner = self._optimizer if self._keras_wrapper is None else self._keras_wrapper
        try:
            return list(owner.variables() if callable(owner.variables) else owner.variables)
        except AttributeError:  # Keras 2.11's own wrapper has no such list
            return list(self._optimizer.variables())

    def _listed_variables(self) -> List[Any]:
        """Return no variables if a class of the user writes them in its own way."""
        cls = type(self._optimizer if self._keras_wrapper is None else self._keras_wrapper)
        save = getattr(cls, "save_own_variables", None)
        is_known = save is None or save.__module__.split(".")[0] in KERAS_PACKAGES
        return super()._listed_variables() if is_known else []  # type: ignore[misc]

    # The loss scale of Keras's own wrapper

    @property
    def _graph_policy(self) -> _Policy:
        return _Policy({} if self._keras_wrapper is None else _loss_scale_variables(self._keras_wrapper))

    def _policy_config(self) -> Optional[Dict[str, Any]]:
        if self._keras_wrapper is None:
            return None
        config = json_values(self._keras_wrapper.get_config())
        return decode_config(config).policy

    def _take_skips(self, state: TrainingState) -> List[str]:
        return []

    # The interface of ``serialization.optimizer_adapter``

    def _give_state(self) -> TrainingState:
        return state_transfer.give_state(self)


def _loss_scale_variables(wrapper: Any) -> Dict[str, Any]:
    """Return the variables of the loss scale of Keras's own wrapper, by the names of TensorFlow 2.0."""
    policy = getattr(wrapper, "_loss_scale", None)
    if policy is not None:
        return state_transfer.variables_of_policy(policy)
    found = {own: getattr(wrapper, name, None) for name, own in KERAS_3_PROFILE.state_names.items()}
    return {name: variable for name, variable in found.items() if variable is not None}
