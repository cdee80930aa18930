"""Whether gradients are finite: exactly, and for every kind of gradient."""

import numpy as np
import pytest
import tensorflow as tf

from scalekeeper.optimizer import LossScaleOptimizer
from scalekeeper.optimizer._step.gradient_stats import measure_gradients
from scalekeeper.optimizer._step.unscale import unscale_gradients
from scalekeeper_test_support.installed_keras import compiled

MAX = np.finfo(np.float32).max


def all_finite(grads):
    return measure_gradients(grads, frozenset({"finite"}))["finite"]


def slices(values, indices):
    return tf.IndexedSlices(tf.constant(values, tf.float32), tf.constant(indices), tf.constant([9]))


CASES = {
    "ordinary": ([[1.0, -2.0], [3.0]], True),
    "nan": ([[1.0], [np.nan]], False),
    "infinities that cancel": ([[np.inf, -np.inf]], False),
    "infinities that cancel across gradients": ([[np.inf], [-np.inf]], False),
    "largest numbers whose sum overflows": ([[MAX, MAX], [MAX]], True),
    "largest numbers and an infinity": ([[MAX, MAX], [MAX], [-np.inf]], False),
    "largest numbers that cancel": ([[MAX, MAX, -MAX, -MAX]], True),
    "denormals": ([[1e-45, -1e-42]], True),
    "empty": ([[]], True),
    "empty beside a bad one": ([[], [np.nan]], False),
    "none at all": ([], True),
}


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("name", sorted(CASES))
def test_dense_gradients(name, traced):
    """The verdict is that of NumPy's isfinite, however the sum comes out."""
    arrays, expected = CASES[name]
    grads = [tf.constant(array, tf.float32) for array in arrays]
    check = tf.function(lambda *grads: all_finite(grads)) if traced else lambda *grads: all_finite(grads)
    assert bool(check(*grads)) is expected is bool(all(np.isfinite(array).all() for array in arrays))


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float64, tf.complex64])
def test_other_types(dtype):
    """Finite, and not, in every floating type."""
    for number, expected in ((2.0, True), (np.nan, False), (np.inf, False)):
        assert bool(all_finite([tf.cast(tf.constant([1.0, number]), dtype)])) is expected


def is_rounded_by_xla(dtype):
    """Return whether XLA rounds a product to its type; that of 2.16 and 2.17 computes float16 in float32."""
    doubled = compiled(lambda number: tf.cast(tf.cast(tf.cast(number, tf.float32) * 2.0, dtype), tf.float32))
    return not np.isfinite(doubled(tf.constant(dtype.max, dtype)))


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64])
def test_products_in_a_compiled_step(dtype):
    """XLA finds what a number becomes by unscaling: also with a scale below 1, and whatever its sign."""
    largest = float(tf.as_dtype(dtype).real_dtype.max)
    numbers = [2.0, -largest, np.inf, -np.inf, np.nan]
    is_kept = dtype in (tf.float16, tf.bfloat16) and not is_rounded_by_xla(dtype)
    for scale, expected in ((2.0, [True, True, False, False, False]), (0.5, [True, is_kept, False, False, False])):

        def check(number, scale=scale):
            unscaled = unscale_gradients([tf.stack([tf.constant(-1.0, dtype), number])], tf.constant(scale))
            return all_finite(unscaled)

        given = [tf.cast(tf.constant(number, tf.float64), dtype) for number in numbers]
        found = [compiled(check)(number) for number in given]
        assert [bool(np.squeeze(verdict)) for verdict in found] == expected


def test_float64_beyond_float32():
    """A float64 gradient that float32 can't hold is finite all the same."""
    assert bool(all_finite([tf.constant([1e300, 1e300], tf.float64)]))
    assert not bool(all_finite([tf.constant([1e300, np.inf], tf.float64)]))


def test_integers_are_finite():
    """There is nothing to check."""
    assert bool(all_finite([tf.constant([2**31 - 1, 2**31 - 1])]))


