"""A policy without an optimizer: in eager mode, in functions, in sessions and under a strategy, beside TensorFlow's."""

import copy

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

import scalekeeper
from scalekeeper_test_support.installed_keras import IS_KERAS_3, LOSS_SCALE_CLASSES, OPTIMIZERS

NAN, INFINITY = float("nan"), float("inf")
GRADIENTS = [1.0, 1.0, NAN, 1.0, INFINITY, 1.0, 1.0, 1.0, -INFINITY]
MAKE = {
    "ours": lambda: scalekeeper.DynamicLossScale(8.0, 2),
    "tensorflow": lambda: LOSS_SCALE_CLASSES.DynamicLossScale(8.0, 2),
}


def nest(gradient):
    """A nest with a sparse gradient and one that is missing."""
    sparse = tf.IndexedSlices(tf.reshape(gradient, [1]), tf.constant([3]), tf.constant([5]))
    return {"kernel": [gradient, None], "rest": (tf.ones([2, 2]), {"embedding": sparse})}


def eagerly(policy):
    return [(policy.update(nest(tf.constant(each)))[1], policy()) for each in GRADIENTS]


def traced(policy, **options):
    """Decision and scale of steps in a function, which AutoGraph converts unless it is told otherwise."""

    def step(gradient):
        update_op, should_apply = policy.update(nest(gradient))
        del update_op
        return should_apply, policy()

    function = tf.function(step, **options)
    return [function(tf.constant(each)) for each in GRADIENTS]


def traced_loop(policy):
    """A policy whose first use is inside a loop of a function; TensorFlow's own reads old values there in 2.3."""

    @tf.function
    def step(gradients):
        results = tf.TensorArray(tf.float32, 2 * len(GRADIENTS))
        for index in tf.range(len(GRADIENTS)):
            tf.autograph.experimental.set_loop_options(parallel_iterations=1)  # 2.3 may read later values otherwise
            update_op, should_apply = policy.update(gradients[index])
            del update_op
            results = results.write(2 * index, tf.cast(should_apply, tf.float32))
            results = results.write(2 * index + 1, policy())
        return results.stack()

    return step(tf.constant(GRADIENTS)).numpy().reshape(-1, 2)


def under_a_strategy(policy):
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        return eagerly(policy)


RUNS = {
    "eager": eagerly,
    "function": traced,
    "function without AutoGraph": lambda policy: traced(policy, autograph=False),
    "strategy": under_a_strategy,
}


def plain(found):
    return [(bool(should_apply), float(scale)) for should_apply, scale in found]


def in_a_session(make):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        policy, gradient = make(), tf.compat.v1.placeholder(tf.float32, [])
        scale, (update_op, should_apply) = policy(), policy.update([gradient])
        session.run(tf.compat.v1.global_variables_initializer())
        found = []
        for each in GRADIENTS:
            found.append((session.run([update_op, should_apply], {gradient: each})[1], session.run(scale)))
        return plain(found)


@pytest.mark.parametrize("name", sorted(RUNS))
def test_steps_are_those_of_tensorflow(name):
    """Decisions and scales, also of the first step, in which the state moves into variables."""
    ours, own = (plain(RUNS[name](MAKE[which]())) for which in ("ours", "tensorflow"))
    assert ours == own
    assert [scale for _, scale in ours][:5] == [8.0, 16.0, 8.0, 8.0, 4.0]


def test_steps_in_a_loop_of_a_function():
    """They are those of eager mode."""
    assert plain(traced_loop(MAKE["ours"]())) == plain(eagerly(MAKE["ours"]()))


def test_steps_in_a_session_are_those_of_tensorflow():
    """The variables are among the global variables, and the operation of ``update`` has to be run."""
    assert in_a_session(MAKE["ours"]) == in_a_session(MAKE["tensorflow"]) == plain(eagerly(MAKE["ours"]()))


def test_types_in_a_session():
    """An operation and a boolean tensor; a fixed scale decides in Python, so that no conditional is needed."""
    with tf.Graph().as_default():
        update_op, should_apply = scalekeeper.DynamicLossScale().update([tf.constant(1.0)])
        assert isinstance(update_op, tf.Operation)
        assert should_apply.dtype == tf.bool
        update_op, should_apply = scalekeeper.FixedLossScale(8).update([tf.constant(NAN)])
        assert isinstance(update_op, tf.Operation)
        assert should_apply is True


def test_types_in_eager_mode():
    """Tensors, as in TensorFlow; the state stays in NumPy, so that an optimizer in any scope can take it."""
    policy = scalekeeper.DynamicLossScale(8.0)
    update_op, should_apply = policy.update(tf.constant([1.0, NAN]))
    assert update_op is None
    assert (should_apply.dtype, should_apply.numpy()) == (tf.bool, False)
    assert (policy().dtype, policy().numpy()) == (tf.float32, 4.0)
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.5), policy)
    assert float(optimizer.loss_scale) == 4.0


