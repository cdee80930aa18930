"""What every generation of Keras shares: scale the loss, unscale the gradients, decide, and gate the step."""

from typing import Any, Callable, List, Sequence, TypeVar, cast

import tensorflow as tf

from ..lossscales.contract import LossScale
from ..lossscales.report import Report
from ..registry.documents import SKIPPED_STEPS
from . import gradients
from .graph_state import GraphState

NATIVE, ADVANCE, HOLD = SKIPPED_STEPS

Function = TypeVar("Function", bound=Callable[..., Any])


def as_written(function: Function) -> Function:
    """Keep AutoGraph from rewriting a function, and all that it calls, inside a user's traced step."""
    return cast(Function, tf.autograph.experimental.do_not_convert(function))


def hold_in_graph(policy: Any) -> Any:
    """Move a policy's state into variables, and return what a checkpoint has to track."""
    if has_pure_step(policy):
        memory = policy._remembered()
        return memory if isinstance(memory, GraphState) else policy.move_state(GraphState)
    if hasattr(policy, "_track_trackable"):
        return policy  # TensorFlow's own LossScale, or a class derived from it
    holder = tf.Module(name="loss_scale")
    for name, value in vars(policy).items():
        if isinstance(value, tf.Variable):
            setattr(holder, name, value)
    return holder


def has_pure_step(policy: Any) -> bool:
    return isinstance(policy, LossScale) and type(policy).update is LossScale.update


def require_supported_strategy() -> None:
    """Loss scaling needs a strategy whose replicas can agree on a decision."""
    strategy = tf.distribute.get_strategy()
    supported = (
        tf.distribute.MirroredStrategy,
        tf.distribute.OneDeviceStrategy,
        tf.distribute.experimental.MultiWorkerMirroredStrategy,
    )
    if tf.distribute.has_strategy() and not isinstance(strategy, supported):
        raise ValueError(
            f"loss scaling does not work under {type(strategy).__name__}: "
            f"use {', '.join(each.__name__ for each in supported)}, or no strategy"
        )


def gated_step(policy: Any, grads: Sequence[Any], apply: Callable[[List[Any]], Any], skip: Callable[[], Any]) -> Any:
    """Update the loss scale by these gradients, and apply them if the policy says so.

    Called in a replica context, by all replicas at once. They take one decision: a bad gradient on one of them makes
    all of them skip. ``apply(grads)`` runs in each replica's context, ``skip()`` once.
    """
    report = gradients.measure(grads, policy.needs) if has_pure_step(policy) else {}
    if not tf.distribute.has_strategy():
        update_op, should_apply = _decide(policy, grads, Report(**report))
        return _gate(update_op, should_apply, lambda: apply(list(grads)), skip)

    context = tf.distribute.get_replica_context()
    shares = {name: _share_of_replica(context, value) for name, value in report.items()}

    def across_replicas(strategy: Any, grads: Any, shares: Any) -> Any:
        agreed = {name: _agreed(strategy, name, share) for name, share in shares.items()}
        update_op, should_apply = _decide(policy, grads, Report(**agreed))
        in_each_replica = strategy.extended.call_for_each_replica
        return _gate(update_op, should_apply, lambda: in_each_replica(_listed(apply), args=tuple(grads)), skip)

    return context.merge_call(across_replicas, args=(tuple(grads), shares))


def _listed(apply: Callable[[List[Any]], Any]) -> Callable[..., Any]:
    return lambda *grads: apply(list(grads))


def _decide(policy: Any, grads: Sequence[Any], report: Report) -> Any:
    """The op that updates the loss scale, and whether the gradients are applied."""
    return policy._remembered().step(report) if has_pure_step(policy) else policy.update(list(grads))


def _share_of_replica(context: Any, value: Any) -> Any:
    """A vector with this replica's value in its own place: the sum over all replicas holds the values of all."""
    places = tf.range(context.num_replicas_in_sync)
    return tf.where(tf.equal(places, context.replica_id_in_sync_group), tf.cast(value, tf.float32), 0.0)


def _agreed(strategy: Any, name: str, share: Any) -> Any:
    """What all replicas know together. Summing is the one reduction that every strategy has."""
    values = strategy.reduce(tf.distribute.ReduceOp.SUM, share, axis=None)
    if name == "finite":
        return tf.reduce_all(values > 0.5)
    return tf.reduce_max(values) if name == "largest_magnitude" else tf.reduce_mean(values)


def _gate(update_op: Any, should_apply: Any, apply: Callable[[], Any], skip: Callable[[], Any]) -> Any:
    """Apply or skip; in a graph, the op that does all of it."""
    if should_apply is True:
        applied = _operations(apply())
    else:
        applied = [gradients.unlowered_cond(should_apply, _as_branch(apply), _as_branch(skip))]
    return None if tf.executing_eagerly() else tf.group(update_op, *applied)


def _as_branch(run: Callable[[], Any]) -> Callable[[], Any]:
    """Both branches of a conditional return the same thing: a value that stands for having run."""

    def branch() -> Any:
        with tf.control_dependencies(_operations(run())):
            return tf.constant(True)

    return branch


def _operations(done: Any) -> List[Any]:
    return [] if tf.executing_eagerly() else [each for each in tf.nest.flatten(done) if each is not None]
