"""Keras 3, with the TensorFlow backend.

Keras 3 calls ``scale_loss`` and ``apply``, and ``fit`` passes scaled gradients to ``apply_gradients``. So the optimizer
records whether the gradients it gets are scaled: after ``scale_loss`` they are, after ``get_scaled_loss`` or
``get_unscaled_gradients`` they are not.
"""

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import functools
import inspect
import weakref

import keras
import tensorflow as tf

from ...registry.errors import ArgumentError, ReadOnlyError, StrategyError, WrongArgumentError, unknown
from ...serialization.keras.keras3 import KERAS_3_PROFILE
from .._state.checkpoint_tracking import DeferredChildren, refuse, siblings
from .._state.state_transfer import tensorflow_variable
from .._step.control_flow import runs_side_effects, with_side_effects, without_autograph
from .._step.graph_state import hold_in_graph
from .._step.unscale import SCALING_METHODS, scale_loss, unscale_gradients
from ..loss_scale_optimizer import LossScaleOptimizer
from .aggregation import Aggregation, Pairs, has_replicas, is_overridden, with_methods
from .slotless_optimizers import CallableList, SlotlessAdapter

# not in Keras 3.0
_CAN_AGGREGATE = "aggregation" in inspect.signature(keras.optimizers.Optimizer.add_variable).parameters
# entry of a state → the name of the variable in Keras's own class, in the order in which Keras creates them
_NAMES = {name: keras_name for keras_name, name in KERAS_3_PROFILE.state_names.items()}
# what Keras's own optimizers take and its LossScaleOptimizer does not, with the defaults
_BASE_ARGUMENTS = {
    "weight_decay": None,
    "clipnorm": None,
    "clipvalue": None,
    "global_clipnorm": None,
    "use_ema": False,
    "ema_momentum": 0.99,
    "ema_overwrite_frequency": None,
    "loss_scale_factor": None,
    "gradient_accumulation_steps": None,
}
_ARGUMENTS = frozenset(inspect.signature(LossScaleOptimizer.__init__).parameters) - {"self"}
_OF_THE_POLICY = "it is a parameter of the policy; create another LossScaleOptimizer with it"
# a policy's state in the graph → name → Keras variable
_variables_of_state: "weakref.WeakKeyDictionary[Any, Dict[str, Any]]" = weakref.WeakKeyDictionary()


# the methods of an inner optimizer that change gradients before it uses them, and those that call them
_AGGREGATING = ("_clip_gradients", "_all_reduce_sum_gradients")
_APPLYING = ("apply_gradients", "apply", "_backend_apply_gradients", "_backend_update_step")
_CLIPPING = ("clipnorm", "global_clipnorm", "clipvalue")
# Up to 3.4, that method is called where the replicas meet, and does not sum: each replica applies its own gradients.
_UPDATE = getattr(keras.optimizers.Optimizer, "_backend_update_step", None)
_SUMS_IN_REPLICAS = _UPDATE is not None and "_all_reduce_sum_gradients" in _UPDATE.__code__.co_names
# up to Keras 3.5, keras.Variable is a subclass of what layers and optimizers create
_VARIABLE: Any = [each for each in keras.Variable.__mro__ if each.__module__.startswith("keras.")][-1]
# what distributed wrappers for Keras 2 override; no optimizer of Keras 3 has these methods
_METHODS_OF_KERAS_2 = ("compute_gradients", "_compute_gradients", "_aggregate_gradients", "get_gradients")


def _is_overwritten(variable: Any) -> bool:
    return bool(getattr(variable, "overwrite_with_gradient", False))


@functools.lru_cache(maxsize=None)
def _aggregation_of_state() -> Dict[str, str]:
    """Return how replicas write the state of a policy. All of them write the same values."""
    if not _CAN_AGGREGATE:
        return {}
    try:
        keras.Variable(0.0, aggregation="none")
    except ValueError:  # in the first versions with this argument
        return {"aggregation": "only_first_replica"}
    return {"aggregation": "none"}


def _without_base_arguments(arguments: Mapping[str, Any]) -> Dict[str, Any]:
    """Drop the arguments that Keras's own class takes for older files, which must have their defaults."""
    for name, value in arguments.items():
        if name in _BASE_ARGUMENTS:
            if value is not _BASE_ARGUMENTS[name] and value != _BASE_ARGUMENTS[name]:
                raise WrongArgumentError(
                    f"LossScaleOptimizer does not take {name}={value!r}: give it to the inner optimizer, as in "
                    f"LossScaleOptimizer(keras.optimizers.Adam({name}={value!r}))"
                )
        elif name not in _ARGUMENTS:
            raise WrongArgumentError(unknown("argument", name, sorted(_ARGUMENTS), of="LossScaleOptimizer"))
    return {name: value for name, value in arguments.items() if name not in _BASE_ARGUMENTS}


