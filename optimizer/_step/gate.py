"""Apply or skip a step: which strategies allow one, and how the decision is taken with and without replicas."""

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf

from ...registry.errors import StrategyError
from .gradient_stats import measure, nonfinite_flags
from .replicas import can_merge_replicas, combine_shares, shares_of_replica
from .unscale import Bucket, bucket_gradients, gradients_of

# Prefixes of operations that wait for other workers: TensorFlow's, Horovod's, BytePS's
_COMMUNICATING = ("Collective", "Nccl", "Horovod", "Byteps")


class Step(NamedTuple):
    """One call of ``apply_gradients`` in one replica.

    Attributes:
        policy: The policy, as ``hold_in_graph`` returned it.
        grads: The unscaled gradients that ``apply`` gets: this replica's, or those of all replicas, aggregated.
        apply: Applies a list of gradients; runs in the context of each replica.
        skip: Runs once if the step is skipped. It takes, for each gradient, the number of replicas on which it was
            non-finite; or None, unless ``attributes_overflows`` is set.
        watched: The variables that fields of the report are written to, by field.
        attributes_overflows: Whether ``skip`` needs to know which gradients were non-finite.
        own_grads: The unscaled gradients of this replica before they were aggregated, which statistics are measured of;
            None if they are ``grads``.
        also_checked: Gradients from which ``grads`` were computed by operations that can hide non-finite numbers, such
            as clipping: as many as ``grads``, and they must be finite, too.
        returns_decision: Whether the step returns the decision instead of the operation.
    """

    policy: Any
    grads: Sequence[Any]
    apply: Callable[[List[Any]], Any]
    skip: Callable[[Optional[Any]], Any]
    watched: Mapping[str, Any]
    attributes_overflows: bool
    own_grads: Optional[Sequence[Any]] = None
    also_checked: Optional[Sequence[Any]] = None
    returns_decision: bool = False

    def measure(self, buckets: Sequence[Bucket], also_checked: Sequence[Bucket]) -> Dict[str, Any]:
        """Return the fields of the report that the policy and the watched variables need, for this replica."""
        needs = self.policy.needs.union(self.watched, ["finite"] if self.watched else [])
        if self.own_grads is None:
            return measure(buckets, needs)
        is_needed = needs.intersection(["finite"])
        report = measure(buckets, is_needed)
        if also_checked and is_needed:
            report["finite"] = tf.logical_and(report["finite"], measure(also_checked, is_needed)["finite"])
        statistics = needs.difference(is_needed)
        return {**report, **(measure(bucket_gradients(self.own_grads), statistics) if statistics else {})}

    def decide(self, grads: Sequence[Any], report: Mapping[str, Any]) -> Tuple[Any, Any]:
        """Return the operation that updates the policy and the watched variables, and whether to apply the step."""
        update_op, should_apply = self.policy.decide(grads, report)
        if not self.watched:
            return update_op, should_apply
        assigned = [variable.assign(_watched_value(name, report)) for name, variable in self.watched.items()]
        return (update_op if tf.executing_eagerly() else tf.group(update_op, *assigned)), should_apply


class _Buckets(NamedTuple):
    """The gradients of a step in buckets: those that are applied, and others that must be finite as well."""

    applied: List[Bucket]
    also_checked: List[Bucket]

    def nonfinite(self) -> Any:
        """Return a float32 vector with a number above 0 for each non-finite gradient."""
        flags = nonfinite_flags(self.applied)
        return tf.maximum(flags, nonfinite_flags(self.also_checked)) if self.also_checked else flags


def gated_step(step: Step) -> Any:
    """Update the loss scale by the gradients of a step, and apply them if the policy decides so.

    Call it in a replica context, in all replicas at once. They take one decision: a non-finite gradient on one replica
    makes all of them skip.

    Returns:
        The operation that does all of it; None in eager mode. With ``returns_decision``, a boolean tensor: whether the
        gradients are applied. In a graph it is computed after all of it.
    """
    buckets = _Buckets(bucket_gradients(step.grads), bucket_gradients(step.also_checked or []))
    report = step.measure(*buckets)
    if not tf.distribute.has_strategy():
        return _step_without_strategy(step, buckets, report)
    if can_merge_replicas():
        return _step_in_merge_call(step, buckets, report)
    return _step_in_each_replica(step, buckets, report)


