"""The operations in the graph of a traced step, and how often it is traced."""

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support import installed_keras

# what calls Python, and what moves a tensor to the host or waits for one from there
FORBIDDEN = {
    *("PyFunc", "PyFuncStateless", "EagerPyFunc", "NumpyFunction"),
    *("_Send", "_Recv", "_HostSend", "_HostRecv", "Send", "Recv", "Copy", "CopyHost", "_XlaHostCompute"),
    *("OutfeedEnqueue", "InfeedDequeue", "Print", "PrintV2", "Assert"),
}
INNER_OPTIMIZERS = {
    "SGD": lambda: tf.keras.optimizers.SGD(0.1, momentum=0.9),
    "Adam": lambda: tf.keras.optimizers.Adam(0.1),
}
if "legacy" in installed_keras.OPTIMIZERS:
    INNER_OPTIMIZERS["legacy Adam"] = lambda: installed_keras.OPTIMIZERS["legacy"].Adam(0.1)
POLICIES = {
    "dynamic": lambda: scalekeeper.DynamicLossScale(1024, increment_period=2),
    "fixed": lambda: scalekeeper.FixedLossScale(8),
    "fixed that skips": lambda: scalekeeper.FixedLossScale(8, skip_nonfinite=True),
}


class Training:
    """A dense and an embedded variable, and a traced step with a fixed signature."""

    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.kernel = tf.Variable([1.0, -2.0])
        self.table = tf.Variable([[1.0, 1.0], [2.0, 2.0]])
        self.traces = 0
        signature = [tf.TensorSpec([2], tf.float32)]
        self.step = tf.function(self._step, autograph=False, input_signature=signature)

    def _step(self, features):
        self.traces += 1
        variables = [self.kernel, self.table]
        with tf.GradientTape() as tape:
            rows = tf.gather(self.table, [1, 1])
            loss = self._scaled(tf.reduce_sum(tf.square(self.kernel * features)) + tf.reduce_sum(rows * features))
        self.optimizer.apply_gradients(zip(self._unscaled(tape.gradient(loss, variables)), variables))

    def _scaled(self, loss):
        return self.optimizer.get_scaled_loss(loss)

    def _unscaled(self, grads):
        return self.optimizer.get_unscaled_gradients(grads)


class BareTraining(Training):
    """The same with no loss scale."""

    def _scaled(self, loss):
        return loss

    def _unscaled(self, grads):
        return grads


@pytest.fixture(params=sorted(INNER_OPTIMIZERS))
def inner(request):
    return INNER_OPTIMIZERS[request.param]


@pytest.fixture(params=sorted(POLICIES))
def training(inner, request):
    return Training(LossScaleOptimizer(inner(), POLICIES[request.param]()))


def nodes_of(function):
    """All operations of a traced function, with those of the functions that it calls and of its branches."""
    definition = function.get_concrete_function().graph.as_graph_def()
    library = {each.signature.name: list(each.node_def) for each in definition.library.function}
    nodes = list(definition.node)
    for each in library.values():
        nodes.extend(each)
    called = {value.func.name for node in nodes for value in node.attr.values() if value.func.name}
    called |= {function.name for node in nodes for value in node.attr.values() for function in value.list.func}
    assert called <= set(library)  # so nothing that is called was left out
    return nodes


def writes(operation):
    """Whether an operation of this name changes a variable: new optimizers assign, older ones have their own."""
    return operation.startswith(("ResourceApply", "ResourceSparseApply", "ResourceScatter", "Assign"))


def test_a_traced_step_holds_no_python_and_no_transfer(training):
    """No operation of the step, at any depth, calls Python or moves a tensor to the host."""
    training.step(tf.constant([1.0, 2.0]))
    assert {node.op for node in nodes_of(training.step)} & FORBIDDEN == set()


