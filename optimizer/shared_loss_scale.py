"""SharedLossScale: one loss scale for several optimizers, updated once in each step."""

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import threading

import tensorflow as tf

from ..lossscales.contract import has_pure_step
from ..lossscales.report import Report
from ..registry._plugins import loss_scales
from ..registry.errors import ArgumentError, UnsupportedOperationError
from ._step.control_flow import runs_side_effects, without_autograph
from ._step.graph_state import GraphPolicy, hold_in_graph
from ._step.replicas import can_merge_replicas
from ._step.unscale import GET_UNSCALED_GRADIENTS

__all__ = ["SharedLossScale"]

APPLY_GRADIENTS = "apply_gradients"
# field of a report → how the values of all optimizers become one
_COMBINE = {"finite": tf.reduce_all, "largest_magnitude": tf.reduce_max, "zero_share": tf.reduce_mean}


class SharedLossScale:
    """One loss scale for several optimizers, such as the two of a GAN.

    Give it to each :class:`LossScaleOptimizer` instead of a policy. Each optimizer skips a step for itself, if its own
    gradients are not finite. The loss scale is updated once, at the end of the step, by the gradients of all of them.

    Args:
        loss_scale: A spec for :func:`scalekeeper.resolve`: ``"dynamic"``, a number, a mapping, a registered name, the
            class of a policy or a policy.

    Attributes:
        loss_scale: The policy, which is also ``loss_scale`` of each optimizer.

    Raises:
        ArgumentError: If the policy has its own ``update``, which decides and updates at once.
        InvalidSpecError: If ``loss_scale`` is invalid.

    Versions:
        Every version, in eager mode and in ``tf.function``. A graph of TensorFlow 1 has no such step.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> shared = scalekeeper.SharedLossScale({"name": "dynamic", "increment_period": 1})
        >>> first = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1), shared)
        >>> second = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1), shared)
        >>> variables = [tf.Variable(1.0), tf.Variable(1.0)]
        >>> with tf.GradientTape(persistent=True) as tape:
        ...     losses = [first.get_scaled_loss(variables[0] * 2), second.get_scaled_loss(variables[1] * 2)]
        >>> with shared.step():
        ...     for optimizer, loss, variable in zip((first, second), losses, variables):
        ...         grads = optimizer.get_unscaled_gradients(tape.gradient(loss, [variable]))
        ...         _ = optimizer.apply_gradients(zip(grads, [variable]))
        >>> shared.loss_scale.state()
        {'current_loss_scale': 65536.0, 'good_steps': 0}
    """

    __module__ = "scalekeeper"  # its public address

    def __init__(self, loss_scale: Any = "dynamic") -> None:
        policy = loss_scales.resolve(loss_scale)
        if not has_pure_step(policy):
            raise ArgumentError(
                f"{type(policy).__name__} decides and updates in update(), so several optimizers can't decide by "
                "themselves and update it once: implement next_state and should_apply instead"
            )
        self.loss_scale = policy
        self._thread = threading.local()  # replicas of a strategy run in threads, each with its own step

    @without_autograph
    def step(self) -> "SharedStep":
        """Return the context manager of one step: its end updates the loss scale.

        Inside, each optimizer unscales and applies its gradients at most once. Losses may be scaled before it.

        Returns:
            The context manager.

        Raises:
            UnsupportedOperationError: At the end, if no optimizer has applied gradients. Inside, from an optimizer that
                unscales or applies a second time; or that does so outside of the step, or in another function.
        """
        return SharedStep(self)

    def _current_step(self, optimizer: Any, method: str) -> "SharedStep":
        """Return the step that this thread is in."""
        step: Optional[SharedStep] = getattr(self._thread, "step", None)
        name = type(optimizer.inner_optimizer).__name__
        if step is None:
            raise UnsupportedOperationError(
                f"{method} of the LossScaleOptimizer of {name} is called outside of a step of its SharedLossScale: "
                "call it inside `with shared.step():`, which updates the loss scale at its end; with a strategy, in "
                "the function that the replicas run"
            )
        if step.graph is not _current_graph():
            raise UnsupportedOperationError(
                f"{method} of the LossScaleOptimizer of {name} is called in another function than the `with "
                "shared.step():` around it, or in a branch or loop: put both into the same function, branch or loop"
            )
        return step

    def _hold(self, held: GraphPolicy) -> GraphPolicy:
        """Return what an optimizer uses of the policy, given what ``hold_in_graph`` returned."""
        return _SharedPolicy(held, self)

    def __reduce__(self) -> Tuple[Any, ...]:  # for copies, which share nothing with this object
        return type(self), (self.loss_scale,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.loss_scale!r})"