def _step_without_strategy(step: Step, buckets: _Buckets, report: Mapping[str, Any]) -> Any:
    """Decide by this report alone."""
    update_op, should_apply = step.decide(step.grads, report)
    return _gate(
        step,
        update_op,
        should_apply,
        lambda: step.apply(gradients_of(buckets.applied)),
        lambda: step.skip(buckets.nonfinite() if step.attributes_overflows else None),
    )


def _step_in_merge_call(step: Step, buckets: _Buckets, report: Mapping[str, Any]) -> Any:
    """Decide once for all replicas, in the one piece of graph where they meet."""
    context = tf.distribute.get_replica_context()

    def across_replicas(strategy: Any, grads: Any, tensors: Any, shares: Any) -> Any:
        sums = strategy.reduce(tf.distribute.ReduceOp.SUM, shares, axis=None) if report else None
        update_op, should_apply = step.decide(grads, combine_shares(report, sums))

        def in_each_replica(run: Callable[[_Buckets], Any]) -> Any:
            def in_this_replica(*tensors: Any) -> Any:
                pairs = [zip(group, own) for group, own in zip(buckets, tensors)]
                return run(_Buckets(*([bucket._replace(**own) for bucket, own in each] for each in pairs)))

            return strategy.extended.call_for_each_replica(in_this_replica, args=tensors)

        def skip() -> Any:
            if not step.attributes_overflows:
                return step.skip(None)
            return step.skip(
                strategy.reduce(tf.distribute.ReduceOp.SUM, in_each_replica(_Buckets.nonfinite), axis=None)
            )

        def apply() -> Any:
            return in_each_replica(lambda buckets: step.apply(gradients_of(buckets.applied)))

        return _gate(step, update_op, should_apply, apply, skip)

    # merge_call hands over the tensors of all replicas, and everything else as it is in one of them.
    tensors = tuple(
        tuple({"values": bucket.values, "reciprocal": bucket.reciprocal} for bucket in group) for group in buckets
    )
    return context.merge_call(across_replicas, args=(tuple(step.grads), tensors, shares_of_replica(context, report)))


def _step_in_each_replica(step: Step, buckets: _Buckets, report: Mapping[str, Any]) -> Any:
    """Decide in each replica from the same sums, where XLA compiles the replicas one by one."""
    if not step.policy.is_pure:
        raise StrategyError(
            f"{type(step.policy.policy).__name__} decides in update(), which can't see all replicas in a step that XLA "
            "compiles for each of them: implement next_state and should_apply instead, or leave out jit_compile=True"
        )
    context = tf.distribute.get_replica_context()

    def sum_over_replicas(values: Any) -> Any:
        # As Keras's optimizers do; the public all_reduce of 2.5 calls merge_call.
        return context.strategy.extended._replica_ctx_all_reduce(tf.distribute.ReduceOp.SUM, values)

    sums = sum_over_replicas(shares_of_replica(context, report)) if report else None
    update_op, should_apply = step.decide(step.grads, combine_shares(report, sums))
    return _gate(
        step,
        update_op,
        should_apply,
        lambda: step.apply(gradients_of(buckets.applied)),
        lambda: step.skip(sum_over_replicas(buckets.nonfinite()) if step.attributes_overflows else None),
    )


def _watched_value(name: str, report: Mapping[str, Any]) -> Any:
    """Return a field of the report; infinity for the largest magnitude of gradients of which one is NaN."""
    infinity = tf.constant(float("inf"))  # what reduce_max returns for NaN differs between versions
    return tf.where(report["finite"], report[name], infinity) if name == "largest_magnitude" else report[name]


def _gate(step: Step, update_op: Any, should_apply: Any, apply: Callable[[], Any], skip: Callable[[], Any]) -> Any:
    """Run one of two functions, and return what ``gated_step`` returns."""
    if should_apply is True:
        applied = _operations(apply())
    else:
        is_alone = not tf.distribute.has_strategy()  # other workers are those that the inner optimizer knows of
        branch = as_branch(lambda: _require_no_communication(apply()) if is_alone else apply())
        applied = [tf.cond(should_apply, branch, as_branch(skip))]
    operation = None if tf.executing_eagerly() else tf.group(update_op, *applied)
    if not step.returns_decision:
        return operation
    with tf.control_dependencies([] if operation is None else [operation]):
        return tf.identity(should_apply)


