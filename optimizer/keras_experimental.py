"""TensorFlow 2.0 to 2.3: an instance of ``tf.keras.mixed_precision.experimental.LossScaleOptimizer``.

Keras scales and unscales by itself, and only for instances of that class, so ours derives from it. What it delegates to
the inner optimizer (iterations, weights, learning rate) is inherited; what it does with gradients is ours.
"""

from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import contextlib
import inspect

import tensorflow as tf

from ..registry.documents import SKIPPED_STEPS
from ..registry.plugins import loss_scales
from . import core
from .configuration import config_of_policy, plain, policy_of_config
from .unscaling import scaled, unscaled

_Upstream: Any = tf.keras.mixed_precision.experimental.LossScaleOptimizer
_CLIPPING = ("clipnorm", "clipvalue")


class LossScaleOptimizer(_Upstream):  # type: ignore[misc]
    """An optimizer that scales the loss so that float16 gradients neither vanish nor overflow.

    ``optimizer`` is any Keras optimizer. ``loss_scale`` is what :func:`scalekeeper.resolve` takes: ``"dynamic"``, a
    number, a mapping, a registered name, a policy's class or object, or a ``LossScale`` object of TensorFlow's own.
    ``skipped_steps`` says what a skipped step does to ``iterations``: ``"advance"``, ``"hold"``, or ``"native"``, as
    TensorFlow's own class does on the installed version.
    """

    def __init__(self, optimizer: Any, loss_scale: Any, skipped_steps: str = core.NATIVE) -> None:
        if isinstance(optimizer, _Upstream):
            raise ValueError(f"{type(optimizer).__name__} is a LossScaleOptimizer already: wrap its inner optimizer")
        if skipped_steps not in SKIPPED_STEPS:
            raise ValueError(f"skipped_steps is {skipped_steps!r}; valid: {', '.join(SKIPPED_STEPS)}")
        core.require_supported_strategy()
        policy = loss_scales.resolve(loss_scale)
        with _without_clipping(optimizer):
            super().__init__(optimizer, 1.0)  # what it tracks and delegates; its loss scale is replaced by ours
        self._loss_scale = policy
        self._skipped_steps = skipped_steps
        self._track_trackable(core.hold_in_graph(policy), "loss_scale", overwrite=True)

    @property
    def inner_optimizer(self) -> Any:
        """The wrapped optimizer."""
        return self._optimizer

    @property
    def loss_scale(self) -> Any:
        """The policy; calling it gives the current scale."""
        return self._loss_scale

    # Scaling

    @core.as_written
    def get_scaled_loss(self, loss: Any) -> Any:
        """The loss, or what a callable returns, times the current scale."""
        if callable(loss):
            return lambda: scaled(loss(), self._loss_scale())
        return scaled(loss, self._loss_scale())

    @core.as_written
    def get_unscaled_gradients(self, grads: Sequence[Any]) -> List[Any]:
        """The gradients divided by the current scale; None stays None."""
        return unscaled(grads, self._loss_scale())

    @core.as_written
    def get_gradients(self, loss: Any, params: Sequence[Any]) -> List[Any]:
        """The unscaled gradients of a loss in a graph."""
        with _without_clipping(self._optimizer):
            grads = self._optimizer.get_gradients(self.get_scaled_loss(loss), params)
        return self._clipped(self.get_unscaled_gradients(grads))

    @core.as_written
    def _compute_gradients(self, loss: Any, var_list: Any, grad_loss: Any = None) -> List[Tuple[Any, Any]]:
        with _without_clipping(self._optimizer):
            pairs = self._optimizer._compute_gradients(self.get_scaled_loss(loss), var_list, grad_loss)
        grads = self._clipped(self.get_unscaled_gradients([grad for grad, _ in pairs]))
        return list(zip(grads, [variable for _, variable in pairs]))

    @core.as_written
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

    @core.as_written
    def apply_gradients(
        self,
        grads_and_vars: Any,
        name: Optional[str] = None,
        experimental_aggregate_gradients: bool = True,
        skip_gradients_aggregation: bool = False,
    ) -> Any:
        """Apply unscaled gradients if the policy says so, and update the loss scale.

        ``skip_gradients_aggregation=True`` is how later versions say ``experimental_aggregate_gradients=False``.
        """
        if tf.distribute.in_cross_replica_context():
            raise ValueError("apply_gradients must be called in a replica context: inside strategy.run, not around it")
        core.require_supported_strategy()
        grads, variables = _separated(grads_and_vars)
        options = self._apply_options(name, experimental_aggregate_gradients and not skip_gradients_aggregation)
        self._create_all_weights(variables)

        def apply(grads: List[Any]) -> Any:
            return self._optimizer.apply_gradients(list(zip(grads, variables)), **options)

        touched = [*variables, *self._optimizer.weights, *self._hyper_variables()]
        return core.gated_step(self._loss_scale, grads, touched, apply, self._skip)

    def _hyper_variables(self) -> List[Any]:
        return [value for value in self._optimizer._hyper.values() if isinstance(value, tf.Variable)]

    def _apply_options(self, name: Optional[str], aggregate: bool) -> Dict[str, Any]:
        if aggregate:
            return {"name": name}
        if "experimental_aggregate_gradients" in inspect.signature(self._optimizer.apply_gradients).parameters:
            return {"name": name, "experimental_aggregate_gradients": False}
        if tf.distribute.get_strategy().num_replicas_in_sync == 1:
            return {"name": name}  # nothing to aggregate
        raise ValueError(
            f"{type(self._optimizer).__name__} of TensorFlow {tf.__version__} can't apply gradients without "
            "aggregating them: leave out experimental_aggregate_gradients=False, or use TensorFlow 2.2 or newer"
        )

    def _skip(self) -> Any:
        advances = self._skipped_steps == core.ADVANCE or (self._skipped_steps == core.NATIVE and _UPSTREAM_IS_INNER)
        return self._optimizer.iterations.assign_add(1) if advances else None

    def _create_all_weights(self, var_list: Sequence[Any]) -> None:
        """Make the inner optimizer's variables before the conditional, where none can be made."""
        with tf.init_scope():
            _ = self._optimizer.iterations
            self._optimizer._create_hypers()
            self._optimizer._create_slots(var_list)

    @core.as_written
    def _aggregate_gradients(self, grads_and_vars: Any) -> Any:
        return self._optimizer._aggregate_gradients(grads_and_vars)

    @property
    def _HAS_AGGREGATE_GRAD(self) -> bool:  # noqa: N802
        return bool(getattr(self._optimizer, "_HAS_AGGREGATE_GRAD", False))

    # Slots and weights

    def get_slot(self, var: Any, slot_name: str) -> Any:
        """The inner optimizer's slot variable."""
        return self._optimizer.get_slot(var, slot_name)

    def add_slot(self, var: Any, slot_name: str, initializer: Any = "zeros") -> Any:
        """Add a slot variable to the inner optimizer."""
        return self._optimizer.add_slot(var, slot_name, initializer)

    @property
    def _create_or_restore_slot_variable(self) -> Any:
        """Up to 2.2 the inner optimizer is in the object graph itself: a checkpoint must find its slots once only."""
        if not _UPSTREAM_IS_INNER:
            raise AttributeError("the slots are the inner optimizer's")
        return super()._create_or_restore_slot_variable

    def add_weight(self, *args: Any, **kwargs: Any) -> Any:
        """Add a variable to the inner optimizer."""
        return self._optimizer.add_weight(*args, **kwargs)

    @property
    def _weights(self) -> Any:
        return self._optimizer._weights

    # Configuration

    def get_config(self) -> Dict[str, Any]:
        """The inner optimizer and the policy, as plain values that JSON can hold."""
        config = {
            "optimizer": plain(tf.keras.optimizers.serialize(self._optimizer)),
            "loss_scale": config_of_policy(self._loss_scale),
        }
        if self._skipped_steps != core.NATIVE:
            config["skipped_steps"] = self._skipped_steps
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Optional[Mapping[str, Any]] = None) -> Any:
        """Make an optimizer from what ``get_config`` gave."""
        inner = tf.keras.optimizers.deserialize(dict(config["optimizer"]), custom_objects=custom_objects)
        policy = policy_of_config(config["loss_scale"], custom_objects or {})
        return cls(inner, policy, config.get("skipped_steps", core.NATIVE))


