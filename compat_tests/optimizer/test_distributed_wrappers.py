"""Inner optimizers that average gradients over workers: once per step, before the decision, outside of any branch."""

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support import installed_keras
from scalekeeper_test_support.distributed_wrapper import Wire, distributed, shapes

pytestmark = pytest.mark.each_environment  # which wrappers there are depends on the version

KINDS = sorted(installed_keras.OPTIMIZERS)
COMPUTING = ("compute_gradients", "_compute_gradients")


def sgd(kind):
    return installed_keras.OPTIMIZERS[kind].SGD(0.5)


class Training:
    """One weight, whose loss is 3 times the weight, and a wrapper with one imagined other worker."""

    def __init__(self, kind, shape, is_wrapped=True):
        self.wire = Wire()
        self.inner = distributed(sgd(kind), shape, self.wire)
        policy = scalekeeper.DynamicLossScale(8, increment_period=100)
        self.optimizer = LossScaleOptimizer(self.inner, policy) if is_wrapped else self.inner
        self.weight = None

    def exchanges(self):
        return int(self.wire.exchanges.numpy())


def fit(training, run_eagerly):
    """Return a function that takes one step in ``fit``."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", input_shape=(1,))])
    options = {"run_eagerly": True} if run_eagerly else {}
    model.compile(training.optimizer, lambda true, predicted: 3.0 * predicted, **options)
    (training.weight,) = model.trainable_weights
    return lambda: model.fit(np.ones([1, 1]), np.ones([1, 1]), epochs=1, verbose=0)


def minimize(training, run_eagerly):
    """Return a function that takes one step by ``minimize``."""
    training.weight = tf.Variable([[1.0]])
    step = lambda: training.optimizer.minimize(lambda: 3.0 * tf.reduce_sum(training.weight), [training.weight])  # noqa: E731
    return _traced(step, run_eagerly)


def loop(training, run_eagerly):
    """Return a function that takes one step by ``apply_gradients``."""
    training.weight, optimizer = tf.Variable([[1.0]]), training.optimizer

    def step():
        with tf.GradientTape() as tape:
            loss = 3.0 * tf.reduce_sum(training.weight)
            loss = optimizer.get_scaled_loss(loss) if optimizer is not training.inner else loss
        grads = tape.gradient(loss, [training.weight])
        grads = optimizer.get_unscaled_gradients(grads) if optimizer is not training.inner else grads
        optimizer.apply_gradients(zip(grads, [training.weight]))

    return _traced(step, run_eagerly)


def _traced(step, run_eagerly):
    def without_result():
        step()

    return without_result if run_eagerly else tf.function(without_result, autograph=False)


WAYS = {"fit": fit, "minimize": minimize, "loop": loop}


# A loop that differentiates by itself calls no method that computes gradients.
CASES = [
    (kind, shape, way)
    for kind in KINDS
    for shape in shapes(sgd(kind))
    for way in sorted(WAYS)
    if way != "loop" or shape not in COMPUTING
]


def weight_of(training):
    return float(np.squeeze(training.weight.numpy()))


@pytest.mark.parametrize("run_eagerly", [False, True], ids=["traced", "eager"])
@pytest.mark.parametrize(("kind", "shape", "way"), CASES)
def test_workers_exchange_gradients_once_in_every_step(kind, shape, way, run_eagerly):
    """Applied and skipped steps exchange gradients once, and a NaN of the other worker makes this one skip."""
    training = Training(kind, shape)
    step = WAYS[way](training, run_eagerly)
    step()
    assert (training.exchanges(), weight_of(training)) == (1, 1.0 - 0.5 * 6.0)
    training.wire.poison.assign(float("nan"))
    step()
    assert (training.exchanges(), weight_of(training)) == (2, -2.0)
    assert training.optimizer.loss_scale.state() == {"current_loss_scale": 4.0, "good_steps": 0}
    training.wire.poison.assign(0.0)
    step()
    assert (training.exchanges(), weight_of(training)) == (3, -5.0)


@pytest.mark.parametrize(("kind", "shape", "way"), [case for case in CASES if not installed_keras.IS_KERAS_3])
def test_the_wrapper_is_called_as_often_as_without_a_loss_scale(kind, shape, way):
    """Weights, exchanges and calls of ``apply_gradients`` are those of the wrapper alone."""
    found = []
    for is_wrapped in (True, False):
        training = Training(kind, shape, is_wrapped)
        step = WAYS[way](training, True)
        for _ in range(2):
            step()
        found.append((weight_of(training), training.exchanges(), training.inner.applied))
    assert found[0] == found[1] == (-5.0, 2, 2)


@pytest.mark.parametrize(("kind", "shape"), sorted({(kind, shape) for kind, shape, _ in CASES if shape in COMPUTING}))
def test_a_loop_that_differentiates_by_itself_exchanges_nothing(kind, shape):
    """A wrapper that exchanges gradients where it computes them is not asked for them, as without a loss scale."""
    for is_wrapped in (True, False):
        training = Training(kind, shape, is_wrapped)
        loop(training, True)()
        assert (training.exchanges(), weight_of(training)) == (0, -0.5)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if hasattr(sgd(kind), "get_gradients")])
def test_get_updates_asks_the_wrapper_for_gradients(kind):
    """In a graph ``get_gradients`` of the wrapper is called once, before the decision and outside of the branch."""
    training = Training(kind, "get_gradients")
    training.weight = tf.Variable([[1.0]])

    @tf.function(autograph=False)
    def step():
        training.optimizer.get_updates(3.0 * tf.reduce_sum(training.weight), [training.weight])

    for poison, weight in ((0.0, -2.0), (float("nan"), -2.0), (0.0, -5.0)):
        training.wire.poison.assign(poison)
        step()
        assert weight_of(training) == weight
    assert training.exchanges() == 3


@pytest.mark.skipif(bool(shapes(sgd(KINDS[0]))), reason="from 2.2 on, Keras calls the methods of the wrapper")
def test_a_wrapper_that_is_not_asked_for_gradients_raises_its_error():
    """In 2.0 and 2.1 only ``get_updates`` asks for gradients: another step ends with the wrapper's own error."""
    for way in (minimize, loop):
        with pytest.raises(RuntimeError, match="without get_gradients"):
            way(Training("default", "get_gradients"), False)()


