"""Steps under MirroredStrategy over two logical CPUs."""

import aggregation
import common
import numpy as np
import tensorflow as tf

import scalekeeper
from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support import installed_keras


def applied(strategy, optimizer, variable, make_gradient, rows, **options):
    """The variable, on each replica, after one traced step for each of the rows' gradients."""

    @tf.function(autograph=False)
    def step(row):
        def in_replica(row):
            optimizer.apply_gradients([(make_gradient(common.of_replica(row)), variable)], **options)

        common.run(strategy, in_replica, row)

    values = []
    for row in rows:
        step(tf.constant(row, tf.float32))
        values.append(common.on_replicas(strategy, variable))
    return values


def pinned():
    """A training that lives on the second device: where the operations of its traced step are put by name."""
    with tf.device("/cpu:1"):
        variable = tf.Variable([1.0, 1.0])
        optimizer = common.ours(tf.keras.optimizers.Adam(0.1))

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([2], tf.float32)])
    def step(features):
        with tf.device("/cpu:1"):
            with tf.GradientTape() as tape:
                loss = optimizer.get_scaled_loss(tf.reduce_sum(tf.square(variable * features)))
            grads = optimizer.get_unscaled_gradients(tape.gradient(loss, [variable]))
            optimizer.apply_gradients(zip(grads, [variable]))

    step(tf.constant([1.0, 2.0]))
    definition = step.get_concrete_function().graph.as_graph_def()
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    devices = {node.op: sorted({each.device for each in nodes if each.op == node.op}) for node in nodes}
    return {"devices": devices, "state": optimizer.loss_scale.state()}


def two_devices(wrapper):
    """Variables on two devices with no strategy: the values after a good step, a bad one and a good one."""
    with tf.device("/cpu:0"):
        first = tf.Variable([1.0, 1.0])
    with tf.device("/cpu:1"):
        second = tf.Variable([2.0, 2.0])
    optimizer = common.WRAPPERS[wrapper](tf.keras.optimizers.SGD(1.0, momentum=0.5))
    common.build_theirs(optimizer, [first, second])

    @tf.function(autograph=False)
    def step(values):
        optimizer.apply_gradients(zip(common.as_taken(optimizer, tf.unstack(values)), [first, second]))

    values = []
    for grads in ([[1, 1], [2, 2]], [[1, 1], [np.nan, 2]], [[1, 1], [2, 2]]):
        step(tf.constant(grads, tf.float32))
        values.append([first.numpy().tolist(), second.numpy().tolist()])
    return {"values": values, "scale": installed_keras.state_of(optimizer)["current_loss_scale"]}


def in_scope(strategy, policy, learning_rate=1.0, **options):
    with strategy.scope():
        inner = tf.keras.optimizers.SGD(learning_rate)
        return tf.Variable(tf.zeros([3, 2]), name="table"), LossScaleOptimizer(inner, policy, **options)


def sparse(strategy):
    """Two rows of a table get a gradient from each replica, one row twice."""
    table, optimizer = in_scope(strategy, "dynamic")

    def make_gradient(value):
        values = tf.stack([tf.fill([2], value), tf.fill([2], 2 * value), tf.fill([2], value)])
        return tf.IndexedSlices(values, tf.constant([0, 2, 0]), tf.constant([3, 2]))

    # 2e38 is finite, but in row 0 it comes twice
    rows = [[1, 2], [1, float("nan")], [2e38, 1], [0, 1]]
    values = applied(strategy, optimizer, table, make_gradient, rows)
    return {"values": values, "state": optimizer.loss_scale.state()}


def report(strategy):
    """Replica 0 has gradients 3 and 0, replica 1 has -8 and -8."""
    variable, optimizer = in_scope(strategy, common.Watching(), 0.5)

    def make_gradient(value):
        return tf.constant([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]) * value + tf.minimum(value, 0.0) * [0.0, 1.0]

    values = applied(strategy, optimizer, variable, make_gradient, [[3, -8]])
    return {"values": values, "state": optimizer.loss_scale.state()}


def fixed(strategy):
    """A fixed scale that skips what is not finite, one that does not, and the bare optimizer."""
    found = {}
    for skips in (True, False, "bare"):
        variable, optimizer = in_scope(strategy, scalekeeper.FixedLossScale(8, skip_nonfinite=skips is True))
        if skips == "bare":
            with strategy.scope():
                optimizer = tf.keras.optimizers.SGD(1.0)
                common.build(optimizer, [variable])
        rows = [[1, 2], [1, float("inf")], [2, 2]]
        found[str(skips)] = applied(strategy, optimizer, variable, lambda value: tf.fill([3, 2], value), rows)
    return found


def telemetry(strategy):
    """A gradient that is not finite on one replica alone, on the other one, on both; and once too often."""
    watched = ["largest_magnitude", "zero_share"]
    variable, optimizer = in_scope(strategy, "dynamic", attribute_overflows=True, stop_after_skips=3, watch=watched)
    rows, found = [[1, 2], [1, np.nan], [np.inf, 0], [3, 0]], []
    for row in rows:
        applied(strategy, optimizer, variable, lambda value: tf.fill([3, 2], value), [row])
        found.append(optimizer.telemetry._asdict())
    bad = [[np.nan, np.nan]] * 3
    error = common.message_of(applied, strategy, optimizer, variable, lambda value: tf.fill([3, 2], value), bad)
    counters = [common.on_replicas(strategy, counter) for counter in optimizer._monitor.counters.module.variables]
    return {"telemetry": found, "error": error, "stuck": optimizer.telemetry._asdict(), "counters": counters}


def already_summed(strategy):
    """Every replica applies what it is given, as if the caller had summed the gradients."""
    variable, optimizer = in_scope(strategy, "dynamic")
    rows, values = [[3, 3], [3, np.nan]], []

    def apply():
        options = {"experimental_aggregate_gradients": False}
        values.extend(applied(strategy, optimizer, variable, lambda value: tf.fill([3, 2], value), rows, **options))

    error = common.message_of(apply)
    return {"values": values, "error": error}


def cross_replica(strategy):
    """The error of apply_gradients outside of strategy.run, eagerly and in a traced function."""
    found = {}
    for wrapper, make in common.WRAPPERS.items():
        with strategy.scope():
            variable, optimizer = tf.Variable(1.0), make(tf.keras.optimizers.SGD(1.0))

        def apply(optimizer=optimizer, variable=variable):
            with strategy.scope():
                optimizer.apply_gradients([(tf.constant(1.0), variable)])

        errors = [common.message_of(apply), common.message_of(tf.function(apply, autograph=False))]
        found[wrapper] = {"errors": errors, "values": common.on_replicas(strategy, variable)}
    return found


if __name__ == "__main__":
    mirrored = tf.distribute.MirroredStrategy(common.logical_cpus())
    scenarios = (sparse, report, fixed, telemetry, already_summed, cross_replica, *aggregation.SCENARIOS)
    found = {scenario.__name__: scenario(mirrored) for scenario in (*scenarios, common.shared_steps)}
    found["pinned"] = pinned()
    found["two_devices"] = {wrapper: two_devices(wrapper) for wrapper in common.WRAPPERS}
    common.answer(found)