class SharedStep:
    """One step of all optimizers that share a loss scale.

    Attributes:
        graph: The graph that the step is traced in; None in eager mode.
        reports: The reports on the gradients of the optimizers that have applied theirs.
    """

    def __init__(self, shared: SharedLossScale) -> None:
        self.graph = _current_graph()
        self.reports: List[Report] = []
        self._shared = shared
        self._called: Dict[str, List[Any]] = {GET_UNSCALED_GRADIENTS: [], APPLY_GRADIENTS: []}  # by which optimizers

    def __enter__(self) -> "SharedStep":
        thread = self._shared._thread
        if getattr(thread, "step", None) is not None:
            raise UnsupportedOperationError(
                "a step of this SharedLossScale begins inside another one: end that one before, or leave this one out"
            )
        if not runs_side_effects():
            raise UnsupportedOperationError(
                "a SharedLossScale works in eager mode and in a tf.function, and not in a graph of TensorFlow 1"
            )
        thread.step = self
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._shared._thread.step = None
        if kind is None:
            self._update()

    def note(self, optimizer: Any, method: str) -> None:
        """Record that an optimizer unscales or applies its gradients; raise an error if it has done so before."""
        for earlier in (method, APPLY_GRADIENTS):
            if any(each is optimizer for each in self._called[earlier]):
                raise UnsupportedOperationError(
                    f"{method} of the LossScaleOptimizer of {type(optimizer.inner_optimizer).__name__} is called after "
                    f"its {earlier} in the same step of its SharedLossScale: call each of them once, with all "
                    "gradients of the optimizer, or begin another step"
                )
        self._called[method].append(optimizer)

    @without_autograph
    def _update(self) -> None:
        if not self._called[APPLY_GRADIENTS]:
            raise UnsupportedOperationError(
                "no optimizer has applied gradients in a step of this SharedLossScale: create the optimizers with "
                "LossScaleOptimizer(…, shared), and call their apply_gradients inside `with shared.step():`"
            )
        if tf.distribute.has_strategy() and can_merge_replicas():
            # The decisions were taken where the replicas meet, so the reports are those of one replica's object.
            tf.distribute.get_replica_context().merge_call(lambda strategy: self._update_state())
        else:
            self._update_state()

    def _update_state(self) -> None:
        policy = self._shared.loss_scale
        if self.reports:  # none if all layers are frozen
            fields = {name: [getattr(report, name) for report in self.reports] for name in policy.needs}
            combined = {name: _COMBINE[name](tf.stack(values)) for name, values in fields.items()}
            hold_in_graph(policy).state.step(Report(**combined))


class _SharedPolicy(GraphPolicy):
    """A policy that an optimizer does not update by itself."""

    def __init__(self, held: GraphPolicy, shared: SharedLossScale) -> None:
        super().__init__(held.policy, held.state)
        self.constructed_from = shared

    def note_unscaling(self, optimizer: Any, method: str) -> None:
        self.constructed_from._current_step(optimizer, method).note(optimizer, method)

    def in_step(self, optimizer: Any) -> Any:
        step = self.constructed_from._current_step(optimizer, APPLY_GRADIENTS)
        step.note(optimizer, APPLY_GRADIENTS)
        return _PolicyInStep(self, step)


class _PolicyInStep(GraphPolicy):
    """A policy in one step: decides by the gradients of one optimizer, and leaves their report to the step."""

    def __init__(self, held: GraphPolicy, step: SharedStep) -> None:
        super().__init__(held.policy, held.state)
        self._step = step

    def decide(self, grads: Sequence[Any], report: Mapping[str, Any]) -> Tuple[Any, Any]:
        made = Report(**report)
        self._step.reports.append(made)
        return tf.no_op(), self.state.should_apply(made)


def _current_graph() -> Any:
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