def test_the_look_into_the_graph_finds_what_is_in_a_branch(inner):
    """The test above would see a py_function: one in a gradient's branch is found."""

    class Peeking(scalekeeper.DynamicLossScale):
        def should_apply(self, state, report, ops):
            return tf.cond(report.finite, lambda: tf.py_function(lambda: True, [], tf.bool), lambda: tf.constant(False))

    training = Training(LossScaleOptimizer(inner(), Peeking()))
    training.step(tf.constant([1.0, 2.0]))
    assert {node.op for node in nodes_of(training.step)} & FORBIDDEN == {"EagerPyFunc"}


def test_the_update_is_in_a_branch_and_the_state_is_not(inner):
    """A dynamic scale gates the inner optimizer's update by one conditional; the new state needs none."""
    training = Training(LossScaleOptimizer(inner(), POLICIES["dynamic"]()))
    training.step(tf.constant([1.0, 2.0]))
    outer = training.step.get_concrete_function().graph.as_graph_def().node
    operations = [node.op for node in outer]
    assert operations.count("If") == 1
    assert [name for name in operations if writes(name)] == ["AssignVariableOp"] * 2
    # the kernel, the table and the iterations are three more
    assert len([node for node in nodes_of(training.step) if writes(node.op)]) >= 2 + 3


def test_a_step_is_traced_once_for_good_and_bad_gradients(training, inner):
    """After the first call nothing is traced again, and that traces as often as with the bare optimizer."""
    bare = BareTraining(inner())
    bare.step(tf.constant([1.0, 2.0]))
    training.step(tf.constant([1.0, 2.0]))
    assert training.traces == bare.traces
    for features in ([2.0, 1.0], [1.0, np.nan], [np.inf, 1.0], [0.0, 0.0], [3.0, 4.0]):
        training.step(tf.constant(features, tf.float32))
    assert training.traces == bare.traces


def test_a_step_with_all_variables_there_is_traced_exactly_once(inner):
    """When an eager step has made the slots, a new traced function is traced one time."""
    training = Training(LossScaleOptimizer(inner(), "dynamic"))
    training._step(tf.constant([1.0, 2.0]))
    training.traces = 0
    for features in ([1.0, 2.0], [1.0, np.nan], [2.0, 1.0]):
        training.step(tf.constant(features, tf.float32))
    assert training.traces == 1


def test_another_signature_is_one_more_graph(inner):
    """A step with no fixed signature has one graph for each shape of its input, and goes back to the first."""
    optimizer, variable, traces = LossScaleOptimizer(inner(), "dynamic"), tf.Variable(1.0), []

    @tf.function(autograph=False)
    def step(features):
        traces.append(features.shape[0])
        optimizer.apply_gradients([(tf.reduce_sum(features), variable)])

    optimizer.apply_gradients([(tf.constant(0.0), variable)])
    for size in (2, 3, 2, 3, 2):
        step(tf.ones([size]))
    assert traces == [2, 3]


def test_traced_steps_equal_eager_ones(inner):
    """Finite and non-finite steps give the same weights, scale and iterations in a graph and without one."""
    traced, eager = (Training(LossScaleOptimizer(inner(), POLICIES["dynamic"]())) for _ in range(2))
    for features in ([1.0, 2.0], [1.0, np.nan], [0.5, 1.0], [-np.inf, 1.0], [1.0, 1.0], [2.0, 0.25]):
        traced.step(tf.constant(features, tf.float32))
        eager._step(tf.constant(features, tf.float32))
        np.testing.assert_allclose(traced.kernel.numpy(), eager.kernel.numpy(), rtol=1e-6)
        np.testing.assert_allclose(traced.table.numpy(), eager.table.numpy(), rtol=1e-6)
        assert traced.optimizer.loss_scale.state() == eager.optimizer.loss_scale.state()
        assert traced.optimizer.iterations.numpy() == eager.optimizer.iterations.numpy()
    assert traced.optimizer.loss_scale.state() == {"current_loss_scale": 512.0, "good_steps": 0}
