"""Strategies whose replicas can't take one decision."""

import contextlib
import socket

import common
import tensorflow as tf

from scalekeeper.optimizer import LossScaleOptimizer

OLD = tf.compat.v1.distribute
TPU_RESOLVER = tf.distribute.cluster_resolver.TPUClusterResolver
CAN_DESCRIBE_TPU = hasattr(TPU_RESOLVER, "get_tpu_system_metadata")  # not in 2.0

HAS_COORDINATOR = hasattr(tf.distribute.experimental, "coordinator")


def central_storage():
    return tf.distribute.experimental.CentralStorageStrategy(["/cpu:0"])


def central_storage_of_tensorflow_1():
    return OLD.experimental.CentralStorageStrategy(["/cpu:0"])


def parameter_server():
    """In the style of TensorFlow 1; nothing is sent to these addresses."""
    addresses = {"worker": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]}
    resolver = _resolver(addresses, task_type="worker", task_id=0, num_accelerators={"GPU": 0})
    return OLD.experimental.ParameterServerStrategy(resolver)


def parameter_server_with_coordinator():
    """With servers that are there, here in this process."""
    addresses = {"worker": [_address()], "ps": [_address()]}
    SERVERS.extend(tf.distribute.Server(addresses, job_name=job, task_index=0, protocol="grpc") for job in addresses)
    return tf.distribute.experimental.ParameterServerStrategy(_resolver(addresses, rpc_layer="grpc"))


SERVERS = []  # they live as long as something refers to them


def _resolver(addresses, **options):
    cluster = tf.train.ClusterSpec(addresses)
    return tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, **options)


def _address():
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


class OwnExtended(tf.distribute.StrategyExtended):
    """As little as a strategy needs to run one replica."""

    def _create_variable(self, next_creator, *args, **kwargs):
        return next_creator(*args, **kwargs)

    def call_for_each_replica(self, fn, args=(), kwargs=None):
        with tf.distribute.ReplicaContext(self._container_strategy(), 0):
            return fn(*args, **(kwargs or {}))

    def tpu_run(self, fn, args=(), kwargs=None, options=None):  # without options up to 2.1
        return self.call_for_each_replica(fn, args, kwargs)

    def _get_local_replica_id(self, replica_id):
        return replica_id


class OwnStrategy(tf.distribute.Strategy):
    """A strategy that a user has written."""

    def __init__(self):
        super().__init__(OwnExtended(self))


class _Core:
    name, device_type = "/job:localhost/replica:0/task:0/device:TPU:0", "TPU"


class DescribedTpu(TPU_RESOLVER):
    """A TPU with one core, as TensorFlow's strategy is told of one: there is none, and none is asked for anything."""

    def __init__(self):
        """Nothing is looked up."""

    def get_tpu_system_metadata(self):
        one = {"num_cores": 1, "num_hosts": 1, "num_of_cores_per_host": 1}
        return tf.tpu.experimental.TPUSystemMetadata(topology=None, devices=[_Core], **one)

    def get_job_name(self):
        return None

    def master(self, *args, **kwargs):
        return ""

    def cluster_spec(self):
        return tf.train.ClusterSpec({})


class TpuByClassAlone(tf.distribute.experimental.TPUStrategy):
    """Where the constructor looks for a TPU in any case: of its class, but with another's way to run a replica."""

    def __init__(self):
        tf.distribute.Strategy.__init__(self, OwnExtended(self))


def tpu():
    return tf.distribute.TPUStrategy(DescribedTpu()) if CAN_DESCRIBE_TPU else TpuByClassAlone()


def experimental_tpu():
    return tf.distribute.experimental.TPUStrategy(DescribedTpu())


def tpu_of_tensorflow_1():
    return OLD.experimental.TPUStrategy(DescribedTpu())


def strategies():
    """All that the installed version lets one make."""
    made = [central_storage, central_storage_of_tensorflow_1, OwnStrategy, tpu]
    if CAN_DESCRIBE_TPU:
        made += [experimental_tpu, tpu_of_tensorflow_1]
    # since 2.4 the older one can't be entered at all
    return [*made, parameter_server_with_coordinator if HAS_COORDINATOR else parameter_server]


def runs_only_by_coordinator(strategy):
    """Whether TensorFlow itself refuses every ``run`` that no coordinator schedules, as 2.5 does."""
    with strategy.scope():
        error = common.message_of(tf.function(lambda: strategy.run(lambda: None), autograph=False))
    return error is not None and "coordinator.ClusterCoordinator.schedule" in error["message"]


def construct(strategy):
    with strategy.scope():
        LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), "dynamic")


def apply(strategy, call):
    """The error of a step with an optimizer that was made outside of the scope, and what the step has changed."""
    variable, grad = tf.Variable(1.0), tf.constant(1.0)
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), "dynamic")

    def in_replica():
        optimizer.apply_gradients([(grad, variable)])

    error = common.message_of(call, strategy, in_replica)
    return {"error": error, "value": float(variable.numpy()), "state": optimizer.loss_scale.state()}


def in_each_replica(strategy, in_replica):
    @tf.function(autograph=False)  # some run nothing else
    def step():
        common.run(strategy, in_replica)

    with strategy.scope():
        step()


def around_replicas(strategy, in_replica):
    with strategy.scope():
        in_replica()


def by_coordinator(strategy, in_replica):
    coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(strategy)

    @tf.function(autograph=False)
    def step():
        strategy.run(in_replica)

    with strategy.scope():
        coordinator.schedule(step)
        coordinator.join()


if __name__ == "__main__":
    found = {}
    for make in strategies():
        strategy = make()
        calls = [around_replicas]
        if make is parameter_server_with_coordinator:
            calls.append(by_coordinator)
        if by_coordinator not in calls or not runs_only_by_coordinator(strategy):
            calls.append(in_each_replica)
        found[make.__name__] = {
            "name": type(strategy).__name__,
            "at_construction": common.message_of(construct, strategy),
            "at_apply_gradients": {call.__name__: apply(strategy, call) for call in calls},
        }
    common.answer(found)
