"""TensorFlow 2.0 to 2.3, where the class is ``tf.keras.mixed_precision.experimental.LossScaleOptimizer``.

Keras itself scales the loss and unscales the gradients there, and only for instances of that class. It refuses inner
optimizers that clip, because they would clip scaled gradients; here, gradients are clipped after they are unscaled.
"""

from typing import Any, Callable, ClassVar, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import contextlib
import copy
import sys

import tensorflow as tf

from ...registry._documents import ADVANCE, HOLD
from ...serialization.keras.profile import SKIPPED_STEPS_CHILD
from ...serialization.keras.tf_2_0_to_2_3 import TF_2_0_TO_2_3
from ...serialization.training_state import SKIPS
from .._state.checkpoint_tracking import count_as_restored
from .._step.control_flow import without_autograph
from ..loss_scale_optimizer import LossScaleOptimizer
from . import optimizer_v2
from .aggregation import Aggregation, Pairs, has_replicas, is_overridden, with_methods

_CLIPPING = ("clipnorm", "clipvalue")


class Adapter(optimizer_v2.Adapter):
    """A LossScaleOptimizer for TensorFlow 2.0 to 2.3."""

    _profile = TF_2_0_TO_2_3

    def _wrap(self, optimizer: Any, name: Optional[str]) -> None:
        if self._is_inner_in_object_graph:
            self._require_unwrapped(optimizer)
        with _without_clipping(optimizer):
            # It tracks and delegates; its loss scale is replaced afterwards.
            super(LossScaleOptimizer, self).__init__(optimizer, 1.0)  # type: ignore[call-arg]
        if self._is_inner_in_object_graph:
            self._track_base_optimizer()

    @property
    def _advances_natively(self) -> bool:
        return self._is_inner_in_object_graph

    @property
    def _is_inner_in_object_graph(self) -> bool:
        """Whether Keras's own class replaces the inner optimizer in checkpoints and counts skipped steps: from 2.3."""
        named = (cls for cls in type(self).__mro__ if cls.__name__ == "LossScaleOptimizer")
        return any("_restore_slot_variable" in vars(cls) for cls in named)

    # Gradients

    @property
    def _differentiating(self) -> Any:
        """The optimizer that computes gradients: for one that clips, a copy that does not, as they are still scaled.

        It is a copy, because other threads and the replicas of a strategy may use the inner optimizer meanwhile.
        """
        twin = copy.copy(self._optimizer)
        return twin if _hide_clipping(twin) else self._optimizer

    @without_autograph
    def get_gradients(self, loss: Any, params: Sequence[Any]) -> List[Any]:
        """Return the unscaled gradients of a loss in a graph."""
        return self._clipped(super().get_gradients(loss, params))

    @without_autograph
    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> List[Tuple[Any, Any]]:
        pairs = super()._compute_gradients(loss, var_list, grad_loss, tape)
        return list(zip(self._clipped([grad for grad, _ in pairs]), [variable for _, variable in pairs]))

    @without_autograph
    def _clip_gradients(self, grads: Sequence[Any]) -> List[Any]:
        return self._clipped(grads)

    def _clipped(self, grads: Sequence[Any]) -> List[Any]:
        """Clip unscaled gradients by ``clipnorm`` and ``clipvalue`` of the inner optimizer."""
        norm, value = (getattr(self._optimizer, name, None) for name in _CLIPPING)
        if norm is not None:
            grads = [None if grad is None else tf.clip_by_norm(grad, norm) for grad in grads]
        if value is not None:
            grads = [None if grad is None else tf.clip_by_value(grad, -value, value) for grad in grads]
        return list(grads)

    # Applying

    def _create_all_weights(self, var_list: Sequence[Any]) -> None:
        self._remember(var_list)
        with tf.init_scope():
            _ = self._optimizer.iterations
            self._optimizer._create_hypers()
            self._optimizer._create_slots(var_list)

    @without_autograph
    def _aggregate_gradients(self, grads_and_vars: Any) -> Any:
        return self._optimizer._aggregate_gradients(grads_and_vars)

    def _is_aggregated_by_itself(self) -> bool:
        return self._can_aggregate_first and super()._is_aggregated_by_itself()

    @property
    def _can_aggregate_first(self) -> bool:
        """Whether Keras's own optimizers have a method that aggregates: from 2.2 on."""
        bases = (cls for cls in type(self._optimizer).__mro__ if cls.__name__ == "OptimizerV2")
        return any("_aggregate_gradients" in vars(cls) for cls in bases)

    def _aggregated(self, pairs: Pairs) -> Optional[Aggregation]:
        if self._can_aggregate_first:
            return super()._aggregated(pairs)
        if not has_replicas() or self._applies_by_itself():
            return None
        context = tf.distribute.get_replica_context()
        sums = context.merge_call(
            lambda strategy, pairs: strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, pairs), args=(pairs,)
        )
        return Aggregation(list(zip(sums, [variable for _, variable in pairs])))

    def _applies_by_itself(self) -> bool:
        return any(is_overridden(self._optimizer, name) for name in ("apply_gradients", "_distributed_apply"))

    def _aggregated_by_inner(self, pairs: Pairs) -> Pairs:
        return list(zip(self._optimizer._aggregate_gradients(pairs), [variable for _, variable in pairs]))

    _unchanged: ClassVar[Mapping[str, Callable[..., Any]]] = {
        "_aggregate_gradients": lambda pairs: [grad for grad, _ in pairs]
    }

    def _apply_inner(self, pairs: Pairs, name: Optional[str], aggregate: bool) -> Any:
        if aggregate or self._can_aggregate_first or not has_replicas() or self._applies_by_itself():
            return super()._apply_inner(pairs, name, aggregate)

        def apply_sums(strategy: Any, *args: Any, **kwargs: Any) -> Any:
            return self._optimizer._distributed_apply(_AggregatedStrategy(strategy), *args, **kwargs)

        with with_methods(self._optimizer, {"_distributed_apply": apply_sums}) as optimizer:
            return optimizer.apply_gradients(pairs, name=name)

    @property
    def _HAS_AGGREGATE_GRAD(self) -> bool:  # noqa: N802
        return bool(getattr(self._optimizer, "_HAS_AGGREGATE_GRAD", False))

    # Variables

    @property
    def _create_or_restore_slot_variable(self) -> Any:
        """The method that restores a slot which files of 2.3 or later, or of a bare optimizer, have for this object.

        Up to 2.2 the inner optimizer is in the object graph itself, and its slots must be written for it only. Writing
        tests whether this attribute exists, and reading calls it without a test: only the name of the caller tells
        them apart. These versions do not change any more.
        """
        if not self._is_inner_in_object_graph and _is_called_by("_serialize_slot_variables"):
            raise AttributeError("the slots belong to the inner optimizer")
        return self._optimizer._create_or_restore_slot_variable

    def _lookup_dependency(self, name: str, *cached: Any, **more: Any) -> Any:
        found = super()._lookup_dependency(name, *cached, **more)
        return self._optimizer._lookup_dependency(name) if found is None and self._is_complete() else found

    @property
    def _deferred_dependencies(self) -> Any:
        self._optimizer._maybe_initialize_trackable()
        return self._optimizer._deferred_dependencies

    def _single_restoration_from_checkpoint_position(self, checkpoint_position: Any, **queue: Any) -> Any:
        restored = super()._single_restoration_from_checkpoint_position(checkpoint_position, **queue)
        children = {child.local_name for child in checkpoint_position.object_proto.children}
        if not self._is_inner_in_object_graph and "base_optimizer" in children:
            # as 2.0 to 2.2 write it, or as later versions do
            self.skipped_steps = ADVANCE if "iter" in children else HOLD
            if SKIPS not in children:
                self._monitor.counters.load({})
            if SKIPPED_STEPS_CHILD not in children:
                count_as_restored(checkpoint_position, self._monitor.advance.variable)
        if not self.dynamic and "loss_scale" not in children:  # as later versions write it
            count_as_restored(checkpoint_position, self._graph_policy.trackable)
        return restored

    @property
    def _weights(self) -> Any:
        return self._optimizer._weights


