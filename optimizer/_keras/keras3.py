"""Keras 3, with the TensorFlow backend.

Its own spelling is ``scale_loss`` and ``apply``, and ``fit`` hands scaled gradients to ``apply_gradients``: there, the
one who scaled the loss does not unscale. So the optimizer remembers who did: after ``scale_loss`` the gradients that
come are scaled, after ``get_unscaled_gradients`` they are not.
"""

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import weakref

import keras
import tensorflow as tf

from ...serialization.keras.keras3 import KERAS_3_PROFILE
from .._state.checkpoint_tracking import Arrivals, siblings
from .._step import gate
from .._step.unscale import scaled, unscaled
from ..loss_scale_optimizer import LossScaleOptimizer
from .keras2_new_optimizers import CallableList, WithoutSlots

# piece of state → what Keras's own class calls its variable; in the order in which Keras makes them
_NAMES = {name: keras_name for keras_name, name in KERAS_3_PROFILE.state_names.items()}
# a policy's state in the graph → name → Keras's variable
_variables_of_state: "weakref.WeakKeyDictionary[Any, Dict[str, Any]]" = weakref.WeakKeyDictionary()


class Adapter(WithoutSlots):
    """The parts of a LossScaleOptimizer that depend on Keras 3."""

    _profile = KERAS_3_PROFILE
    _are_gradients_scaled: Optional[bool] = None  # None: nobody has said so far
    built: bool
    name: str
    _variables: List[Any]
    _trainable_variables: List[Any]

    def _wrap(self, optimizer: Any, name: Optional[str]) -> None:
        if keras.backend.backend() != "tensorflow":
            raise ValueError(
                f"Keras runs on {keras.backend.backend()}, and this LossScaleOptimizer works with TensorFlow only: set "
                "the environment variable KERAS_BACKEND to tensorflow before Keras is imported"
            )
        super(LossScaleOptimizer, self).__init__(optimizer, name=name)  # type: ignore[call-arg]

    def _hold(self, policy: Any) -> None:
        if not gate.has_pure_step(policy):
            super()._hold(policy)
            return
        memory = policy._remembered()
        if memory not in _variables_of_state:
            made = self._state_variables(memory.plain(), policy.initial_state())
            memory = gate.hold_in_graph(policy, lambda name, value: made[name].value)
            _variables_of_state[memory] = made
        for name, variable in _variables_of_state[memory].items():  # of another optimizer, if both have one policy
            setattr(self, _NAMES.get(name, name), variable)

    def _state_variables(self, values: Mapping[str, Any], kinds: Mapping[str, Any]) -> Dict[str, Any]:
        """Keras's variables for a policy's state: those that its own class has too come first, in its order."""
        places = {name: place for place, name in enumerate(_NAMES)}
        return {
            name: self.add_variable(  # type: ignore[attr-defined]
                shape=(),
                dtype=kinds[name].dtype.name,
                initializer=keras.initializers.Constant(values[name]),
                aggregation="none",
                name=_NAMES.get(name, name),
            )
            for name in sorted(values, key=lambda name: places.get(name, len(places)))
        }

    # Keras 3's own words

    @LossScaleOptimizer.initial_scale.setter  # type: ignore[attr-defined, untyped-decorator]
    def initial_scale(self, value: Any) -> None:
        """Keras's own constructor sets it; the policy knows better."""

    @LossScaleOptimizer.dynamic_growth_steps.setter  # type: ignore[attr-defined, untyped-decorator]
    def dynamic_growth_steps(self, value: Any) -> None:
        """Keras's own constructor sets it; the policy knows better."""

    @gate.as_written
    def scale_loss(self, loss: Any) -> Any:
        """The loss times the current scale; the gradients of it are to be applied as they are."""
        self._are_gradients_scaled = True
        return scaled(loss, self._scale())

    @gate.as_written
    def get_scaled_loss(self, loss: Any) -> Any:
        """The loss, or what a callable returns, times the current scale."""
        self._are_gradients_scaled = False
        return super().get_scaled_loss(loss)

    @gate.as_written
    def get_unscaled_gradients(self, grads: Sequence[Any]) -> List[Any]:
        """The gradients divided by the current scale; None stays None."""
        self._are_gradients_scaled = False
        return super().get_unscaled_gradients(grads)

    @gate.as_written
    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        """Keras 3's way to apply gradients: it takes scaled ones, unless ``get_unscaled_gradients`` was called."""
        variables = self._trainable_variables if trainable_variables is None else trainable_variables
        pairs = list(zip(grads, variables))
        return self.apply_gradients(self._unscaled(pairs) if self._are_gradients_scaled is None else pairs)

    def _unscaled_pairs(self, pairs: List[Tuple[Any, Any]]) -> List[Tuple[Any, Any]]:
        return self._unscaled(pairs) if self._are_gradients_scaled else pairs

    def _unscaled(self, pairs: List[Tuple[Any, Any]]) -> List[Tuple[Any, Any]]:
        grads = unscaled([grad for grad, _ in pairs], self._scale())
        # what overwrites a variable is no gradient, and not scaled
        return [
            (given if getattr(variable, "overwrite_with_gradient", False) else grad, variable)
            for grad, (given, variable) in zip(grads, pairs)
        ]

    def stateless_apply(self, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        """Not with TensorFlow: Keras's own optimizers refuse it there, as strategies need variables."""
        raise ValueError("stateless_apply does not work with Keras's TensorFlow backend: call apply instead")

    def _variables_from_the_start(self) -> List[Any]:
        made = super()._variables_from_the_start()
        return [each.value if isinstance(each, keras.Variable) else each for each in made]

    def _can_be_made_outside(self) -> bool:
        # each replica would write its variables for itself: the replicas' weights drift apart
        return self.built and tf.distribute.get_strategy().num_replicas_in_sync == 1

    def _require_can_apply(self, aggregate: bool) -> None:
        if not aggregate and tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise ValueError("the optimizers of Keras 3 can't apply gradients without aggregating them")

    def _counted_steps(self) -> Any:
        return self.inner_optimizer._iterations.value  # all of them: what accumulates tells every so many as one

    def _skip(self) -> Any:
        # an accumulating optimizer counts what it has accumulated: to count a skipped step would dilute the mean
        return None if self.inner_optimizer.gradient_accumulation_steps else super()._skip()

    # The inner optimizer

    def build(self, var_list: Sequence[Any]) -> None:
        """Make the inner optimizer's variables."""
        if not self.built:
            self.inner_optimizer.build(var_list)
            self._remember(var_list)
            # past Keras's own class, whose build makes the variables of a dynamic scale
            super(keras.optimizers.LossScaleOptimizer, self).build(var_list)  # type: ignore[misc]

    def _make_variables(self, variables: Sequence[Any]) -> None:
        self.build(variables)

    def _apply_inner(self, pairs: List[Tuple[Any, Any]], name: Optional[str], aggregate: bool) -> Any:
        return self.inner_optimizer.apply([grad for grad, _ in pairs], [variable for _, variable in pairs])

    def _places(self) -> Mapping[Any, int]:
        places: Mapping[Any, int] = self.inner_optimizer._trainable_variables_indices
        return places

    def _new_slot(self, var: Any, slot_name: str, initializer: Any) -> Any:
        return self.inner_optimizer.add_variable_from_reference(var, name=slot_name, initializer=initializer)

    @property
    def variables(self) -> Any:
        """The variables that Keras saves: the scale's, then the inner optimizer's; the list may also be called."""
        return CallableList([*self._variables, *self.inner_optimizer.variables])

    # Restoring a checkpoint

    def _lookup_dependency(self, name: str, *cached: Any, **more: Any) -> Any:
        found = super()._lookup_dependency(name, *cached, **more)
        return None if self._is_complete() else found

    @property
    def _deferred_dependencies(self) -> Any:
        kept = super()._deferred_dependencies  # type: ignore[misc]
        return Arrivals(self._owner, kept) if self._is_complete() else kept

    def _owner(self, name: str, place: Any) -> Any:
        """A bare optimizer's file has children of the same names as ours, and they belong to the inner one."""
        others = siblings(place, name)
        if "inner_optimizer" in others:
            return super()
        for foreign in self._profile.foreign_children.keys() & others:
            self._refuse(self._profile.foreign_children[foreign])
        return self.inner_optimizer if "_trainable_variables" in others else super()

    # Configuration

    def _serialized_inner(self) -> Any:
        return keras.saving.serialize_keras_object(self.inner_optimizer)
