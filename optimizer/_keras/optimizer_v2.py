"""TensorFlow 2.4 to 2.10, and the ``legacy`` optimizers after that: inner optimizers of the class OptimizerV2.

Iterations, weights, slots and hyper-parameters are inherited from Keras's own class, which delegates them to the inner
optimizer. Gradients are scaled, unscaled and applied here.
"""

from typing import Any, Callable, ClassVar, List, Mapping, Optional, Sequence, Tuple

import tensorflow as tf

from ...registry.errors import ArgumentError
from ...serialization.keras.optimizer_v2 import OPTIMIZER_V2
from .._state.checkpoint_tracking import BaseOptimizerChild
from .._step.control_flow import without_autograph
from .aggregation import Aggregation, Pairs, accepts, has_replicas, is_of_keras, is_overridden, with_methods
from .keras2_base import Keras2

_UNAGGREGATED = "_transform_unaggregated_gradients"
_AGGREGATE = "experimental_aggregate_gradients"


class Adapter(Keras2):
    """A LossScaleOptimizer for inner optimizers of the class OptimizerV2."""

    _profile = OPTIMIZER_V2

    def _wrap(self, optimizer: Any, name: Optional[str]) -> None:
        self._require_unwrapped(optimizer)
        super()._wrap(optimizer, name)
        self._track_base_optimizer()

    def _require_unwrapped(self, optimizer: Any) -> None:
        """Raise :class:`ArgumentError` if a LossScaleOptimizer has taken the optimizer's position in checkpoints."""
        optimizer._maybe_initialize_trackable()
        if optimizer._lookup_dependency("base_optimizer") is not None:
            raise ArgumentError(
                f"{type(optimizer).__name__} is wrapped by a LossScaleOptimizer already, and can have one loss scale: "
                "use that LossScaleOptimizer, or create another inner optimizer"
            )

    def _track_base_optimizer(self) -> None:
        self._track_trackable(BaseOptimizerChild(self), "base_optimizer", overwrite=True)  # type: ignore[attr-defined]

    # Gradients

    @property
    def _differentiating(self) -> Any:
        """The optimizer that computes the gradients of the scaled loss."""
        return self._optimizer

    @without_autograph
    def get_gradients(self, loss: Any, params: Sequence[Any]) -> List[Any]:
        """Return the unscaled gradients of a loss in a graph."""
        return self.get_unscaled_gradients(self._differentiating.get_gradients(self.get_scaled_loss(loss), params))

    @without_autograph
    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> List[Tuple[Any, Any]]:
        if tape is None:
            pairs = self._differentiating._compute_gradients(self.get_scaled_loss(loss), var_list, grad_loss)
        else:
            with tape:
                scaled_loss = self.get_scaled_loss(loss)
            pairs = self._differentiating._compute_gradients(scaled_loss, var_list, grad_loss, tape=tape)
        grads = self.get_unscaled_gradients([grad for grad, _ in pairs])
        return list(zip(grads, [variable for _, variable in pairs]))

    # Applying

    def _make_variables(self, variables: Sequence[Any]) -> None:
        self._create_all_weights(variables)

    def _create_all_weights(self, var_list: Sequence[Any]) -> None:
        self._remember(var_list)
        self._optimizer._create_all_weights(var_list)

    def _require_can_apply(self, aggregate: bool) -> None:
        if aggregate or self._can_leave_out_aggregation():
            return
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise ArgumentError(
                f"{type(self._optimizer).__name__} of TensorFlow {tf.__version__} can't apply gradients without "
                "aggregating them: leave out experimental_aggregate_gradients=False, or use TensorFlow 2.2 or newer"
            )

    def _can_leave_out_aggregation(self) -> bool:
        return any(accepts(self._optimizer, _AGGREGATE)) or self._is_aggregated_by_itself()

    def _is_aggregated_by_itself(self) -> bool:
        """Return whether the inner optimizer aggregates gradients in another manner than Keras does."""
        aggregator = getattr(self._optimizer, "gradient_aggregator", None)
        if aggregator is not None and not is_of_keras(aggregator):
            return True
        return any(is_overridden(self._optimizer, name) for name in ("_aggregate_gradients", _UNAGGREGATED))

    def _aggregated(self, pairs: Pairs) -> Optional[Aggregation]:
        if self._is_aggregated_by_itself() or (
            has_replicas() and not is_overridden(self._optimizer, "apply_gradients")
        ):
            return Aggregation(self._aggregated_by_inner(pairs))
        return None

    def _aggregated_by_inner(self, pairs: Pairs) -> Pairs:
        pairs = self._optimizer._transform_unaggregated_gradients(pairs)
        return list(self._optimizer._aggregate_gradients(pairs))

    # for gradients that are aggregated: what replaces the methods that aggregate
    _unchanged: ClassVar[Mapping[str, Callable[..., Any]]] = {"_aggregate_gradients": list, _UNAGGREGATED: list}

    def _apply_inner(self, pairs: Pairs, name: Optional[str], aggregate: bool) -> Any:
        if aggregate or not self._can_leave_out_aggregation():
            return self._optimizer.apply_gradients(pairs, name=name)
        is_accepted = accepts(self._optimizer, _AGGREGATE)
        options = {_AGGREGATE: False} if any(is_accepted) else {}
        if is_accepted.by_name:
            return self._optimizer.apply_gradients(pairs, name=name, **options)
        # A method that takes any keywords may ignore them.
        with with_methods(self._optimizer, self._unchanged) as optimizer:
            return optimizer.apply_gradients(pairs, name=name, **options)
