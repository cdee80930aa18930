"""TensorFlow 2.11 to 2.15 and tf_keras: the new optimizers, which have ``update_step`` and no slots.

They have neither ``get_gradients`` nor ``get_weights`` nor slots; here they do, with the documented meaning.
"""

from typing import Any, Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from ...serialization.keras.keras2_new_optimizers import KERAS_2_NEW_OPTIMIZERS
from ...serialization.keras.optimizer_v2 import OPTIMIZER_V2
from .._state.checkpoint_tracking import Arrivals
from .._state.state_transfer import has_bare_momentum, learning_rate_of, tensorflow_variable
from .._step import gate
from ..loss_scale_optimizer import LossScaleOptimizer, numpy_values
from .keras2_base import Keras2
from .keras_2_10_variable_order import ITERATIONS, put_right
from .slot_attributes import slot_attributes


class CallableList(list):  # type: ignore[type-arg]
    """What ``optimizer.variables`` is in some versions and ``optimizer.variables()`` in others."""

    def __call__(self) -> List[Any]:
        return self


class WithoutSlots(LossScaleOptimizer):
    """What the new optimizers of Keras 2 and those of Keras 3 have in common."""

    def _variables_of_inner(self) -> List[Any]:
        variables = self.inner_optimizer.variables
        return list(variables() if callable(variables) else variables)

    # Gradients

    @gate.as_written
    def minimize(
        self, loss: Any, var_list: Any, grad_loss: Any = None, name: Optional[str] = None, tape: Any = None
    ) -> Any:
        """Compute the gradients of a scaled loss, unscale and apply them.

        ``loss`` and ``var_list`` may be callables; a loss that is a tensor comes with the tape that recorded it.
        """
        return self.apply_gradients(self.compute_gradients(loss, var_list, tape, grad_loss), name=name)

    @gate.as_written
    def compute_gradients(
        self, loss: Any, var_list: Any, tape: Any = None, grad_loss: Any = None
    ) -> List[Tuple[Any, Any]]:
        """The unscaled gradients, each with its variable."""
        if not callable(loss) and tape is None:
            raise ValueError("a loss that is a tensor needs tape=, the tape that recorded it; or give a callable")
        tape = tf.GradientTape() if tape is None else tape
        with tape:
            if callable(loss) and not callable(var_list):
                tape.watch([tensorflow_variable(variable) for variable in tf.nest.flatten(var_list)])
            loss = self.get_scaled_loss(loss() if callable(loss) else loss)
        variables = tf.nest.flatten(var_list() if callable(var_list) else var_list)
        grads = tape.gradient(loss, [tensorflow_variable(variable) for variable in variables], grad_loss)
        return list(zip(self.get_unscaled_gradients(grads), variables))

    @gate.as_written
    def get_gradients(self, loss: Any, params: Sequence[Any]) -> List[Any]:
        """The unscaled gradients of a loss in a graph."""
        grads = tf.gradients(self.get_scaled_loss(loss), [tensorflow_variable(variable) for variable in params])
        if any(grad is None for grad in grads):
            lonely = [variable.name for grad, variable in zip(grads, params) if grad is None]
            raise ValueError(f"the loss has no gradient with respect to {lonely}")
        return self.get_unscaled_gradients(grads)

    @gate.as_written
    def get_updates(self, loss: Any, params: Sequence[Any]) -> List[Any]:
        """The operations that take one step, in a graph."""
        return [self.apply_gradients(zip(self.get_gradients(loss, params), params))]

    # Variables

    @property
    def weights(self) -> List[Any]:
        """The iterations and the slots: the inner optimizer's variables without its learning rate."""
        iterations, rate = self.inner_optimizer.iterations, getattr(self.inner_optimizer, "_learning_rate", None)
        # up to 2.10 the iterations are not among its variables
        others = [each for each in self._variables_of_inner() if each is not rate and each is not iterations]
        return [iterations, *others]

    def get_weights(self) -> List[Any]:
        """The values of ``weights``; a momentum has the learning rate in it, as everywhere but in 2.10's RMSprop.

        There it is float64, which holds the product exactly: what comes back by ``set_weights`` is the same to the bit.
        """
        values = numpy_values(self.weights)
        rate = learning_rate_of(self) if has_bare_momentum(self) else None
        if rate is None:
            return values
        momentums = {id(each) for each in self.inner_optimizer._momentums}
        return [
            value.astype(np.float64) * np.float32(rate) if id(weight) in momentums else value
            for weight, value in zip(self.weights, values)
        ]

    @property
    def variables(self) -> Any:
        """The variables that Keras saves, as a list that may also be called."""
        return CallableList(self._variables_of_inner())

    def get_slot_names(self) -> List[str]:
        """The names of the slots, as the documentation has them."""
        return sorted({*self._slot_attributes(), *(name for _, name in self._added_slots())})

    def __dir__(self) -> List[str]:
        # what lists these has slots for a checkpoint, and these variables are in it by their lists already
        hidden = ("get_slot_names", "_create_or_restore_slot_variable")
        return [name for name in super().__dir__() if name not in hidden]

    def _create_or_restore_slot_variable(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse(OPTIMIZER_V2.title)

    def get_slot(self, var: Any, slot_name: str) -> Any:
        """The inner optimizer's variable for this slot; None if there is none."""
        key = self.inner_optimizer._var_key(tensorflow_variable(var))
        place, attribute = self._places().get(key), self._slot_attributes().get(slot_name)
        if place is not None and attribute is not None:
            return getattr(self.inner_optimizer, attribute)[place]
        return self._added_slots().get((key, slot_name))

    def add_slot(self, var: Any, slot_name: str, initializer: Any = "zeros") -> Any:
        """Add a variable of the same shape to the inner optimizer."""
        key = (self.inner_optimizer._var_key(tensorflow_variable(var)), slot_name)
        if key not in self._added_slots():
            self._added_slots()[key] = self._new_slot(var, slot_name, initializer)
        return self._added_slots()[key]

    def _slot_attributes(self) -> Dict[str, str]:
        return slot_attributes(self.inner_optimizer, self._variables_of_inner())

    def _added_slots(self) -> Dict[Any, Any]:
        added: Dict[Any, Any] = self.__dict__.setdefault("_scalekeeper_added_slots", {})
        return added

    def _places(self) -> Mapping[Any, int]:
        """Which trainable variable the inner optimizer has in which place."""
        raise NotImplementedError

    def _new_slot(self, var: Any, slot_name: str, initializer: Any) -> Any:
        raise NotImplementedError

    def add_weight(
        self, name: str, shape: Any = (), dtype: Any = None, initializer: Any = "zeros", **options: Any
    ) -> Any:
        """Add a variable to the inner optimizer."""
        return self.inner_optimizer.add_variable(shape=shape, dtype=dtype, initializer=initializer, name=name)


class Adapter(WithoutSlots, Keras2):
    """The parts of a LossScaleOptimizer that depend on the new optimizers of Keras 2."""

    _profile = KERAS_2_NEW_OPTIMIZERS

    def build(self, var_list: Sequence[Any]) -> None:
        """Make the inner optimizer's variables."""
        self._optimizer.build(var_list)
        self._remember(var_list)

    def _make_variables(self, variables: Sequence[Any]) -> None:
        self._optimizer.build(variables)

    def _apply_inner(self, pairs: List[Tuple[Any, Any]], name: Optional[str], aggregate: bool) -> Any:
        named = {} if name is None else {"name": name}  # before 2.11, they take none
        return self._optimizer.apply_gradients(pairs, skip_gradients_aggregation=not aggregate, **named)

    # Restoring, in checkpoints of all versions

    def _lookup_dependency(self, name: str, *cached: Any, **more: Any) -> Any:
        return None if name == ITERATIONS else super()._lookup_dependency(name, *cached, **more)

    @property
    def _deferred_dependencies(self) -> Any:
        return Arrivals(self._owner)

    def _owner(self, name: str, place: Any) -> Any:
        if name == ITERATIONS:
            put_right(place, self._optimizer)
        return self._optimizer

    def _places(self) -> Mapping[Any, int]:
        places: Mapping[Any, int] = getattr(self._optimizer, "_index_dict", {})
        return places

    def _new_slot(self, var: Any, slot_name: str, initializer: Any) -> Any:
        value = tf.keras.initializers.get(initializer)(var.shape, dtype=var.dtype)
        return self._optimizer.add_variable_from_reference(var, slot_name, initial_value=value)