def test_the_repr_in_a_function():
    """It has the parameters, and leaves out the state, which has no value there; and makes no variable."""
    seen, policies = [], [MAKE["ours"](), MAKE["tensorflow"]()]

    @tf.function(autograph=False)
    def step():
        for policy in policies:
            policy()
            seen.append(repr(policy))

    step()
    assert set(seen) == {"DynamicLossScale(initial_loss_scale=8.0, increment_period=2, multiplier=2.0)"}
    policy = scalekeeper.DynamicLossScale(8.0)
    with tf.Graph().as_default() as graph:
        repr(policy)
        assert not graph.get_operations()


def test_the_state_goes_on_in_a_function():
    """Updates in eager mode before and after it count; copies have their own state."""
    policy = scalekeeper.DynamicLossScale(8.0, 3)
    policy.update([1.0])
    step = tf.function(lambda: policy.update(tf.constant(1.0))[1])
    step()
    twin = copy.deepcopy(policy)
    policy.update(tf.constant(1.0))
    assert policy.state() == {"current_loss_scale": 16.0, "good_steps": 0}
    assert twin.state() == {"current_loss_scale": 8.0, "good_steps": 2}
    policy.load_state({"current_loss_scale": 64.0, "good_steps": 2})
    step()
    assert float(policy()) == 128.0


class OwnConstructor(scalekeeper.LossScale):
    """A pure step under other names, without the constructor of the base class."""

    def __init__(self):
        self.start = 16.0

    def initial_state(self):
        return {"level": np.float32(self.start)}

    def scale(self, state, ops):
        return state["level"]

    def next_state(self, state, report, ops):
        return {"level": ops.where(report.finite, state["level"], state["level"] / ops.float32(4))}


class OwnCall(scalekeeper.DynamicLossScale):
    def __call__(self):
        return super().__call__() * 0.5


@pytest.mark.parametrize(("make", "expected"), [(OwnConstructor, 4.0), (lambda: OwnCall(8.0), 2.0)])
def test_policies_of_users_in_functions(make, expected):
    """With their own constructor, names or call."""
    policy = make()

    @tf.function
    def step(gradient):
        update_op, should_apply = policy.update(gradient)
        del update_op
        return should_apply, policy()

    should_apply, scale = step(tf.constant(NAN))
    assert (bool(should_apply), float(scale)) == (False, expected)
    assert type(policy).__name__ in repr(policy)


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_an_optimizer_takes_the_variables_over(kind, tmp_path):
    """It goes on where the policy is, and what it does later is in its own variables, which Keras saves."""
    policy, variable = scalekeeper.DynamicLossScale(8.0, 2), tf.Variable(1.0)
    tf.function(lambda: policy.update(tf.constant(NAN))[1])()
    optimizer = scalekeeper.LossScaleOptimizer(OPTIMIZERS[kind].SGD(0.5), policy)
    assert float(optimizer.loss_scale) == 4.0
    optimizer.apply_gradients([(tf.constant(NAN), variable)])
    assert policy.state() == optimizer.loss_scale.state() == {"current_loss_scale": 2.0, "good_steps": 0}
    assert float(tf.function(lambda: policy())()) == 2.0
    if IS_KERAS_3:
        assert float(optimizer.dynamic_scale.numpy()) == 2.0
        optimizer.dynamic_scale.assign(32.0)
    else:
        path = tf.train.Checkpoint(optimizer=optimizer).save(str(tmp_path / "checkpoint"))
        assert tf.train.load_variable(path, "optimizer/loss_scale/current_loss_scale/.ATTRIBUTES/VARIABLE_VALUE") == 2.0
        policy.load_state({"current_loss_scale": 32.0, "good_steps": 0})
    assert float(policy()) == float(optimizer.loss_scale()) == 32.0


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_a_checkpoint_of_an_optimizer_does_not_track_the_policy_itself(kind, tmp_path):
    """The objects in the file are those from before a policy was Trackable."""
    optimizer = scalekeeper.LossScaleOptimizer(OPTIMIZERS[kind].SGD(0.5), "dynamic")
    optimizer.apply_gradients([(tf.constant(1.0), tf.Variable(1.0))])
    path = tf.train.Checkpoint(optimizer=optimizer).save(str(tmp_path / "checkpoint"))
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.ParseFromString(tf.train.load_checkpoint(path).get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))
    assert not {child.local_name for node in graph.nodes for child in node.children} & {"_policy", "_loss_scale"}
