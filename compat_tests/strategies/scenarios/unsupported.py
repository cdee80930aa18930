"""Strategies whose replicas can't take one decision."""

import common
import tensorflow as tf

from scalekeeper.optimizer import LossScaleOptimizer


def central_storage():
    return tf.distribute.experimental.CentralStorageStrategy(["/cpu:0"])


def parameter_server():
    """In TensorFlow 1's style, the only one in which 2.3 lets it be entered; nothing is sent to these addresses."""
    cluster = tf.train.ClusterSpec({"worker": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type="worker", task_id=0, num_accelerators={"GPU": 0}
    )
    return tf.compat.v1.distribute.experimental.ParameterServerStrategy(resolver)


def construct(strategy):
    with strategy.scope():
        LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), "dynamic")


def apply(strategy):
    variable, grad = tf.Variable(1.0), tf.constant(1.0)
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), "dynamic")

    def in_replica():
        optimizer.apply_gradients([(grad, variable)])

    def call():
        with strategy.scope():
            strategy.extended.call_for_each_replica(in_replica)

    return {
        "error": common.message_of(call),
        "value": float(variable.numpy()),
        "state": optimizer.loss_scale.state(),
    }


if __name__ == "__main__":
    found = {}
    for make in (central_storage, parameter_server):
        strategy = make()
        found[make.__name__] = {
            "name": type(strategy).__name__,
            "at_construction": common.message_of(construct, strategy),
            "at_apply_gradients": apply(strategy),
        }
    common.answer(found)