@pytest.mark.parametrize(
    ("values", "indices", "expected"),
    [
        ([1.0, 2.0], [0, 3], True),
        ([1.0, np.nan], [0, 3], False),
        ([MAX, MAX], [0, 3], True),
        ([MAX, MAX], [3, 3], False),
        ([MAX, -MAX, MAX, -MAX], [3, 4, 3, 4], False),
        ([], [], True),
    ],
)
def test_sparse_gradients(values, indices, expected):
    """Duplicate indices are judged by their sum, which is what will be applied."""
    assert bool(all_finite([slices(values, np.array(indices, np.int32))])) is expected


def test_none_among_the_gradients():
    """A variable without a gradient has nothing to check."""
    assert bool(all_finite([None, tf.constant(1.0)]))


def test_the_largest_finite_gradients_are_applied():
    """A sum that overflows is not an overflow: the step is taken and the scale stays."""
    optimizer = LossScaleOptimizer(tf.keras.optimizers.SGD(1e-37), "dynamic")
    variables = [tf.Variable([0.0, 0.0]), tf.Variable(0.0)]
    optimizer.apply_gradients(zip([tf.constant([MAX, MAX]), tf.constant(MAX)], variables))
    assert optimizer.loss_scale.state() == {"current_loss_scale": 32768.0, "good_steps": 1}
    assert variables[1].numpy() < -30


def test_many_small_gradients_of_several_shapes():
    """One bad number among hundreds is found, wherever it is."""
    grads = [np.ones((number % 3 + 1,), np.float32) for number in range(200)]
    check = tf.function(lambda *grads: all_finite(grads))
    assert bool(check(*map(tf.constant, grads)))
    for place in (0, 57, 199):
        bad = [array.copy() for array in grads]
        bad[place][-1] = np.nan
        assert not bool(check(*map(tf.constant, bad)))


def test_measurements_on_request():
    """The largest magnitude and the share of zeros, as the simulation measures them."""
    grads = [tf.constant([0.0, -4.0]), None, slices([1.0, 1.0], np.array([3, 3], np.int32))]
    measured = measure_gradients(grads, frozenset({"largest_magnitude", "zero_share"}))
    assert {name: float(number) for name, number in measured.items()} == {
        "largest_magnitude": 4.0,
        "zero_share": pytest.approx(1 / 3),
    }


@pytest.mark.parametrize("inner", ["SGD", "Adam"])
def test_a_traced_step_after_a_sum_that_overflows(inner):
    """Finite gradients whose sum is infinite are applied as by the bare optimizer, to the bit; an infinity is not."""
    shapes = [(100, 100), (90, 90), (90, 90), (3,)]
    policy = {"name": "dynamic", "initial_loss_scale": 2.0**100}
    bare = getattr(tf.keras.optimizers, inner)(0.5)
    optimizer = LossScaleOptimizer(getattr(tf.keras.optimizers, inner)(0.5), policy)
    expected, variables = ([tf.Variable(tf.ones(shape)) for shape in shapes] for _ in range(2))

    @tf.function
    def step(grads):
        optimizer.apply_gradients(zip(optimizer.get_unscaled_gradients(grads), variables))

    @tf.function
    def bare_step(grads):
        bare.apply_gradients(zip([grad * 2.0**-100 for grad in grads], expected))

    grads = [tf.fill(shape, 3e38) for shape in shapes]
    step(grads)
    bare_step(grads)
    assert [each.numpy().tolist() for each in variables] == [each.numpy().tolist() for each in expected]
    assert optimizer.loss_scale.state() == {"current_loss_scale": 2.0**100, "good_steps": 1}
    step([grads[0], tf.fill(shapes[1], np.float32(np.inf)), *grads[2:]])
    assert [each.numpy().tolist() for each in variables] == [each.numpy().tolist() for each in expected]
    assert optimizer.loss_scale.state() == {"current_loss_scale": 2.0**99, "good_steps": 0}
    assert (optimizer.telemetry.steps, optimizer.telemetry.skipped) == (2, 1)
