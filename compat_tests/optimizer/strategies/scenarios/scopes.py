"""Optimizers made outside of the scope of the strategy that trains, and strategies by TensorFlow 1's names."""

import common
import tensorflow as tf

from scalekeeper.optimizer import LossScaleOptimizer

STEPS = 12
NAN = float("nan")
GRADIENTS = [[[1.0, 2.0], [1.0, 2.0]], [[1.0, 2.0], [NAN, 2.0]], [[1.0, 0.0], [3.0, 1.0]]]


def inside(strategy, other):
    with strategy.scope():
        return common.ours(common.INNER_OPTIMIZERS["SGD"]())


def outside(strategy, other):
    return common.ours(common.INNER_OPTIMIZERS["SGD"]())


def in_another(strategy, other):
    return inside(other, strategy)


def inner_in_another(strategy, other):
    with other.scope():
        inner = common.INNER_OPTIMIZERS["SGD"]()
        _ = inner.iterations  # up to 2.10 made when it is asked for
    with strategy.scope():
        return common.ours(inner)


def policy_in_another(strategy, other):
    with other.scope():
        policy = common.ours(common.INNER_OPTIMIZERS["SGD"]()).loss_scale
    with strategy.scope():
        return LossScaleOptimizer(common.INNER_OPTIMIZERS["SGD"](), policy)


def built_outside(strategy, other):
    """As one that was used outside before."""
    optimizer = outside(strategy, other)
    optimizer.apply_gradients([(tf.zeros([2]), tf.Variable([1.0, 2.0]))])
    return optimizer


def trained(strategy, optimizer, function):
    """The error of the first step that has one; and what is there after the last step."""
    with strategy.scope():
        variable = tf.Variable([1.0, 2.0])
    before = optimizer.loss_scale.state()

    def in_replica(rows):
        optimizer.apply_gradients([(common.of_replica(rows), variable)])

    step = function(lambda rows: common.run(strategy, in_replica, rows))
    error = None
    for rows in GRADIENTS:
        error = error or common.message_of(step, tf.constant(rows))
    values, state = common.on_replicas(strategy, variable), optimizer.loss_scale.state()
    return {"error": error, "values": values, "before": before, "state": state}


def traced(function):
    return tf.function(function, autograph=False)


def eager(function):
    return function


def nested(strategy, other):
    """An optimizer in a scope within another's scope: TensorFlow does not let one in."""

    def construct():
        with strategy.scope(), other.scope():
            inside(strategy, other)

    return common.message_of(construct)


def in_tensorflow_1s_names(mirrored, cpus):
    """Strategy → the same training by its newer name and by its older one.

    Strategies over the same devices number their exchanges alike, so only the first of them can go on after that.
    """
    new, old = tf.distribute, tf.compat.v1.distribute
    pairs = {
        "MirroredStrategy": [mirrored, old.MirroredStrategy(cpus)],
        "OneDeviceStrategy": [new.OneDeviceStrategy(cpus[0]), old.OneDeviceStrategy(cpus[0])],
        "MultiWorkerMirroredStrategy": [each.experimental.MultiWorkerMirroredStrategy() for each in (new, old)],
    }
    return {name: [loop(strategy) for strategy in both] for name, both in pairs.items()}


def loop(strategy):
    return {"class": type(strategy).__name__, **common.Training(strategy, "ours", "SGD", common.LOOP_SCALE).run(STEPS)}


if __name__ == "__main__":
    cpus = common.logical_cpus()
    strategy, other = tf.distribute.MirroredStrategy(cpus), tf.distribute.MirroredStrategy(cpus[:1])
    found = {"of TensorFlow 1": in_tensorflow_1s_names(strategy, cpus), "nested": nested(strategy, other)}
    for make in (inside, outside, built_outside, in_another, inner_in_another, policy_in_another):
        found[make.__name__] = [trained(strategy, make(strategy, other), function) for function in (traced, eager)]
    found["without a strategy"] = [
        trained(tf.distribute.get_strategy(), inside(strategy, other), function) for function in (traced, eager)
    ]
    common.answer(found)
