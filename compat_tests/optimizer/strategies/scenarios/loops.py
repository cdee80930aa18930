"""Long loops with overflows on random replicas: ``loops.py STRATEGY STEPS [REPLICAS]``.

MirroredStrategy has so many logical CPUs; MultiWorkerMirroredStrategy as many processes as TF_CONFIG names, of which
this is one.
"""

import sys

import common
import tensorflow as tf

from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support import installed_keras

COMPARED = "Adam"  # the inner optimizer with which TensorFlow's own class trains beside ours
# Where TensorFlow's own class decides by the first replica of each worker, one worker applies what the other skips, and
# a run with such steps did not end.
CAN_LEAVE_WORKERS_BEHIND = installed_keras.LOOKS_AT_FIRST_REPLICA_ONLY


def strategy_of(name, replicas=None):
    if name == "MirroredStrategy":
        return tf.distribute.MirroredStrategy(common.logical_cpus(int(replicas)))
    return tf.distribute.experimental.MultiWorkerMirroredStrategy()


def loops(strategy, inner, steps, wrappers):
    """Return what each wrapper does in the same steps, and what must come out.

    Under "comparable" are steps in which TensorFlow's own class has to do as ours does.
    """

    def trained(wrapper, are_all_bad=False):
        training = common.Training(strategy, wrapper, inner, common.LOOP_SCALE, is_built=are_all_bad)
        return training.run(steps, are_all_bad)

    found = {wrapper: trained(wrapper) for wrapper in wrappers}
    found["reference"] = common.reference(inner, steps, strategy.num_replicas_in_sync)
    if inner == COMPARED:
        comparable = found
        if installed_keras.LOOKS_AT_FIRST_REPLICA_ONLY:
            comparable = {wrapper: trained(wrapper, are_all_bad=True) for wrapper in common.WRAPPERS}
        found["comparable"] = {wrapper: comparable[wrapper] for wrapper in common.WRAPPERS}
    return found


def report(strategy):
    """Return what the policy learns of gradients that are 3 and 0 on every other replica, -8 and -8 on the rest."""
    rows = [[3.0, 0.0], [-8.0, -8.0]] * (strategy.num_replicas_in_sync // 2)
    with strategy.scope():
        variable = tf.Variable([0.0, 0.0])
        optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(0.5), common.Watching())

    @tf.function(autograph=False)
    def step():
        def in_replica():
            optimizer.apply_gradients([(common.of_replica(tf.constant(rows)), variable)])

        common.run(strategy, in_replica)

    step()
    return {"values": common.on_replicas(strategy, variable), "state": optimizer.loss_scale.state()}


def main(name, steps, *replicas):
    strategy = strategy_of(name, *replicas)
    found = {"replicas": strategy.num_replicas_in_sync, "report": report(strategy)}
    is_several = name != "MirroredStrategy"
    for inner in common.INNER_OPTIMIZERS:
        has_theirs = inner == COMPARED and not (is_several and CAN_LEAVE_WORKERS_BEHIND)
        found[inner] = loops(strategy, inner, int(steps), list(common.WRAPPERS) if has_theirs else ["ours"])
    common.answer(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
