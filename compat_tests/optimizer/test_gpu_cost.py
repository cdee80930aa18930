"""The kernels that a step would start on a GPU, from a build without CUDA, compared with those of builds with it."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from scalekeeper import LossScaleOptimizer
from scalekeeper_test_support.executed_kernels import (
    Input,
    Kernel,
    copies_to_host,
    cost_of,
    executed_kernels,
    recorded_gpu_kernels,
    without_gpu_kernel,
)

GPU_KERNELS = recorded_gpu_kernels()
needs_record = pytest.mark.skipif(not GPU_KERNELS, reason="recorded for 2.3, 2.10, 2.15 and 2.21")
SMALL, MEDIUM, LARGE = [(8,)] * 4, [(80, 80)] * 3, [(300, 300)] * 2


def step_on(make, shapes):
    optimizer = make()
    variables = [tf.Variable(tf.ones(shape)) for shape in shapes]
    grads = [tf.ones(shape) for shape in shapes]
    is_wrapper = isinstance(optimizer, LossScaleOptimizer)

    @tf.function
    def step():
        given = optimizer.get_unscaled_gradients(list(grads)) if is_wrapper else list(grads)
        optimizer.apply_gradients(zip(given, variables))
        return tf.constant(0)

    return step


@functools.lru_cache(maxsize=None)
def kernels(is_wrapped):
    """Return the kernels of a good step on gradients of every size."""

    def make():
        inner = tf.keras.optimizers.SGD(0.5)
        return LossScaleOptimizer(inner, "dynamic") if is_wrapped else inner

    return executed_kernels(functools.partial(step_on, make, SMALL + MEDIUM + LARGE))


@needs_record
@pytest.mark.slow
def test_a_gpu_has_every_kernel():
    """Each operation that starts work has a version for GPUs with its types."""
    assert without_gpu_kernel(kernels(True), GPU_KERNELS) == []


@needs_record
@pytest.mark.slow
def test_nothing_is_copied_to_the_host():
    """No kernel reads in host memory what another one computes on the device, but for the conditional."""
    assert copies_to_host(kernels(True), GPU_KERNELS) == []


@needs_record
@pytest.mark.slow
def test_a_good_step_has_two_conditionals():
    """The host waits for the device where the check decides, and where the step does; 2.21 shows one of them."""
    assert cost_of(kernels(False)).conditionals == 0
    assert cost_of(kernels(True)).conditionals in (1, 2)


@needs_record
@pytest.mark.slow
def test_the_number_of_launches():
    """Beyond the bare step: sums of the stack, of the added and of two large gradients, products, and 21 on scalars."""
    excess = cost_of(kernels(True)).launches - cost_of(kernels(False)).launches
    sums, products, stacking = 1 + 2 + 2, 1 + 3 + 2, 2
    assert excess <= sums + products + stacking + 21


@needs_record
@pytest.mark.slow
def test_the_bytes_that_are_moved():
    """Beyond the bare step: large and added gradients are read once to check them, and products read and written."""
    small, medium, large = (4 * np.prod(shapes[0]) for shapes in (SMALL, MEDIUM, LARGE))
    checked = 2 * large + (3 + 1 + 1) * medium
    stacked = 4 * small * (2 + 2 + 1 + 2)  # stacking, product, sum, taking apart
    scalars = 1000
    excess = cost_of(kernels(True)).bytes - cost_of(kernels(False)).bytes
    assert excess <= checked + 2 * (2 * large + 3 * medium) + stacked + scalars


@needs_record
@pytest.mark.slow
def test_no_float64():
    """GPUs compute in float64 slowly, and a good step does not."""
    assert [each.name for each in kernels(True) if each.is_launched and "float64" in each.types.values()] == []


TABLE = {
    "Sum": [{"types": {"T": ["float32"]}, "host": ["reduction_indices"]}],
    "Less": [{"types": {"T": ["float32"]}, "host": []}],
    "Switch": [{"types": {}, "host": ["pred"]}],
}


def test_a_missing_kernel_is_found():
    """By its type, and by the types that it computes in; what starts nothing needs none."""
    found = [Kernel("a", "Sum", {"T": "float32"}), Kernel("b", "Sum", {"T": "complex64"}), Kernel("c", "Unknown")]
    assert without_gpu_kernel([*found, Kernel("d", "Identity")], TABLE) == [
        "Sum {'T': 'complex64'}",
        "Unknown {}",
    ]


def test_a_copy_to_the_host_is_found():
    """A number that is computed on the device, but not a predicate, a constant or an int32."""

    def axis(op, dtype="float32"):
        return Input("reduction_indices", "x", op, {"T": dtype}, "z", dtype)

    sums = [Kernel("sum", "Sum", {"T": "float32"}, 0, (each,)) for each in (axis("Const"), axis("Less", "int32"))]
    switch = Kernel("switch", "Switch", {}, 0, (Input("pred", "x", "Less", {"T": "float32"}, "z", "bool"),))
    assert copies_to_host([*sums, switch], TABLE) == []
    wrong = Kernel("wrong", "Sum", {"T": "float32"}, 0, (axis("Less"),))
    assert copies_to_host([*sums, wrong], TABLE) == ["Sum.reduction_indices from Less: wrong from x"]


def test_costs_are_sums():
    """Launches and bytes of what starts work, and each predicate once."""
    pred = Input("pred", "less", "Less", {}, "z", "bool")
    switches = [Kernel(name, "Switch", {}, 8, (pred,)) for name in "ab"]
    assert cost_of([Kernel("s", "Sum", {}, 12), Kernel("t", "Sum", {}, 4), *switches]) == (2, 16, 1)
