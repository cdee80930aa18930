"""TensorFlow 2.11 to 2.15 and tf_keras: the new optimizers of Keras 2, which have ``update_step`` and no slots."""

from typing import Any, Mapping, Optional, Sequence

import warnings

import tensorflow as tf

from ...serialization.keras.keras2_new_optimizers import KERAS_2_NEW_OPTIMIZERS
from .._state.checkpoint_tracking import DeferredChildren
from .._step.control_flow import with_side_effects
from .aggregation import Aggregation, Pairs, accepts, has_replicas, is_overridden, with_methods
from .keras2_base import Keras2
from .keras_2_10_variable_order import ITERATIONS, correct_variable_order
from .slotless_optimizers import SlotlessAdapter

_SKIP_AGGREGATION = "skip_gradients_aggregation"


class Adapter(SlotlessAdapter, Keras2):
    """A LossScaleOptimizer for the new optimizers of Keras 2."""

    _profile = KERAS_2_NEW_OPTIMIZERS

    def build(self, var_list: Sequence[Any]) -> None:
        """Create the inner optimizer's variables.

        Args:
            var_list: The variables that the optimizer trains.
        """
        self._optimizer.build(var_list)
        self._remember(var_list)

    def _make_variables(self, variables: Sequence[Any]) -> None:
        self._optimizer.build(variables)

    def _gradients_by_inner(self, tape: Any, loss: Any, variables: Sequence[Any]) -> Pairs:
        return list(self._optimizer.compute_gradients(loss, variables, tape=tape))

    def _aggregated(self, pairs: Pairs) -> Optional[Aggregation]:
        applies_by_itself = is_overridden(self._optimizer, "apply_gradients")
        if is_overridden(self._optimizer, "aggregate_gradients") or (has_replicas() and not applies_by_itself):
            return Aggregation(list(self._optimizer.aggregate_gradients(pairs)))
        return None

    def _apply_inner(self, pairs: Pairs, name: Optional[str], aggregate: bool) -> Any:
        return with_side_effects(lambda: self._apply_in_order(pairs, name, aggregate))

    def _apply_in_order(self, pairs: Pairs, name: Optional[str], aggregate: bool) -> Any:
        options = {} if name is None else {"name": name}  # before 2.11, it is not an argument
        is_accepted = accepts(self._optimizer, _SKIP_AGGREGATION)
        skipped = {_SKIP_AGGREGATION: not aggregate} if any(is_accepted) else {}
        if aggregate or is_accepted.by_name:
            return self._optimizer.apply_gradients(pairs, **options, **skipped)
        # A method that takes any keywords may ignore them.
        with with_methods(self._optimizer, {"aggregate_gradients": list}) as optimizer:
            return optimizer.apply_gradients(pairs, **options, **skipped)

    # Loading .weights.h5

    @property
    def name(self) -> str:
        """The name of the inner optimizer, which Keras uses in messages."""
        name: str = self._optimizer.name
        return name

    def load_own_variables(self, store: Any) -> None:
        """Load the numbered variables of a ``.weights.h5`` file, if the inner optimizer has its variables."""
        if len(store.keys()) == len(self.variables):
            super().load_own_variables(store)  # type: ignore[misc]
            return
        warnings.warn(
            f"The file holds {len(store.keys())} variables of the optimizer {self.name}, which has "
            f"{len(self.variables)} so far: they were not loaded. Call scalekeeper.restore(model, path) instead",
            stacklevel=2,
        )

    # Restoring checkpoints of all versions

    def _lookup_dependency(self, name: str, *cached: Any, **more: Any) -> Any:
        return None if name == ITERATIONS else super()._lookup_dependency(name, *cached, **more)

    @property
    def _deferred_dependencies(self) -> Any:
        return DeferredChildren(self._owner)

    def _owner(self, name: str, position: Any) -> Any:
        if name == ITERATIONS:
            correct_variable_order(position, self._optimizer)
        return self._optimizer

    def _indices(self) -> Mapping[Any, int]:
        indices: Mapping[Any, int] = getattr(self._optimizer, "_index_dict", {})
        return indices

    def _new_slot(self, var: Any, slot_name: str, initializer: Any) -> Any:
        value = tf.keras.initializers.get(initializer)(var.shape, dtype=var.dtype)
        return self._optimizer.add_variable_from_reference(var, slot_name, initial_value=value)
