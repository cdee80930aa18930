"""Slots, weights and gradients for inner optimizers without such methods: new optimizers of Keras 2, and Keras 3.

These optimizers keep lists of variables, one variable for each trainable variable, and have neither ``get_gradients``
nor ``get_weights`` nor slots. The adapters provide them with their documented meaning.
"""

from typing import Any, Collection, Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple

import collections.abc
import functools

import numpy as np
import tensorflow as tf

from ...registry.errors import ArgumentError
from ...serialization.keras._slots import attribute_names
from .._state.checkpoint_tracking import refuse
from .._state.inventory import is_variable, iterations_of
from .._state.state_transfer import has_bare_momentum, learning_rate_of, numpy_values, tensorflow_variable
from .._step.control_flow import runs_side_effects, without_autograph
from ..loss_scale_optimizer import LossScaleOptimizer
from .aggregation import Pairs


def slot_attributes(optimizer: Any, keys: Collection[Any]) -> Dict[str, str]:
    """Return slot → attribute for the lists of variables that an optimizer has, one for each of these variables."""
    found = [name for name, value in vars(optimizer).items() if _holds_slots(name, value, keys)]
    cls: Any = type(optimizer)
    known = _attribute_names(cls)
    attributes = {slot: name for slot, names in known.items() for name in names if name in found}
    unnamed = [attribute for attribute in found if attribute not in attributes.values()]
    return {**attributes, **{attribute.strip("_"): attribute for attribute in unnamed}}


@functools.lru_cache(maxsize=64)
def _attribute_names(cls: Any) -> Dict[str, Tuple[str, ...]]:
    return attribute_names([each.__name__ for each in cls.__mro__])


def _holds_slots(name: str, value: Any, keys: Collection[Any]) -> bool:
    """Return whether an attribute holds one variable, or None, for each trainable variable."""
    if name in ("_variables", "_trainable_variables") or name.startswith("_self_") or not keys:
        return False
    if isinstance(value, collections.abc.Mapping):
        values, is_complete = list(value.values()), set(value) == set(keys)
    else:
        values, is_complete = value, isinstance(value, (list, tuple)) and len(value) == len(keys)
    # some optimizers have a number or another placeholder for a variable without this slot
    return is_complete and any(map(is_variable, values)) and not any(map(callable, values))


class CallableList(list):  # type: ignore[type-arg]
    """A list that may also be called: ``variables`` is a property in some versions and a method in others."""

    def __call__(self) -> List[Any]:
        return self