def _require_no_communication(result: Any) -> Any:
    """Raise :class:`StrategyError` if the branch that is being traced exchanges gradients with other workers.

    Workers that decide before the exchange can decide differently: one of them waits for the others, or they train
    apart.

    Args:
        result: The result of the branch; it is returned unchanged.
    """
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    if graph is None or not graph.building_function:
        return result
    found = sorted({each.type for each in graph.get_operations() if each.type.startswith(_COMMUNICATING)})
    if found:
        raise StrategyError(
            f"the inner optimizer exchanges gradients with other workers ({', '.join(found)}) after the decision to "
            "apply or skip the step, so workers could decide differently and train apart: let it do so in "
            "aggregate_gradients, compute_gradients or _aggregate_gradients, which are called before, or average the "
            "gradients before apply_gradients"
        )
    return result


def as_branch(run: Callable[[], Any]) -> Callable[[], Any]:
    """Return a branch for ``tf.cond``: it runs the function and returns the same constant whatever that returns."""

    def branch() -> Any:
        with tf.control_dependencies(_operations(run())):
            return tf.constant(True)

    return branch


def _operations(result: Any) -> List[Any]:
    return [] if tf.executing_eagerly() else [each for each in tf.nest.flatten(result) if each is not None]


def _strategies(*names: str) -> Tuple[Any, ...]:
    """Return the classes of these strategies under every name: some were experimental, and TF 1 has its own."""
    modules = [tf.distribute, tf.distribute.experimental]
    modules += [tf.compat.v1.distribute, tf.compat.v1.distribute.experimental]
    return tuple(getattr(module, name) for module in modules for name in names if hasattr(module, name))


_SUPPORTED_STRATEGIES = _strategies("MirroredStrategy", "MultiWorkerMirroredStrategy", "OneDeviceStrategy")
_TPU_STRATEGIES = _strategies("TPUStrategy")


def require_supported_strategy() -> None:
    """Raise :class:`StrategyError` if the replicas of the current strategy cannot agree on a decision."""
    strategy = tf.distribute.get_strategy()
    if isinstance(strategy, _SUPPORTED_STRATEGIES):
        return
    if isinstance(strategy, _TPU_STRATEGIES):
        raise StrategyError(
            f"loss scaling does not work under {type(strategy).__name__}, and is not needed there: TPUs compute in "
            "bfloat16, which has the range of float32. Use the inner optimizer without a LossScaleOptimizer, and "
            "mixed_bfloat16 as the dtype policy of the layers"
        )
    raise StrategyError(
        f"loss scaling does not work under {type(strategy).__name__}: "
        "use MirroredStrategy, MultiWorkerMirroredStrategy, OneDeviceStrategy, or no strategy"
    )


def require_strategy_of(variables: Sequence[Any], can_be_outside: bool) -> None:
    """Raise :class:`StrategyError` unless a step can be taken here with variables that were created there.

    Replicas of another strategy would write the variables each for itself, or not at all.

    Args:
        variables: The variables that the optimizer, its policy and the inner optimizer were created with.
        can_be_outside: Whether replicas can use variables that were created outside of the strategy's scope.
    """
    if tf.distribute.has_strategy():
        require_supported_strategy()
    if tf.distribute.in_cross_replica_context():
        raise StrategyError("apply_gradients must be called in a replica context: inside strategy.run, not around it")
    strategy = tf.distribute.get_strategy()
    for variable in variables:
        created_by = getattr(variable, "distribute_strategy", None)  # replicated variables have one
        if created_by is strategy or (created_by is None and can_be_outside):
            continue
        if created_by is None and strategy.extended.variable_created_in_scope(variable):
            continue
        under, where = type(strategy).__name__, "outside of its scope"
        if not tf.distribute.has_strategy():
            under, where = "no strategy", "in the scope of one"
        elif created_by is not None:
            where = f"in the scope of another {type(created_by).__name__}"
        raise StrategyError(
            f"apply_gradients is called under {under}, and the optimizer, its inner optimizer or its policy was "
            f"created {where}; create all of them, and the model, inside `with strategy.scope()` of the strategy that "
            "trains"
        )
