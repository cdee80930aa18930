"""What every generation of Keras shares: scale the loss, unscale the gradients, decide, and gate the step."""

from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Sequence, Tuple, TypeVar, cast

import tensorflow as tf

from ...lossscales.contract import has_pure_step as has_pure_step
from ...lossscales.report import Report
from ...registry._documents import ADVANCE as ADVANCE
from ...registry._documents import HOLD as HOLD
from ...registry._documents import NATIVE as NATIVE
from .gradient_buckets import Pack, packed, unpacked
from .gradient_stats import are_bad, measure
from .graph_state import GraphState, make_variable

Function = TypeVar("Function", bound=Callable[..., Any])


def as_written(function: Function) -> Function:
    """Keep AutoGraph from rewriting a function, and all that it calls, inside a user's traced step."""
    return cast(Function, tf.autograph.experimental.do_not_convert(function))


def hold_in_graph(policy: Any, make_variable: Callable[[str, Any], Any] = make_variable) -> Any:
    """Move a policy's state into variables, and return what a checkpoint has to track."""
    if has_pure_step(policy):
        memory = policy._remembered()
        if isinstance(memory, GraphState):
            return memory
        return policy.move_state(lambda policy, state: GraphState(policy, state, make_variable))
    if hasattr(policy, "_track_trackable"):
        return policy  # TensorFlow's own LossScale, or a class derived from it
    holder = tf.Module(name="loss_scale")
    for name, value in vars(policy).items():
        if isinstance(value, tf.Variable):
            setattr(holder, name, value)
    return holder


def state_variables(policy: Any) -> Dict[str, Any]:
    """The variables of a policy that an optimizer holds, by name."""
    return dict(policy._remembered().state_variables) if has_pure_step(policy) else {}


def require_supported_strategy() -> None:
    """Loss scaling needs a strategy whose replicas can agree on a decision."""
    strategy = tf.distribute.get_strategy()
    if not tf.distribute.has_strategy() or isinstance(strategy, _SUPPORTED_STRATEGIES):
        return
    if isinstance(strategy, _TPU_STRATEGIES):
        raise ValueError(
            f"loss scaling does not work under {type(strategy).__name__}, and is not needed there: TPUs compute in "
            "bfloat16, which has the range of float32. Use the inner optimizer without a LossScaleOptimizer, and "
            "mixed_bfloat16 as the policy of the layers"
        )
    raise ValueError(
        f"loss scaling does not work under {type(strategy).__name__}: "
        "use MirroredStrategy, MultiWorkerMirroredStrategy, OneDeviceStrategy, or no strategy"
    )


def _strategies(*names: str) -> Tuple[Any, ...]:
    """Strategies by every name that they have: some were experimental once, and all are among TensorFlow 1's, too."""
    modules = [tf.distribute, tf.distribute.experimental]
    modules += [tf.compat.v1.distribute, tf.compat.v1.distribute.experimental]
    return tuple(getattr(module, name) for module in modules for name in names if hasattr(module, name))


_SUPPORTED_STRATEGIES = _strategies("MirroredStrategy", "MultiWorkerMirroredStrategy", "OneDeviceStrategy")
_TPU_STRATEGIES = _strategies("TPUStrategy")


def require_strategy_of(variables: Sequence[Any], can_be_outside: bool) -> None:
    """Refuse variables of another strategy, which replicas of this one would write each for itself, or not at all.

    Where they ``can_be_outside``, variables of no replica in particular will do: replicas write them once, together.
    """
    strategy = tf.distribute.get_strategy()
    for variable in variables:
        made_by = getattr(variable, "distribute_strategy", None)  # replicated variables have one
        if made_by is strategy or (made_by is None and can_be_outside):
            continue
        if made_by is None and strategy.extended.variable_created_in_scope(variable):
            continue
        under, where = type(strategy).__name__, "outside of its scope"
        if not tf.distribute.has_strategy():
            under, where = "no strategy", "in the scope of one"
        elif made_by is not None:
            where = f"in the scope of another {type(made_by).__name__}"
        raise ValueError(
            f"apply_gradients is called under {under}, and the optimizer, its inner optimizer or its policy was made "
            f"{where}; make all of them, and the model, inside `with strategy.scope()` of the strategy that trains"
        )