class _AggregatedStrategy:
    """A strategy for gradients that are summed over its replicas: it does not sum them again."""

    def __init__(self, strategy: Any) -> None:
        self._strategy = strategy

    def __getattr__(self, name: str) -> Any:
        return self if name == "extended" else getattr(self._strategy.extended, name)

    def batch_reduce_to(self, reduce_op: Any, pairs: Any) -> Any:
        """Return the gradients, as values that are the same on every replica."""
        return [tf.nest.map_structure(_as_mirrored, grad) for grad, _ in pairs]


def _as_mirrored(value: Any) -> Any:
    if type(value).__name__ != "PerReplica":
        return value
    values = sys.modules[type(value).__module__]
    return values.Mirrored(value.device_map, value.values, value.logical_device)


def _is_called_by(name: str) -> bool:
    """Return whether the caller was called by a function of this name, apart from ``__getattribute__``."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code.co_name == "__getattribute__":
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == name


@contextlib.contextmanager
def _without_clipping(optimizer: Any) -> Iterator[None]:
    """Hide clipping from a constructor that refuses optimizers that clip."""
    hidden = _hide_clipping(optimizer)
    try:
        yield
    finally:
        vars(optimizer).update(hidden)


def _hide_clipping(optimizer: Any) -> Dict[str, Any]:
    """Remove clipping from an optimizer, and return what was removed."""
    attributes = getattr(optimizer, "__dict__", {})
    hidden = {name: attributes.pop(name) for name in _CLIPPING if attributes.get(name) is not None}
    if hidden and hasattr(type(optimizer), "_clip_gradients"):  # from 2.2 on the attributes are always there
        attributes.update(dict.fromkeys(hidden))
    return hidden