class Adapter(SlotlessAdapter):
    """A LossScaleOptimizer for Keras 3."""

    _profile = KERAS_3_PROFILE
    _are_gradients_scaled: Optional[bool] = None  # None: neither method was called so far
    built: bool
    name: str
    _variables: List[Any]
    _trainable_variables: List[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **_without_base_arguments(kwargs))

    def _wrap(self, optimizer: Any, name: Optional[str]) -> None:
        if keras.backend.backend() != "tensorflow":
            raise ArgumentError(
                f"Keras runs on {keras.backend.backend()}, and this LossScaleOptimizer works with TensorFlow only: set "
                "the environment variable KERAS_BACKEND to tensorflow before Keras is imported"
            )
        super(LossScaleOptimizer, self).__init__(optimizer, name=name)  # type: ignore[call-arg]

    def _hold(self, policy: Any) -> Any:
        made: Dict[str, Any] = {}

        def make_variables(state: Mapping[str, Any]) -> Dict[str, Any]:
            made.update(self._keras_variables(state))
            return {name: variable.value for name, variable in made.items()}

        held = hold_in_graph(policy, make_variables)
        if not held.is_pure:
            return super()._hold(policy)
        if held.state not in _variables_of_state:
            if not made:  # the policy has variables: of its own, or of an optimizer of Keras 2
                made = self._keras_variables({name: each.numpy() for name, each in held.variables.items()})
                for name, variable in made.items():
                    variable._value = held.variables[name]  # so that Keras saves and loads these
            _variables_of_state[held.state] = made
        for name, variable in _variables_of_state[held.state].items():  # of another optimizer, if both share a policy
            setattr(self, _NAMES.get(name, name), variable)
        return held

    def _keras_variables(self, state: Mapping[str, Any]) -> Dict[str, Any]:
        """Create Keras variables for a policy's state; those that Keras's own class has come first, in its order."""
        positions = {name: position for position, name in enumerate(_NAMES)}
        return {
            name: self.add_variable(  # type: ignore[attr-defined]
                shape=(),
                dtype=state[name].dtype.name,
                initializer=keras.initializers.Constant(state[name].item()),
                name=_NAMES.get(name, name),
                **_aggregation_of_state(),
            )
            for name in sorted(state, key=lambda name: positions.get(name, len(positions)))
        }

    # The names of Keras 3

    @LossScaleOptimizer.initial_scale.setter  # type: ignore[attr-defined, untyped-decorator]
    def initial_scale(self, value: Any) -> None:
        """Ignore the value that Keras's own constructor sets: the policy defines it."""
        self._require_in_constructor("initial_scale", _OF_THE_POLICY)

    @LossScaleOptimizer.dynamic_growth_steps.setter  # type: ignore[attr-defined, untyped-decorator]
    def dynamic_growth_steps(self, value: Any) -> None:
        """Ignore the value that Keras's own constructor sets: the policy defines it."""
        self._require_in_constructor("dynamic_growth_steps", _OF_THE_POLICY)

    @property
    def iterations(self) -> Any:
        """The steps of the inner optimizer."""
        return self.inner_optimizer.iterations

    @iterations.setter
    def iterations(self, value: Any) -> None:
        """Ignore the variable that the constructor of older Kerases sets: the inner optimizer counts the steps."""
        self._require_in_constructor("iterations", "assign to the variable: optimizer.iterations.assign(…)")

    def _require_in_constructor(self, name: str, remedy: str) -> None:
        """Raise :class:`ReadOnlyError` for an attribute that is set after the constructor has finished."""
        if self._is_complete():
            raise ReadOnlyError(f"{name} of a LossScaleOptimizer cannot be set: {remedy}")

    @without_autograph
    def scale_loss(self, loss: Any) -> Any:
        """Multiply the loss by the current loss scale. Apply its gradients without unscaling them.

        Args:
            loss: The loss, a tensor.

        Returns:
            The scaled loss.
        """
        self._require_gradients_of_inner()
        self._are_gradients_scaled = True
        self._mark(*SCALING_METHODS)  # this class unscales the gradients
        return scale_loss(loss, self._graph_policy.scale())

    @without_autograph
    def get_scaled_loss(self, loss: Any) -> Any:
        """Multiply the loss, or what a callable returns, by the current loss scale."""
        self._are_gradients_scaled = False
        return super().get_scaled_loss(loss)

    @without_autograph
    def get_unscaled_gradients(self, grads: Sequence[Any]) -> List[Any]:
        """Divide gradients by the current loss scale; None stays None."""
        self._are_gradients_scaled = False
        return super().get_unscaled_gradients(grads)

    @without_autograph
    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        """Apply scaled gradients, or unscaled ones after ``get_unscaled_gradients`` or ``get_scaled_loss``.

        Args:
            grads: The gradients.
            trainable_variables: Their variables; None for those the optimizer was built with.

        Returns:
            None; in a graph of TensorFlow 1, the operation that does it.
        """
        variables = self._trainable_variables if trainable_variables is None else trainable_variables
        pairs = list(zip(grads, variables))
        self._mark(*SCALING_METHODS)
        step = self.apply_gradients(self._unscaled(pairs) if self._are_gradients_scaled is None else pairs)
        return step if isinstance(step, tf.Operation) else None

    def _returned(self, step: Any) -> Any:
        return self._own_step_counter() if runs_side_effects() else step

    def _unscaled_pairs(self, pairs: List[Tuple[Any, Any]]) -> List[Tuple[Any, Any]]:
        return self._unscaled(pairs) if self._are_gradients_scaled else pairs

    def _unscaled(self, pairs: List[Tuple[Any, Any]]) -> List[Tuple[Any, Any]]:
        grads = unscale_gradients([grad for grad, _ in pairs], self._graph_policy.scale())
        # a value that overwrites its variable is not a gradient, and not scaled
        return [
            (given if _is_overwritten(variable) else grad, variable) for grad, (given, variable) in zip(grads, pairs)
        ]

    def stateless_apply(self, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        """Raise an error, as the optimizers of Keras do with the TensorFlow backend.

        Args:
            optimizer_variables: The variables of the optimizer.
            grads: The gradients.
            trainable_variables: The variables to train.

        Returns:
            Nothing.

        Raises:
            ArgumentError: Always.
        """
        raise ArgumentError("stateless_apply does not work with Keras's TensorFlow backend: call apply instead")

    def _first_variables(self) -> List[Any]:
        variables = super()._first_variables()
        return [each.value if isinstance(each, _VARIABLE) else each for each in variables]

    def _can_be_made_outside(self) -> bool:
        # Each replica would write the variables for itself, and the weights of the replicas would drift apart.
        return self.built and tf.distribute.get_strategy().num_replicas_in_sync == 1

    def _require_can_apply(self, aggregate: bool) -> None:
        if tf.distribute.get_strategy().num_replicas_in_sync == 1:
            return
        if not _SUMS_IN_REPLICAS:
            raise StrategyError(
                f"the optimizers of Keras {keras.__version__} do not sum the gradients of replicas, which would train "
                "apart: use Keras 3.5 or later, or one device"
            )
        if not aggregate:
            raise ArgumentError("the optimizers of Keras 3 can't apply gradients without aggregating them")

    def _step_counter(self) -> Any:
        return self._own_step_counter().value

    def _own_step_counter(self) -> Any:
        """Return the Keras variable that counts the inner optimizer's steps."""
        inner = self.inner_optimizer
        # ``iterations`` counts accumulated steps as one; in older Kerases it is the variable itself
        return inner._iterations if hasattr(inner, "_iterations") else inner.iterations

    def _counter_to_advance(self) -> Any:
        # Counting a skipped step as accumulated would dilute the mean of the gradients.
        return None if self.inner_optimizer.gradient_accumulation_steps else self.inner_optimizer.iterations

    # The inner optimizer

    def build(self, var_list: Sequence[Any]) -> None:
        """Create the inner optimizer's variables.

        Args:
            var_list: The variables that the optimizer trains.
        """
        if not self.built:
            self.inner_optimizer.build(var_list)
            self._remember(var_list)
            # Not the build of Keras's own class, which creates the variables of a dynamic scale.
            super(keras.optimizers.LossScaleOptimizer, self).build(var_list)  # type: ignore[misc]

    def _make_variables(self, variables: Sequence[Any]) -> None:
        self.build(variables)

    def _known_variables(self) -> List[Any]:
        known = super()._known_variables()
        ids = set(map(id, known))
        return [*known, *(each for each in self.inner_optimizer._trainable_variables if id(each) not in ids)]

    def _require_gradients_of_inner(self) -> None:
        """Raise :class:`ArgumentError` if the inner optimizer aggregates in a method that Keras 3 never calls."""
        inner = self.inner_optimizer
        found = [name for name in _METHODS_OF_KERAS_2 if hasattr(inner, name)]
        if found and not hasattr(inner, "aggregate_gradients"):
            raise ArgumentError(
                f"{type(inner).__name__} has {found[0]}, which Keras 3 never calls in fit: workers whose gradients it "
                "averages would train apart. Define aggregate_gradients(grads_and_vars), which scalekeeper calls "
                "before it decides, or call minimize"
            )

    def _gradients_by_inner(self, tape: Any, loss: Any, variables: Sequence[Any]) -> Pairs:
        if not hasattr(self.inner_optimizer, "compute_gradients"):  # Keras's own have none
            return super()._gradients_by_inner(tape, loss, variables)
        return list(self.inner_optimizer.compute_gradients(loss, variables, tape=tape))

    def _aggregated(self, pairs: Pairs) -> Optional[Aggregation]:
        inner = self.inner_optimizer
        has_method = hasattr(inner, "aggregate_gradients")  # as in Keras 2; Keras's own have none
        if has_method:
            pairs = [pair for pair in inner.aggregate_gradients(pairs) if pair[0] is not None]
        if not self._is_aggregated_apart():
            return Aggregation(pairs) if has_method else None
        grads = [grad for grad, _ in pairs]
        # Keras assigns other values to their variables as they are.
        indices = [index for index, (_, variable) in enumerate(pairs) if not _is_overwritten(variable)]
        clipped = inner._clip_gradients([grads[index] for index in indices])
        variables = [tensorflow_variable(pairs[index][1]) for index in indices]
        sums = inner._all_reduce_sum_gradients(list(zip(clipped, variables)))
        for index, (grad, _) in zip(indices, sums):
            pairs[index] = (grad, pairs[index][1])
        # Clipping replaces an infinity by a finite number.
        clips = is_overridden(inner, "_clip_gradients") or any(getattr(inner, name, None) for name in _CLIPPING)
        return Aggregation(pairs, grads if clips else None)

    def _is_aggregated_apart(self) -> bool:
        """Return whether the inner optimizer sums gradients by a method that can be called before the decision.

        One that accumulates gradients sums them only when it uses them.
        """
        inner = self.inner_optimizer
        if not has_replicas() and not is_overridden(inner, "_all_reduce_sum_gradients"):
            return False
        if inner.gradient_accumulation_steps or inner.loss_scale_factor is not None:
            return False
        return _SUMS_IN_REPLICAS and not any(is_overridden(inner, name) for name in _APPLYING)

    def _apply_inner(self, pairs: Pairs, name: Optional[str], aggregate: bool) -> Any:
        return with_side_effects(lambda: self._apply_in_order(pairs, name, aggregate))

    def _apply_in_order(self, pairs: Pairs, name: Optional[str], aggregate: bool) -> Any:
        inner = self.inner_optimizer
        if is_overridden(inner, "apply_gradients"):
            inner.apply_gradients(pairs)  # returns a Keras variable, not an operation
            return None
        grads, variables = [grad for grad, _ in pairs], [variable for _, variable in pairs]
        if aggregate or not self._is_aggregated_apart():
            return inner.apply(grads, variables)
        with with_methods(inner, dict.fromkeys(_AGGREGATING, list)) as optimizer:
            return optimizer.apply(grads, variables)

    def _indices(self) -> Mapping[Any, int]:
        indices: Mapping[Any, int] = self.inner_optimizer._trainable_variables_indices
        return indices

    def _new_slot(self, var: Any, slot_name: str, initializer: Any) -> Any:
        return self.inner_optimizer.add_variable_from_reference(var, name=slot_name, initializer=initializer)

    @property
    def variables(self) -> Any:
        """The variables that Keras saves: the loss scale's, then the inner optimizer's; the list may also be called."""
        return CallableList([*self._variables, *self.inner_optimizer.variables])

    # Restoring a checkpoint

    def _lookup_dependency(self, name: str, *cached: Any, **more: Any) -> Any:
        found = super()._lookup_dependency(name, *cached, **more)
        return None if self._is_complete() else found

    @property
    def _deferred_dependencies(self) -> Any:
        deferred = super()._deferred_dependencies  # type: ignore[misc]
        return DeferredChildren(self._owner, deferred) if self._is_complete() else deferred

    def _owner(self, name: str, position: Any) -> Any:
        """Return whose child it is: the file of a bare optimizer has children of the same names for the inner one."""
        others = siblings(position, name)
        if "inner_optimizer" in others:
            return super()
        for foreign in self._profile.foreign_children.keys() & others:
            refuse(self, self._profile.foreign_children[foreign])
        return self.inner_optimizer if "_trainable_variables" in others else super()

    # Configuration

    def _serialized_inner(self) -> Any:
        return keras.saving.serialize_keras_object(self.inner_optimizer)


functools.update_wrapper(Adapter.__init__, LossScaleOptimizer.__init__)  # keeps the signature