def gated_step(
    policy: Any,
    grads: Sequence[Any],
    apply: Callable[[List[Any]], Any],
    skip: Callable[[Any], Any],
    watched: Mapping[str, Any],
    attributes: bool,
) -> Any:
    """Update the loss scale by these gradients, and apply them if the policy says so.

    Called in a replica context, by all replicas at once. They take one decision: a bad gradient on one of them makes
    all of them skip. ``apply(grads)`` runs in each replica's context, ``skip(bad)`` once; if it ``attributes``, ``bad``
    says for each gradient on how many replicas it was not finite. ``watched`` holds variables for parts of the report.
    """
    packs = packed(grads)
    needs: FrozenSet[str] = policy.needs if has_pure_step(policy) else frozenset()
    report = measure(packs, needs.union(watched, ["finite"] if watched else []))

    def decide(grads: Sequence[Any], report: Dict[str, Any]) -> Any:
        update_op, should_apply = _decide(policy, grads, Report(**report))
        kept = [variable.assign(_watched(name, report)) for name, variable in watched.items()]
        return (tf.group(update_op, *kept) if kept and not tf.executing_eagerly() else update_op), should_apply

    if not tf.distribute.has_strategy():
        update_op, should_apply = decide(grads, report)
        return _gate(
            update_op,
            should_apply,
            lambda: apply(unpacked(packs)),
            lambda: skip(are_bad(packs) if attributes else None),
        )

    context = tf.distribute.get_replica_context()
    names = list(report)
    # one tensor, so that a step has one exchange more than without loss scaling, whatever the policy needs
    shares = tf.stack([_share_of_replica(context, name, report[name]) for name in names]) if names else None
    if not replicas_can_meet():
        _require_pure_step(policy)
        together = _agreed(names, context.all_reduce(tf.distribute.ReduceOp.SUM, shares) if names else None)
        update_op, should_apply = decide(grads, together)
        return _gate(
            update_op,
            should_apply,
            lambda: apply(unpacked(packs)),
            lambda: skip(context.all_reduce(tf.distribute.ReduceOp.SUM, are_bad(packs)) if attributes else None),
        )

    def across_replicas(strategy: Any, grads: Any, contents: Any, shares: Any) -> Any:
        # summing is the one reduction that every strategy has
        sums = strategy.reduce(tf.distribute.ReduceOp.SUM, shares, axis=None) if names else None
        update_op, should_apply = decide(grads, _agreed(names, sums))

        def of_replica(contents: Sequence[Any]) -> List[Pack]:
            return [pack._replace(**content) for pack, content in zip(packs, contents)]

        def in_each_replica(run: Callable[[List[Pack]], Any]) -> Any:
            return strategy.extended.call_for_each_replica(lambda *own: run(of_replica(own)), args=contents)

        def skip_together() -> Any:
            if not attributes:
                return skip(None)
            return skip(strategy.reduce(tf.distribute.ReduceOp.SUM, in_each_replica(are_bad), axis=None))

        return _gate(
            update_op, should_apply, lambda: in_each_replica(lambda packs: apply(unpacked(packs))), skip_together
        )

    # of a pack, the tensors are each replica's own
    contents = tuple({"values": pack.values, "reciprocal": pack.reciprocal} for pack in packs)
    return context.merge_call(across_replicas, args=(tuple(grads), contents, shares))


def replicas_can_meet() -> bool:
    """Whether one piece of graph can stand for all replicas: not in those that XLA compiles one by one, on GPUs."""
    meets = getattr(tf.distribute.get_strategy().extended, "_use_merge_call", None)
    return meets is None or bool(meets())


def _require_pure_step(policy: Any) -> None:
    if not has_pure_step(policy):
        raise ValueError(
            f"{type(policy).__name__} decides in update(), which can't see all replicas in a step that XLA compiles "
            "for each of them: write next_state and should_apply instead, or leave out jit_compile=True"
        )


def _watched(name: str, report: Mapping[str, Any]) -> Any:
    """A part of the report; the largest of numbers among which one is NaN differs by version: here it is infinity."""
    infinity = tf.constant(float("inf"))
    return tf.where(report["finite"], report[name], infinity) if name == "largest_magnitude" else report[name]


def _decide(policy: Any, grads: Sequence[Any], report: Report) -> Any:
    """The op that updates the loss scale, and whether the gradients are applied."""
    return policy._remembered().step(report) if has_pure_step(policy) else policy.update(list(grads))


def _share_of_replica(context: Any, name: str, value: Any) -> Any:
    """A vector with this replica's value in its own place: the sum over all replicas holds the values of all."""
    known = tf.cast(tf.logical_not(value) if name == "finite" else value, tf.float32)
    places = tf.range(context.num_replicas_in_sync)
    return tf.where(tf.equal(places, _place_of_replica(context)), known, 0.0)


def _place_of_replica(context: Any) -> Any:
    """The replica's number among all: up to 2.3, the context counts from 0 on each of several workers."""
    extended = context.strategy.extended
    workers = getattr(extended, "_num_workers", 1)
    if workers == 1 or hasattr(extended, "_get_replica_id_in_sync_group"):
        return context.replica_id_in_sync_group
    is_after_chief = extended._task_type == "worker" and "chief" in extended._cluster_spec.jobs
    worker = extended._task_id + (1 if is_after_chief else 0)
    return worker * (context.num_replicas_in_sync // workers) + context.replica_id_in_sync_group


def _agreed(names: Sequence[str], sums: Any) -> Dict[str, Any]:
    """What all replicas know together, from the sum of their shares."""
    if not names:
        return {}
    rows = tf.unstack(sums, num=len(names))
    together = {
        "finite": lambda row: tf.reduce_sum(row) < 0.5,  # no replica says that its gradients are not
        "largest_magnitude": tf.reduce_max,
        "zero_share": tf.reduce_mean,
    }
    return {name: together[name](row) for name, row in zip(names, rows)}


def _gate(update_op: Any, should_apply: Any, apply: Callable[[], Any], skip: Callable[[], Any]) -> Any:
    """Apply or skip; in a graph, the op that does all of it."""
    if should_apply is True:
        applied = _operations(apply())
    else:
        applied = [tf.cond(should_apply, as_branch(apply), as_branch(skip))]
    return None if tf.executing_eagerly() else tf.group(update_op, *applied)


def as_branch(run: Callable[[], Any]) -> Callable[[], Any]:
    """Both branches of a conditional return the same thing: a value that stands for having run."""

    def branch() -> Any:
        with tf.control_dependencies(_operations(run())):
            return tf.constant(True)

    return branch


def _operations(done: Any) -> List[Any]:
    return [] if tf.executing_eagerly() else [each for each in tf.nest.flatten(done) if each is not None]
