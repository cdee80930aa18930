"""Unscaling is put off until gradients are applied, and small ones travel together: nobody must see a difference."""

import numpy as np
import pytest
import tensorflow as tf

from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper_test_support import installed_keras

SMALL = {"name": "dynamic", "initial_loss_scale": 2.0**-10, "minimum": 2.0**-12}


def wrapped(loss_scale=8.0):
    return LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), loss_scale)


def traced(function, is_traced):
    return tf.function(function) if is_traced else function


@pytest.fixture(params=[False, True], ids=["eager", "traced"])
def is_traced(request):
    return request.param


@pytest.mark.parametrize("has_sparse", [True, False], ids=["with sparse", "dense only"])
@pytest.mark.parametrize("loss_scale", [8.0, {"name": "dynamic", "initial_loss_scale": 8.0}], ids=["fixed", "dynamic"])
def test_gradients_of_every_kind_in_their_order(is_traced, loss_scale, has_sparse):
    """Many of one shape, a few of another, large, scalar, sparse: each variable gets its own gradient, unscaled."""
    shapes = [(3,), (2, 2), (), (3,), (3,), (70, 70), (3,), (2, 2), (3,), (3,), ()]
    optimizer = wrapped(loss_scale)
    variables = [tf.Variable(tf.zeros(shape)) for shape in [*shapes, (5, 2)]]
    applied = variables if has_sparse else variables[:-1]

    def step():
        grads = [tf.fill(shape, 8.0 * (place + 1)) for place, shape in enumerate(shapes)]
        grads.append(tf.IndexedSlices(tf.fill([2, 2], 80.0), tf.constant([1, 3]), tf.constant([5, 2])))
        optimizer.apply_gradients(zip(optimizer.get_unscaled_gradients(grads[: len(applied)]), applied))

    traced(step, is_traced)()
    for place, variable in enumerate(variables[:-1]):
        np.testing.assert_array_equal(variable.numpy(), np.full(shapes[place], -(place + 1.0)))
    np.testing.assert_array_equal(variables[-1].numpy()[:, 0], [0, -10, 0, -10, 0] if has_sparse else [0] * 5)


def test_unscaled_gradients_can_be_looked_at_and_applied(is_traced):
    """The gradients that the caller computes from them are applied."""
    optimizer, variables = wrapped(), [tf.Variable(tf.zeros(3)) for _ in range(6)]

    def step():
        grads = optimizer.get_unscaled_gradients([tf.fill([3], 16.0) for _ in variables])
        optimizer.apply_gradients(zip(grads, variables))
        return tf.linalg.global_norm(grads)

    assert float(traced(step, is_traced)()) == pytest.approx(2.0 * 18**0.5)
    assert all(variable.numpy().tolist() == [-2.0] * 3 for variable in variables)


def test_what_the_caller_makes_of_them_counts(is_traced):
    """Gradients that were clipped after unscaling are applied clipped; plain ones may be among them."""
    optimizer, variables = wrapped(), [tf.Variable(0.0), tf.Variable(0.0), tf.Variable(0.0)]

    def step():
        first, second = optimizer.get_unscaled_gradients([tf.constant(16.0), tf.constant(80.0)])
        grads = [first, tf.clip_by_value(second, -1.0, 1.0), tf.constant(3.0)]
        optimizer.apply_gradients(zip(grads, variables))

    traced(step, is_traced)()
    assert [float(variable.numpy()) for variable in variables] == [-2.0, -1.0, -3.0]


def test_gradients_that_pass_into_another_function():
    """The one that unscales and the one that applies need not be the same."""
    optimizer, variable = wrapped(), tf.Variable(0.0)

    @tf.function
    def apply(grad):
        optimizer.apply_gradients([(grad, variable)])

    @tf.function
    def step():
        (grad,) = optimizer.get_unscaled_gradients([tf.constant(16.0)])
        apply(grad)

    step()
    assert variable.numpy() == -2.0