@pytest.mark.skipif(not installed_keras.IS_KERAS_3, reason="Keras 2 calls these methods")
def test_methods_that_keras_3_does_not_call_are_refused_in_fit():
    """A wrapper for Keras 2 would train apart: the error names the method, and the one to write instead."""
    for shape in ("compute_gradients", "_aggregate_gradients"):
        with pytest.raises(scalekeeper.ArgumentError, match=f"has {shape}, which Keras 3 never calls.*aggregate_gradi"):
            fit(Training("default", shape), False)()


@pytest.mark.skipif(not installed_keras.IS_KERAS_3, reason="Keras 2 has this method")
def test_minimize_asks_an_optimizer_of_keras_3_that_computes_gradients():
    """An inner optimizer with ``compute_gradients`` is asked for them by ``minimize``, once in every step."""
    wire = Wire()

    class Computing(tf.keras.optimizers.SGD):
        def compute_gradients(self, loss, var_list, tape=None):
            return list(zip(wire.sum(tape.gradient(loss, var_list)), var_list))

    optimizer, weight = LossScaleOptimizer(Computing(0.5), "dynamic"), tf.Variable([[1.0]])
    for poison, expected in ((0.0, -2.0), (float("nan"), -2.0)):
        wire.poison.assign(poison)
        optimizer.minimize(lambda: 3.0 * tf.reduce_sum(weight), [weight])
        assert weight.numpy().tolist() == [[expected]]
    assert wire.exchanges.numpy() == 2


class Communicating:
    """Sums the gradients over a group of workers, of which this is the only one, while it applies them."""

    def apply_gradients(self, grads_and_vars, *args, **kwargs):
        return super().apply_gradients(
            [(_summed(grad), variable) for grad, variable in grads_and_vars], *args, **kwargs
        )


def _summed(grad):
    numbers = {"group_size": 1, "group_key": 1, "instance_key": 1, "subdiv_offsets": [0]}
    return tf.raw_ops.CollectiveReduce(input=grad, merge_op="Add", final_op="Id", **numbers)


@pytest.mark.parametrize("kind", KINDS)
def test_an_exchange_after_the_decision_is_refused(kind):
    """Tracing a step whose inner optimizer communicates in ``apply_gradients`` raises an error with the remedy."""
    cls = type("Late", (Communicating, installed_keras.OPTIMIZERS[kind].SGD), {})
    optimizer, weight = LossScaleOptimizer(cls(0.5), "dynamic"), tf.Variable([1.0])
    step = tf.function(lambda: optimizer.apply_gradients([(weight * 3.0, weight)]), autograph=False)
    with pytest.raises(
        scalekeeper.StrategyError, match=r"\(CollectiveReduce\) after the decision.*aggregate_gradients"
    ):
        step()
    assert weight.numpy() == [1.0]


@pytest.mark.parametrize("kind", KINDS)
def test_an_exchange_with_a_scale_that_never_skips_is_allowed(kind):
    """There is no decision to agree on: the step of a fixed loss scale is traced, with the exchange."""
    cls = type("Late", (Communicating, installed_keras.OPTIMIZERS[kind].SGD), {})
    optimizer, weight = LossScaleOptimizer(cls(0.5), 8), tf.Variable([1.0])

    @tf.function(autograph=False)
    def step():
        optimizer.apply_gradients([(weight * 3.0, weight)])

    graph = step.get_concrete_function().graph
    assert [each.type for each in graph.get_operations()].count("CollectiveReduce") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_inner_optimizers_own_apply_gradients_is_called(kind):
    """A subclass that changes gradients in ``apply_gradients`` does so inside a loss scale, too, on every Keras."""

    class Halving(installed_keras.OPTIMIZERS[kind].SGD):
        def apply_gradients(self, grads_and_vars, *args, **kwargs):
            return super().apply_gradients([(grad / 2.0, each) for grad, each in grads_and_vars], *args, **kwargs)

    optimizer, weight = LossScaleOptimizer(Halving(1.0), "dynamic"), tf.Variable(1.0)
    for grad, expected in ((1.0, 0.5), (float("inf"), 0.5), (3.0, -1.0)):
        optimizer.apply_gradients([(tf.constant(grad), weight)])
        assert weight.numpy() == expected