def _separated(grads_and_vars: Any) -> Tuple[List[Any], List[Any]]:
    """Gradients and variables of the pairs that have a gradient, or the documented errors."""
    try:
        pairs = [(grad, variable) for grad, variable in grads_and_vars]
    except (TypeError, ValueError):
        raise TypeError(f"grads_and_vars must hold (gradient, variable) pairs, not {grads_and_vars!r}") from None
    kept = [(grad, variable) for grad, variable in pairs if grad is not None]
    if not kept:
        named = [getattr(variable, "name", repr(variable)) for _, variable in pairs]
        raise ValueError(f"No gradients provided for any variable: {named}.")
    return [grad for grad, _ in kept], [variable for _, variable in kept]


@contextlib.contextmanager
def _without_clipping(optimizer: Any) -> Iterator[None]:
    """Hide clipping from code that would clip gradients while they are scaled, or refuse to wrap the optimizer."""
    hidden = {name: vars(optimizer).pop(name) for name in _CLIPPING if name in getattr(optimizer, "__dict__", {})}
    keeps_none = bool(hidden) and hasattr(type(optimizer), "_clip_gradients")
    if keeps_none:  # from 2.2 on the attributes are always there
        vars(optimizer).update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        if hidden:
            vars(optimizer).update(hidden)


# Since 2.3, TensorFlow's own class takes the inner optimizer's place in the object graph, and counts skipped steps.
_UPSTREAM_IS_INNER = "_restore_slot_variable" in vars(_Upstream)
