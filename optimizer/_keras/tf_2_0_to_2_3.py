"""TensorFlow 2.0 to 2.3, where the class is ``tf.keras.mixed_precision.experimental.LossScaleOptimizer``.

Keras scales and unscales by itself there, and only for instances of that class. It refuses optimizers that clip, and
those clip scaled gradients: here they are clipped after they are unscaled.
"""

from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import contextlib
import copy
import sys

import tensorflow as tf

from ...serialization import _skip_record
from ...serialization.keras.profile import SKIPPED_STEPS_CHILD
from ...serialization.keras.tf_2_0_to_2_3 import TF_2_0_TO_2_3
from .._state.checkpoint_tracking import count_as_restored
from .._step import gate
from ..loss_scale_optimizer import LossScaleOptimizer
from . import optimizer_v2

_CLIPPING = ("clipnorm", "clipvalue")


class Adapter(optimizer_v2.Adapter):
    """The parts of a LossScaleOptimizer that depend on TensorFlow 2.0 to 2.3."""

    _profile = TF_2_0_TO_2_3

    def _wrap(self, optimizer: Any, name: Optional[str]) -> None:
        optimizer._maybe_initialize_trackable()
        if self._is_inner_in_object_graph and optimizer._lookup_dependency("loss_scale") is not None:
            raise ValueError(
                f"{type(optimizer).__name__} is wrapped by a LossScaleOptimizer already, and has one place for a loss "
                "scale: hand that wrapper on, or make another optimizer"
            )
        with _without_clipping(optimizer):
            # what it tracks and delegates; its loss scale is replaced by ours
            super(LossScaleOptimizer, self).__init__(optimizer, 1.0)  # type: ignore[call-arg]
        if self._is_inner_in_object_graph:
            self._find_inner_of_old_files()

    @property
    def _advances_natively(self) -> bool:
        return self._is_inner_in_object_graph

    @property
    def _is_inner_in_object_graph(self) -> bool:
        """Since 2.3, TensorFlow's own class takes the inner optimizer's place there, and counts skipped steps."""
        named = (cls for cls in type(self).__mro__ if cls.__name__ == "LossScaleOptimizer")
        return any("_restore_slot_variable" in vars(cls) for cls in named)

    # Gradients

    @property
    def _differentiating(self) -> Any:
        """The inner optimizer; for one that clips a copy that does not, as the gradients are still scaled.

        A copy, because the inner optimizer may be in use elsewhere meanwhile: in other threads, and in a strategy's
        replicas, which take turns wherever they meet.
        """
        twin = copy.copy(self._optimizer)
        return twin if _hide_clipping(twin) else self._optimizer

    @gate.as_written
    def get_gradients(self, loss: Any, params: Sequence[Any]) -> List[Any]:
        """The unscaled gradients of a loss in a graph."""
        return self._clipped(super().get_gradients(loss, params))

    @gate.as_written
    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> List[Tuple[Any, Any]]:
        pairs = super()._compute_gradients(loss, var_list, grad_loss, tape)
        return list(zip(self._clipped([grad for grad, _ in pairs]), [variable for _, variable in pairs]))

    @gate.as_written
    def _clip_gradients(self, grads: Sequence[Any]) -> List[Any]:
        return self._clipped(grads)

    def _clipped(self, grads: Sequence[Any]) -> List[Any]:
        """Clip unscaled gradients as the inner optimizer asks."""
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

    @gate.as_written
    def _aggregate_gradients(self, grads_and_vars: Any) -> Any:
        return self._optimizer._aggregate_gradients(grads_and_vars)

    @property
    def _HAS_AGGREGATE_GRAD(self) -> bool:  # noqa: N802
        return bool(getattr(self._optimizer, "_HAS_AGGREGATE_GRAD", False))

    # Variables

    @property
    def _create_or_restore_slot_variable(self) -> Any:
        """Restores a slot of the inner optimizer that a file of 2.3 or later, or of a bare optimizer, has of this one.

        Up to 2.2 the inner optimizer is in the object graph itself, and its slots must be written with that one only.
        Who writes asks whether this is here, and who reads calls it without asking: nothing but their name tells them
        apart. Those versions don't change any more.
        """
        if not self._is_inner_in_object_graph and _is_called_by("_serialize_slot_variables"):
            raise AttributeError("the slots are the inner optimizer's")
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
            self.skipped_steps = gate.ADVANCE if "iter" in children else gate.HOLD
            if _skip_record.NAME not in children:
                self._skips.load({})
            if SKIPPED_STEPS_CHILD not in children:
                count_as_restored(checkpoint_position, self._skipping.variable)
        if not self.dynamic and "loss_scale" not in children:  # as later versions write it
            count_as_restored(checkpoint_position, gate.hold_in_graph(self._policy))
        return restored

    @property
    def _weights(self) -> Any:
        return self._optimizer._weights


def _is_called_by(name: str) -> bool:
    """Whether a function of this name asked for an attribute: the caller's caller, or behind ``__getattribute__``."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code.co_name == "__getattribute__":
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == name


@contextlib.contextmanager
def _without_clipping(optimizer: Any) -> Iterator[None]:
    """Hide clipping from a constructor that would refuse to wrap the optimizer."""
    hidden = _hide_clipping(optimizer)
    try:
        yield
    finally:
        vars(optimizer).update(hidden)


def _hide_clipping(optimizer: Any) -> Dict[str, Any]:
    """Have an optimizer not clip; gives what it had."""
    attributes = getattr(optimizer, "__dict__", {})
    hidden = {name: attributes.pop(name) for name in _CLIPPING if attributes.get(name) is not None}
    if hidden and hasattr(type(optimizer), "_clip_gradients"):  # from 2.2 on the attributes are always there
        attributes.update(dict.fromkeys(hidden))
    return hidden