@pytest.mark.parametrize("is_due", [True, False])
def test_gradients_that_are_applied_in_a_branch(is_due):
    """A caller's own conditional around apply_gradients holds."""
    optimizer, variable = wrapped("dynamic"), tf.Variable(0.0)

    @tf.function
    def step(is_due):
        grads = optimizer.get_unscaled_gradients([tf.constant(2.0**16)])
        if is_due:
            optimizer.apply_gradients(zip(grads, [variable]))

    step(tf.constant(is_due))
    assert variable.numpy() == (-2.0 if is_due else 0.0)
    assert optimizer.loss_scale.state()["good_steps"] == (1 if is_due else 0)


@pytest.mark.parametrize("count", [1, 6], ids=["alone", "packed"])
def test_a_scale_below_one_can_make_a_finite_gradient_infinite(is_traced, count):
    """The unscaled gradient is what counts: 1e36 divided by 2**-10 is skipped, 1e30 is applied."""
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(1e-30), SMALL)
    variables = [tf.Variable(0.0) for _ in range(count)]

    def step(value):
        grads = optimizer.get_unscaled_gradients([value] * count)
        optimizer.apply_gradients(zip(grads, variables))

    step = traced(step, is_traced)
    step(tf.constant(1e36))
    assert [float(variable.numpy()) for variable in variables] == [0.0] * count
    assert optimizer.loss_scale.state() == {"current_loss_scale": 2.0**-11, "good_steps": 0}
    step(tf.constant(1e30))
    assert [float(variable.numpy()) for variable in variables] == pytest.approx([-2048.0] * count)
    assert optimizer.loss_scale.state() == {"current_loss_scale": 2.0**-11, "good_steps": 1}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 5, 9, 10])
def test_one_bad_gradient_among_packed_ones(bad, place):
    """It is found wherever it is, and no variable moves."""
    optimizer, variables = wrapped("dynamic"), [tf.Variable(tf.ones(2 if place < 10 else 5000)) for place in range(11)]

    @tf.function
    def step(bad_place):
        values = [tf.where(tf.equal(bad_place, each), bad, 1.0) for each in range(11)]
        grads = [tf.ones_like(variable) * value for variable, value in zip(variables, values)]
        optimizer.apply_gradients(zip(optimizer.get_unscaled_gradients(grads), variables))

    step(tf.constant(place))
    assert all((variable.numpy() == 1.0).all() for variable in variables)
    step(tf.constant(-1))
    assert all((variable.numpy() < 1.0).all() for variable in variables)
    assert optimizer.loss_scale.state() == {"current_loss_scale": 2.0**14, "good_steps": 1}


@pytest.mark.parametrize("dtype", [tf.float16, tf.float64])
def test_other_types(is_traced, dtype):
    """The product is made in float32 for float16 gradients, whose reciprocal scale would vanish there."""
    optimizer, variables = wrapped(2.0**15), [tf.Variable(tf.zeros(2, dtype)) for _ in range(5)]

    def step():
        grads = optimizer.get_unscaled_gradients([tf.fill([2], tf.constant(2.0**14, dtype)) for _ in variables])
        optimizer.apply_gradients(zip(grads, variables))

    traced(step, is_traced)()
    assert all(variable.numpy().tolist() == [-0.5, -0.5] for variable in variables)


@pytest.mark.parametrize("count", [1, 8, 5000])
def test_xla_unscales_in_order(count):
    """At the largest scale, its reciprocal times any other factor of the gradient would be zero."""
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(0.5), {"name": "dynamic", "initial_loss_scale": 2.0**126})
    variable = tf.Variable(tf.zeros([count]))
    # XLA compiles no function that makes variables
    optimizer.apply_gradients([(tf.zeros([count]), variable)])

    def step(factor):
        with tf.GradientTape() as tape:
            loss = optimizer.get_scaled_loss(tf.reduce_sum(factor * variable))
        grads = optimizer.get_unscaled_gradients(tape.gradient(loss, [variable]))
        optimizer.apply_gradients(zip(grads, [variable]))
        return factor

    installed_keras.compiled(step)(tf.fill([count], 0.25))
    np.testing.assert_array_equal(variable.numpy(), np.full(count, -0.125))
