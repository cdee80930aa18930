"""Keras 3, with the TensorFlow backend.

Its own spelling is ``scale_loss`` and ``apply``, and ``fit`` hands scaled gradients to ``apply_gradients``: there, the
one who scaled the loss does not unscale. So the optimizer remembers who did: after ``scale_loss`` the gradients that
come are scaled, after ``get_unscaled_gradients`` they are not.
"""

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import weakref

import keras
import tensorflow as tf

from . import core
from .configuration import in_newer_words
from .keras_new import CallableList, WithoutSlots
from .unscaling import scaled, unscaled
from .wrapper import LossScaleOptimizer

# piece of state → what Keras's own class calls its variable; in the order in which Keras makes them
_NAMES = {"good_steps": "step_counter", "current_loss_scale": "dynamic_scale"}
# a policy's state in the graph → name → Keras's variable
_variables_of_state: "weakref.WeakKeyDictionary[Any, Dict[str, Any]]" = weakref.WeakKeyDictionary()


class Adapter(WithoutSlots):
    """The parts of a LossScaleOptimizer that depend on Keras 3."""

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
        if not core.has_pure_step(policy):
            super()._hold(policy)
            return
        memory = policy._remembered()
        if memory not in _variables_of_state:
            made = self._state_variables(memory.plain(), policy.initial_state())
            memory = core.hold_in_graph(policy, lambda name, value: made[name].value)
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

    @property
    def initial_scale(self) -> Any:
        """The scale of the first step."""
        return LossScaleOptimizer.initial_scale.fget(self)  # type: ignore[attr-defined]

    @initial_scale.setter
    def initial_scale(self, value: Any) -> None:
        """Keras's own constructor sets it; the policy knows better."""

    @property
    def dynamic_growth_steps(self) -> Any:
        """The finite steps in a row after which a dynamic scale grows; None for a policy without such a number."""
        return LossScaleOptimizer.dynamic_growth_steps.fget(self)  # type: ignore[attr-defined]

    @dynamic_growth_steps.setter
    def dynamic_growth_steps(self, value: Any) -> None:
        """Keras's own constructor sets it; the policy knows better."""

    @core.as_written
    def scale_loss(self, loss: Any) -> Any:
        """The loss times the current scale; the gradients of it are to be applied as they are."""
        self._are_gradients_scaled = True
        return scaled(loss, self._policy())

    @core.as_written
    def get_scaled_loss(self, loss: Any) -> Any:
        """The loss, or what a callable returns, times the current scale."""
        self._are_gradients_scaled = False
        return super().get_scaled_loss(loss)

    @core.as_written
    def get_unscaled_gradients(self, grads: Sequence[Any]) -> List[Any]:
        """The gradients divided by the current scale; None stays None."""
        self._are_gradients_scaled = False
        return super().get_unscaled_gradients(grads)

    @core.as_written
    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        """Keras 3's way to apply gradients: it takes scaled ones, unless ``get_unscaled_gradients`` was called."""
        variables = self._trainable_variables if trainable_variables is None else trainable_variables
        are_scaled = self._are_gradients_scaled is not False
        return self._apply(list(zip(grads, variables)), are_scaled)

    @core.as_written
    def apply_gradients(
        self,
        grads_and_vars: Any,
        name: Optional[str] = None,
        experimental_aggregate_gradients: bool = True,
        skip_gradients_aggregation: bool = False,
    ) -> Any:
        """Apply unscaled gradients, or scaled ones after ``scale_loss``, if the policy says so; update the scale."""
        aggregate = experimental_aggregate_gradients and not skip_gradients_aggregation
        return self._apply(grads_and_vars, self._are_gradients_scaled is True, aggregate)

    def _apply(self, grads_and_vars: Any, are_scaled: bool, aggregate: bool = True) -> Any:
        if are_scaled:
            grads_and_vars = list(grads_and_vars)
            grads = unscaled([_unless_overwriting(*pair) for pair in grads_and_vars], self._policy())
            grads_and_vars = [
                (pair[0] if _overwrites(pair[1]) else grad, pair[1]) for grad, pair in zip(grads, grads_and_vars)
            ]
        return super().apply_gradients(grads_and_vars, skip_gradients_aggregation=not aggregate)

    def stateless_apply(self, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        """Not with TensorFlow: Keras's own optimizers refuse it there, as strategies need variables."""
        raise ValueError("stateless_apply does not work with Keras's TensorFlow backend: call apply instead")

    def _require_can_apply(self, aggregate: bool) -> None:
        if not aggregate and tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise ValueError("the optimizers of Keras 3 can't apply gradients without aggregating them")

    def _skip(self) -> Any:
        # an accumulating optimizer counts what it has accumulated: to count a skipped step would dilute the mean
        return None if self.inner_optimizer.gradient_accumulation_steps else super()._skip()

    # The inner optimizer

    def build(self, var_list: Sequence[Any]) -> None:
        """Make the inner optimizer's variables."""
        if not self.built:
            self.inner_optimizer.build(var_list)
            # past Keras's own class, whose build makes the variables of a dynamic scale
            super(keras.optimizers.LossScaleOptimizer, self).build(var_list)  # type: ignore[misc]

    def _make_variables(self, variables: Sequence[Any]) -> None:
        with tf.init_scope():
            self.build(variables)

    def _apply_inner(self, pairs: List[Tuple[Any, Any]], name: Optional[str], aggregate: bool) -> Any:
        return self.inner_optimizer.apply([grad for grad, _ in pairs], [variable for _, variable in pairs])

    def _places(self) -> Mapping[Any, int]:
        places: Mapping[Any, int] = self.inner_optimizer._trainable_variables_indices
        return places

    def _new_slot(self, var: Any, slot_name: str, initializer: Any) -> Any:
        return self.inner_optimizer.add_variable_from_reference(var, name=slot_name, initializer=initializer)

    def add_weight(
        self, name: str, shape: Any = (), dtype: Any = None, initializer: Any = "zeros", **options: Any
    ) -> Any:
        """Add a variable to the inner optimizer."""
        return self.inner_optimizer.add_variable(shape=shape, initializer=initializer, dtype=dtype, name=name)

    @property
    def variables(self) -> Any:
        """The variables that Keras saves: the scale's, then the inner optimizer's; the list may also be called."""
        return CallableList([*self._variables, *self.inner_optimizer.variables])

    # Configuration

    def _serialized_inner(self) -> Any:
        return keras.saving.serialize_keras_object(self.inner_optimizer)

    def _dialect(self, inner: Any, policy: Dict[str, Any]) -> Dict[str, Any]:
        words = in_newer_words(policy)
        config = {"name": self.name, "inner_optimizer": inner}
        if words is None or not words.pop("dynamic"):
            return {**config, "loss_scale": policy}
        return {**config, **words}

    @classmethod
    def _deserialized_inner(cls, config: Dict[str, Any], custom_objects: Optional[Mapping[str, Any]]) -> Any:
        return keras.saving.deserialize_keras_object(config, custom_objects=custom_objects)


def _overwrites(variable: Any) -> bool:
    """Whether Keras puts the gradient in the variable's place: it is no gradient, and not scaled."""
    return bool(getattr(variable, "overwrite_with_gradient", False))


def _unless_overwriting(grad: Any, variable: Any) -> Any:
    return None if _overwrites(variable) else grad
