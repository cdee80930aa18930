"""Strategies whose replicas can't take one decision."""

import contextlib
import socket

import common
import tensorflow as tf

from scalekeeper.optimizer import LossScaleOptimizer


def central_storage():
    return tf.distribute.experimental.CentralStorageStrategy(["/cpu:0"])


def parameter_server():
    """As the installed version lets it be entered: since 2.4 with servers that are there, here in this process."""
    strategy = tf.distribute.experimental.ParameterServerStrategy
    if strategy.__name__ == "ParameterServerStrategyV2":
        addresses = {"worker": [_address()], "ps": [_address()]}
        SERVERS.extend(
            tf.distribute.Server(addresses, job_name=job, task_index=0, protocol="grpc") for job in addresses
        )
        return strategy(_resolver(addresses, rpc_layer="grpc"))
    # in TensorFlow 1's style; nothing is sent to these addresses
    addresses = {"worker": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]}
    resolver = _resolver(addresses, task_type="worker", task_id=0, num_accelerators={"GPU": 0})
    return tf.compat.v1.distribute.experimental.ParameterServerStrategy(resolver)


SERVERS = []  # they live as long as something refers to them


def _resolver(addresses, **options):
    cluster = tf.train.ClusterSpec(addresses)
    return tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, **options)


def _address():
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


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
