"""Gradients that are finite on each of two replicas, and not finite any more when the inner optimizer gets them."""

import common
import numpy as np
import tensorflow as tf

from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support import installed_keras

LARGE = 3e38
REDUCING = ("AddN", "CollectiveReduce", "CollectiveReduceV2", "CollectiveGather", "CollectiveGatherV2", "NcclAllReduce")


def taken(strategy, wrapper, inner, rows, initial_scale=2.0, make_gradient=lambda value: tf.fill([3], value)):
    """The weight, on each replica, and the loss scale after each step."""
    with strategy.scope():
        variable = tf.Variable([0.0, 0.0, 0.0])
        optimizer = common.WRAPPERS[wrapper](inner(), initial_scale) if wrapper != "bare" else inner()
        common.build_theirs(optimizer, [variable])

    @tf.function(autograph=False)
    def step(row):
        def in_replica(row):
            grads = [make_gradient(common.of_replica(row))]
            grads = grads if wrapper == "bare" else common.as_taken(optimizer, grads)
            optimizer.apply_gradients(zip(grads, [variable]))

        common.run(strategy, in_replica, row)

    found = []
    for row in rows:
        step(tf.constant(row, tf.float32))
        scale = None if wrapper == "bare" else installed_keras.state_of(optimizer)["current_loss_scale"]
        found.append({"values": common.on_replicas(strategy, variable), "scale": scale})
    return found


def sums(strategy):
    """The sum of the replicas' gradients is infinite; then large numbers cancel each other; then all is well."""
    rows = [[1, 2], [LARGE, LARGE], [LARGE, -LARGE], [1, 1], [-np.inf, np.inf]]
    return {
        f"{wrapper} {name}": taken(strategy, wrapper, lambda module=module: module.SGD(0.5), rows)
        for wrapper in common.WRAPPERS
        for name, module in installed_keras.OPTIMIZERS.items()
    }


def sparse_sums(strategy):
    """The same for rows of a table: row 1 of both replicas overflows in sum, rows 0 and 2 come from one each."""

    def make_gradient(value):
        index = tf.distribute.get_replica_context().replica_id_in_sync_group * 2
        return tf.IndexedSlices(tf.stack([value, value / 3.0]), tf.stack([1, index]), tf.constant([3]))

    inner = tf.keras.optimizers.SGD
    return taken(strategy, "ours", lambda: inner(0.5), [[3, 3], [LARGE, LARGE], [3, 3]], make_gradient=make_gradient)


def clipped(strategy):
    """Inner optimizers that clip: what they make of finite gradients, and of an infinity on one replica alone."""
    rows = [[1, 5], [4, -1], [1, np.inf], [-np.inf, 1], [2, 2]]
    if common.message_of(lambda: in_scope_of(strategy, clipvalue=2.0)):  # 2.1 to 2.3 refuse to clip under a strategy
        return None
    found = {}
    for name, options in (("clipvalue", {"clipvalue": 2.0}), ("clipnorm", {"clipnorm": 3.0})):

        def inner(options=options):
            return tf.keras.optimizers.SGD(0.5, **options)

        found[name] = taken(strategy, "ours", inner, rows)
        found["bare " + name] = taken(strategy, "bare", inner, [row for row in rows if np.isfinite(row).all()])
    return found


def in_scope_of(strategy, **options):
    with strategy.scope():
        return tf.keras.optimizers.SGD(0.5, **options)


def own_aggregation(strategy):
    """Optimizers whose own aggregation halves the sum, and makes a NaN of a sum of 13."""
    found = {}
    for name, module in installed_keras.OPTIMIZERS.items():
        found[name] = taken(
            strategy, "ours", lambda module=module: aggregating(module.SGD)(0.5), [[1, 3], [6, 7], [1, 1]]
        )
    return found


def aggregating(cls):
    """A subclass that aggregates in its own manner, by the method that its Keras has for this."""
    names = ("_all_reduce_sum_gradients", "aggregate_gradients", "_aggregate_gradients")
    (name,) = [each for each in names if hasattr(cls, each)][:1] or [None]
    if name is None:
        return cls

    def aggregate(self, grads_and_vars):
        result = list(getattr(super(made, self), name)(grads_and_vars))
        has_pairs = isinstance(result[0], tuple)
        changed = [_changed(each[0] if has_pairs else each) for each in result]
        return list(zip(changed, [variable for _, variable in result])) if has_pairs else changed

    made = type("Aggregating", (cls,), {name: aggregate, "__module__": __name__})
    return made


def _changed(total):
    return tf.where(tf.equal(total, 13.0), float("nan"), total / 2.0)


def own_apply(strategy):
    """Optimizers that clip each replica's gradients in ``apply_gradients``, unless they are aggregated already."""
    found = {}
    for name, module in installed_keras.OPTIMIZERS.items():
        for wrapper in ("ours", "bare"):
            inner = clipping(module.SGD)
            found[f"{wrapper} {name}"] = taken(strategy, wrapper, lambda inner=inner: inner(0.5), [[1, 5], [4, -1]])
    return found


def clipping(cls):
    class Clipping(cls):
        def apply_gradients(self, grads_and_vars, *args, **kwargs):
            aggregates = kwargs.get("experimental_aggregate_gradients", not kwargs.get("skip_gradients_aggregation"))
            pairs = [(tf.clip_by_value(grad, -2.0, 2.0) if aggregates else grad, each) for grad, each in grads_and_vars]
            return super().apply_gradients(pairs, *args, **kwargs)

    return Clipping


def not_aggregated(strategy):
    """An aggregator that leaves the gradients of each replica as they are: one is not finite, and both skip."""
    if not hasattr(tf.keras.optimizers.SGD(0.5), "gradient_aggregator"):
        return None
    inner = lambda: tf.keras.optimizers.SGD(0.5, gradient_aggregator=lambda pairs: pairs)  # noqa: E731
    return taken(strategy, "ours", inner, [[1, 1], [1, np.nan], [np.inf, 1], [2, 2]])


def exchanges(strategy):
    """The operations of a step that reduce or gather over replicas: with a loss scale, and the bare optimizer's."""
    found = {}
    for name, inner in common.INNER_OPTIMIZERS.items():
        for wrapper in ("ours", "bare"):
            with strategy.scope():
                variable = tf.Variable(tf.ones([7, 11]))
                optimizer = LossScaleOptimizer(inner(), "dynamic") if wrapper == "ours" else inner()
                common.build(optimizer, [variable])

            def in_replica(optimizer=optimizer, variable=variable):
                optimizer.apply_gradients([(tf.ones([7, 11]), variable)])

            step = tf.function(
                lambda in_replica=in_replica: _nothing(common.run(strategy, in_replica)), autograph=False
            )
            found[f"{wrapper} {name}"] = _reductions(step.get_concrete_function().graph)
    return found


def _nothing(result):
    return None


def _reductions(graph):
    """The sizes of what is reduced in the graph itself, and the number of such operations in functions it calls."""
    sizes = [each.outputs[0].shape.num_elements() for each in graph.get_operations() if each.type in REDUCING]
    library = graph.as_graph_def().library.function
    inside = [node.op for function in library for node in function.node_def if node.op in REDUCING]
    return {"sizes": sizes, "inside": inside}


SCENARIOS = (sums, sparse_sums, clipped, own_aggregation, own_apply, not_aggregated, exchanges)