class SlotlessAdapter(LossScaleOptimizer):
    """The code that the adapters for the new optimizers of Keras 2 and for Keras 3 share."""

    def _variables_of_inner(self) -> List[Any]:
        variables = self.inner_optimizer.variables
        return list(variables() if callable(variables) else variables)

    # Gradients

    @without_autograph
    def minimize(
        self, loss: Any, var_list: Any, grad_loss: Any = None, name: Optional[str] = None, tape: Any = None
    ) -> Any:
        """Compute the gradients of a scaled loss, unscale and apply them.

        Args:
            loss: A tensor, or a callable that returns one.
            var_list: The variables, or a callable that returns them.
            grad_loss: The gradient of the loss; None for 1.
            name: The name of the operation, where the inner optimizer takes one.
            tape: The tape that recorded a loss that is a tensor.

        Returns:
            The same as ``apply_gradients``.
        """
        return self.apply_gradients(self.compute_gradients(loss, var_list, tape, grad_loss), name=name)

    @without_autograph
    def compute_gradients(
        self, loss: Any, var_list: Any, tape: Any = None, grad_loss: Any = None
    ) -> List[Tuple[Any, Any]]:
        """Return the unscaled gradients of a loss, each with its variable.

        Args:
            loss: A tensor, or a callable that returns one.
            var_list: The variables, or a callable that returns them.
            tape: The tape that recorded a loss that is a tensor.
            grad_loss: The gradient of the loss; None for 1.

        Raises:
            ArgumentError: The loss is a tensor, and ``tape`` is not given.
        """
        if not callable(loss) and tape is None:
            raise ArgumentError("a loss that is a tensor needs tape=, the tape that recorded it; or give a callable")
        tape = tf.GradientTape() if tape is None else tape
        with tape:
            if callable(loss) and not callable(var_list):
                tape.watch([tensorflow_variable(variable) for variable in tf.nest.flatten(var_list)])
            loss = self.get_scaled_loss(loss() if callable(loss) else loss)
            if grad_loss is not None:  # the inner optimizer does not take it
                loss = tf.reduce_sum(loss * tf.stop_gradient(tf.cast(grad_loss, loss.dtype)))
        variables = tf.nest.flatten(var_list() if callable(var_list) else var_list)
        pairs = self._gradients_by_inner(tape, loss, variables)
        grads = self.get_unscaled_gradients([grad for grad, _ in pairs])
        return list(zip(grads, [variable for _, variable in pairs]))

    def _gradients_by_inner(self, tape: Any, loss: Any, variables: Sequence[Any]) -> Pairs:
        """Return the gradients of a loss, each with its variable, as the inner optimizer computes them."""
        return list(zip(tape.gradient(loss, [tensorflow_variable(each) for each in variables]), variables))

    @without_autograph
    def get_gradients(self, loss: Any, params: Sequence[Any]) -> List[Any]:
        """Return the unscaled gradients of a loss in a graph.

        Args:
            loss: The loss, a tensor of the graph.
            params: The variables.

        Raises:
            ArgumentError: The loss does not depend on a variable.
        """
        scaled_loss = self.get_scaled_loss(loss)
        if hasattr(self.inner_optimizer, "get_gradients"):  # Keras's own have none
            return self.get_unscaled_gradients(self.inner_optimizer.get_gradients(scaled_loss, params))
        grads = tf.gradients(scaled_loss, [tensorflow_variable(variable) for variable in params])
        if any(grad is None for grad in grads):
            names = [variable.name for grad, variable in zip(grads, params) if grad is None]
            raise ArgumentError(f"the loss has no gradient with respect to {names}")
        return self.get_unscaled_gradients(grads)

    @without_autograph
    def get_updates(self, loss: Any, params: Sequence[Any]) -> List[Any]:
        """Return the operations that take one step, in a graph.

        Args:
            loss: The loss, a tensor of the graph.
            params: The variables.
        """
        step = self.apply_gradients(zip(self.get_gradients(loss, params), params))
        return [step if isinstance(step, tf.Operation) else tf.no_op()]

    def _returned(self, step: Any) -> Any:
        return None if runs_side_effects() else step  # as Keras's own class, so that a tf.function may return it

    def exclude_from_weight_decay(self, var_list: Any = None, var_names: Any = None) -> None:
        """Exclude variables, or those with one of these words in their names, from the inner optimizer's weight decay.

        With Keras's own class, this call has no effect on the inner optimizer.

        Args:
            var_list: The variables.
            var_names: The words.
        """
        self.inner_optimizer.exclude_from_weight_decay(var_list=var_list, var_names=var_names)

    # Variables

    @property
    def weights(self) -> List[Any]:
        """The iterations and the slots: the inner optimizer's variables without its learning rate."""
        iterations, rate = iterations_of(self.inner_optimizer), getattr(self.inner_optimizer, "_learning_rate", None)
        # up to 2.10 the iterations are not among its variables
        others = [each for each in self._variables_of_inner() if each is not rate and each is not iterations]
        return [iterations, *others]

    def get_weights(self) -> List[Any]:
        """Return the values of ``weights``. A momentum includes the learning rate.

        RMSprop of 2.10 keeps its momentum without the learning rate. The product is float64, which holds it exactly:
        ``set_weights`` restores the momentum to the bit.
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
        """Return the documented names of the slots."""
        return sorted({*self._slot_attributes(), *(name for _, name in self._added_slots())})

    def __dir__(self) -> List[str]:
        # A checkpoint looks for slots in objects that list these names; the variables are in it by their lists already.
        hidden = ("get_slot_names", "_create_or_restore_slot_variable")
        return [name for name in super().__dir__() if name not in hidden]

    def _create_or_restore_slot_variable(self, *args: Any, **kwargs: Any) -> NoReturn:
        assert self._profile is not None
        refuse(self, self._profile.foreign_children["iter"])

    def get_slot(self, var: Any, slot_name: str) -> Any:
        """Return the inner optimizer's variable for this slot; None if there is none."""
        key = self.inner_optimizer._var_key(tensorflow_variable(var))
        index, attribute = self._indices().get(key), self._slot_attributes().get(slot_name)
        if index is not None and attribute is not None:
            slots = getattr(self.inner_optimizer, attribute)
            found = slots[key if isinstance(slots, collections.abc.Mapping) else index]
            return found if is_variable(found) else None
        return self._added_slots().get((key, slot_name))

    def _all_slots(self) -> List[Tuple[str, Any]]:
        found = []
        for name, attribute in self._slot_attributes().items():
            slots = getattr(self.inner_optimizer, attribute)
            values = slots.values() if isinstance(slots, collections.abc.Mapping) else slots
            found += [(name, each) for each in values if is_variable(each)]
        return found

    def _listed_variables(self) -> List[Any]:
        return list(self.variables)

    def add_slot(self, var: Any, slot_name: str, initializer: Any = "zeros") -> Any:
        """Add a variable of the same shape to the inner optimizer, and return it."""
        key = (self.inner_optimizer._var_key(tensorflow_variable(var)), slot_name)
        if key not in self._added_slots():
            self._added_slots()[key] = self._new_slot(var, slot_name, initializer)
        return self._added_slots()[key]

    def _slot_attributes(self) -> Dict[str, str]:
        return slot_attributes(self.inner_optimizer, self._indices().keys())

    def _added_slots(self) -> Dict[Any, Any]:
        added: Dict[Any, Any] = self.__dict__.setdefault("_scalekeeper_added_slots", {})
        return added

    def _indices(self) -> Mapping[Any, int]:
        """Return the index of each trainable variable in the inner optimizer's lists, by its key."""
        raise NotImplementedError

    def _new_slot(self, var: Any, slot_name: str, initializer: Any) -> Any:
        raise NotImplementedError

    def add_weight(
        self, name: str, shape: Any = (), dtype: Any = None, initializer: Any = "zeros", **options: Any
    ) -> Any:
        """Add a variable to the inner optimizer, and return it."""
        return self.inner_optimizer.add_variable(shape=shape, dtype=dtype, initializer=initializer, name=name)
