"""Policies without an optimizer on two replicas: print what they and TensorFlow's own class do, as JSON.

The gradients of a step are one number per replica.
"""

import json

import common
import numpy as np
import tensorflow as tf

import scalekeeper
from scalekeeper_test_support import installed_keras

GRADIENTS = [(1.0, 1.0), (1.0, 1.0), (1.0, np.nan), (np.inf, 1.0), (1.0, 1.0), (np.nan, np.nan), (1.0, 1.0), (1.0, 1.0)]
POLICIES = {
    "ours": lambda: scalekeeper.DynamicLossScale(1024.0, 2),
    "tensorflow": lambda: installed_keras.LOSS_SCALE_CLASSES.DynamicLossScale(1024.0, 2),
    "scheduled": lambda: scalekeeper.ScheduledLossScale(values=[64.0, 4.0, 2.0], boundaries=[3, 6]),
    "log_max": scalekeeper.LogMaxLossScale,
}


def per_replica(strategy, values):
    """A value for each replica, as a step that computed it has it."""

    def own():
        return tf.gather(tf.convert_to_tensor(values), tf.distribute.get_replica_context().replica_id_in_sync_group)

    return common.run(strategy, own)


def in_cross_replica_context(strategy, policy, gradients):
    """The context in which TensorFlow's own class can be updated, and the one that it needs inside a function."""

    @tf.function
    def step(first, second):
        grads = per_replica(strategy, [first, second])
        update_op, should_apply = policy.update({"kernel": grads, "bias": None})
        del update_op
        return should_apply, policy()

    return [step(*map(tf.constant, map(float, pair))) for pair in gradients]


def eagerly(strategy, policy, gradients):
    return [(policy.update([per_replica(strategy, pair)])[1], policy()) for pair in gradients]


def in_replicas(strategy, policy, gradients):
    """Replicas call the policy: the first decision and the first scale that is not the same on both fails."""

    def replica(pair):
        grad = tf.gather(pair, tf.distribute.get_replica_context().replica_id_in_sync_group)
        before = policy()
        update_op, should_apply = policy.update(grad)
        del update_op
        return before, tf.cast(should_apply, tf.float32), policy()

    step = tf.function(lambda pair: common.run(strategy, replica, pair))
    found = []
    for pair in gradients:
        results = [strategy.experimental_local_results(each) for each in step(tf.constant(pair, tf.float32))]
        assert all(len({float(one) for one in each}) == 1 for each in results), results
        found.append((results[1][0], results[2][0]))
    return found


def first_calls(strategy, make):
    """The scales that replicas get which call a policy for the first time: eagerly, and in functions of their own."""
    eager, nested = make(), make()
    read = tf.function(lambda: nested(), autograph=False)
    called = [common.run(strategy, lambda: eager() + 0.0), common.run(strategy, lambda: read() + 0.0)]
    return [float(scale) for each in called for scale in strategy.experimental_local_results(each)]


def plain(found):
    return [[bool(should_apply), float(scale)] for should_apply, scale in found]


def main():
    strategy = tf.distribute.MirroredStrategy(common.logical_cpus())
    results = {}
    for name, make in POLICIES.items():
        for run in (in_cross_replica_context, eagerly, in_replicas):
            if name == "tensorflow" and run is in_replicas:
                continue  # which it can't be updated in
            with strategy.scope():
                policy = make()
                results.setdefault(name, {})[run.__name__] = plain(run(strategy, policy, GRADIENTS))
        if name != "tensorflow":
            outside = make()  # first used inside the step, and in no scope
            results[name]["outside"] = plain(in_replicas(strategy, outside, GRADIENTS))
            variables = outside._memory.state_variables.values()
            results[name]["on_replicas"] = [common.on_replicas(strategy, each) for each in variables]
            results[name]["first_call"] = first_calls(strategy, make)
            alone = make()
            results[name]["alone"] = plain([(alone.update(list(pair))[1], alone()) for pair in GRADIENTS])
    policy = scalekeeper.DynamicLossScale(1024.0, 2)
    in_replicas(strategy, policy, GRADIENTS[:3])
    with strategy.scope():  # the optimizer goes on with the variables that the replicas have
        optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.5), policy)
        variable = tf.Variable(1.0)

    def step():
        optimizer.apply_gradients([(tf.constant(np.nan), variable)])

    tf.function(lambda: common.run(strategy, step))()
    results["given_to_an_optimizer"] = policy.state()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
