"""Count what a step without overflow starts and moves on a GPU, and check that a GPU can run it. Needs no GPU.

    python benchmarks/gpu_cost.py [--sets …] [--record]

Run it in an environment with a build of TensorFlow that has CUDA (the package ``tensorflow``, not ``tensorflow-cpu``).
For the bare optimizer, TensorFlow's LossScaleOptimizer and scalekeeper's it prints the operations that start work, the
bytes that they read and write, and the conditionals, at which the host waits for the device.

It fails if an operation of scalekeeper's has no version for a GPU, if one wants a number in host memory that is
computed on the device, or if a limit is exceeded. It tries every policy in a traced step, and the dynamic one in eager
mode, in ``fit`` and with two replicas. ``--record`` writes the figures to benchmarks/results/, and the kernels that
GPUs have to benchmarks/gpu_kernels.json, which the tests of other builds use.
"""

from typing import Any, Callable, Dict, List, Mapping, Sequence, Set

import functools
import itertools

import numpy as np
import tensorflow as tf
from step_overhead import INNER, SETS, traced_step

from scalekeeper import LossScaleOptimizer
from scalekeeper.registry import loss_scales
from scalekeeper_test_support.benchmark_results import machine, parser, record
from scalekeeper_test_support.executed_kernels import (
    Kernel,
    copies_to_host,
    cost_of,
    eagerly_executed_kernels,
    executed_kernels,
    record_gpu_kernels,
    registered_gpu_kernels,
    without_gpu_kernel,
)
from scalekeeper_test_support.installed_keras import upstream

# The most that scalekeeper may start beyond the bare optimizer: unscaling takes 1 product, 81 or 8.
LIMITS = {"many": 21, "mix": 107, "big": 37}
# The most that it may move beyond the bare optimizer: half a megabyte for stacking, and otherwise 12 bytes for each
# number, where TensorFlow's class moves 14.
MEGABYTES = {"many": 0.5, "mix": 65.0, "big": 403.0}
SHAPES = [(8, 8)] * 5 + [(300, 300)] * 3 + [(100, 100)] * 2
REQUIRED = {"fixed": {"loss_scale_value": 8.0}, "scheduled": {"values": [64.0, 8.0], "boundaries": [50]}}


def policies() -> List[Any]:
    """Return a spec of every built-in policy and preset."""
    names = [row.name for row in loss_scales.listing() if row.origin == "built in"]
    return [{"name": name, **REQUIRED.get(name, {})} for name in names]


def sgd() -> Any:
    return tf.keras.optimizers.SGD(1e-6)


def step_with(make: Callable[[], Any], shapes: List[Any]) -> Callable[[], Any]:
    """Return a traced step of a new optimizer."""
    return traced_step(make(), shapes)


def table(sets: List[str]) -> List[Dict[str, Any]]:
    """Print and return what a traced step costs, and check it against the limits."""
    rows = []
    print(f"{'set':<5} {'optimizer':<9} {'':<5} {'launches':>9} {'megabytes':>10} {'conditionals':>12}")
    for name, inner in itertools.product(sets, INNER):
        make = getattr(tf.keras.optimizers, inner)
        wrapped: Dict[str, Callable[[], Any]] = {
            "bare": lambda make=make: make(1e-6),
            "own": lambda make=make: upstream(make(1e-6)),
            "ours": lambda make=make: LossScaleOptimizer(make(1e-6), "dynamic"),
        }
        row: Dict[str, Any] = {"set": name, "optimizer": inner}
        for who, made in wrapped.items():
            cost = cost_of(executed_kernels(functools.partial(step_with, made, SETS[name])))
            row[who] = list(cost)
            print(
                f"{name:<5} {inner:<9} {who:<5} {cost.launches:>9} {cost.bytes / 1e6:>10.1f} {cost.conditionals:>12}",
                flush=True,
            )
        rows.append(row)
        excess = row["ours"][0] - row["bare"][0]
        moved = (row["ours"][1] - row["bare"][1]) / 1e6
        if excess > LIMITS[name] or moved > MEGABYTES[name] or row["ours"][2] > row["bare"][2] + 2:
            raise SystemExit(
                f"{name} {inner}: {excess} launches (limit {LIMITS[name]}), {moved:.1f} megabytes (limit "
                f"{MEGABYTES[name]}), {row['ours'][2]} conditionals (limit 2)"
            )
    return rows


def eager_step(optimizer: Any) -> Callable[[], Any]:
    """Return a step in eager mode."""
    variables = [tf.Variable(tf.ones(shape)) for shape in SHAPES]
    grads = [tf.ones(shape) for shape in SHAPES]
    is_wrapper = isinstance(optimizer, LossScaleOptimizer)

    def step() -> Any:
        unscaled = optimizer.get_unscaled_gradients(grads) if is_wrapper else grads
        return optimizer.apply_gradients(zip(unscaled, variables))

    return step


def fit_step(optimizer: Any) -> Callable[[], Any]:
    """Return a training step of a small model."""
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(8), tf.keras.layers.Dense(1)])
    model.compile(optimizer, loss="mse")
    inputs, targets = np.ones((8, 4), np.float32), np.ones((8, 1), np.float32)
    return lambda: model.train_on_batch(inputs, targets)


def replicated_step(make: Callable[[], Any]) -> Callable[[], Any]:
    """Return a step on two replicas."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        optimizer = make()
        variables = [tf.Variable(tf.ones(shape)) for shape in SHAPES]
    grads = [tf.ones(shape) for shape in SHAPES]
    is_wrapper = isinstance(optimizer, LossScaleOptimizer)
    if hasattr(optimizer, "build"):
        with strategy.scope():
            optimizer.build(variables)

    @tf.function
    def step() -> Any:
        def in_replica() -> Any:
            unscaled = optimizer.get_unscaled_gradients(list(grads)) if is_wrapper else list(grads)
            optimizer.apply_gradients(zip(unscaled, variables))

        strategy.run(in_replica)
        return tf.constant(0)

    return step


def examined() -> Dict[str, List[Kernel]]:
    """Return the kernels of a step with every policy, and with the dynamic one in every mode."""
    found = {
        f"{spec['name']}, traced": executed_kernels(
            functools.partial(step_with, lambda spec=spec: LossScaleOptimizer(sgd(), spec), SHAPES)
        )
        for spec in policies()
    }

    def ours() -> Any:
        return LossScaleOptimizer(sgd(), "dynamic")

    found["dynamic, eager"] = eagerly_executed_kernels(eager_step(ours()))
    found["dynamic, fit"] = executed_kernels(lambda: fit_step(ours()))
    found["dynamic, two replicas"] = executed_kernels(lambda: replicated_step(ours))
    return found


def faults(found: Mapping[str, List[Kernel]], gpu_kernels: Any, of_keras: Sequence[Kernel]) -> Set[str]:
    """Print for each step how many kernels it has; return what a GPU could not run or would have to copy.

    Args:
        found: The kernels of each step.
        gpu_kernels: The kernels that a GPU has.
        of_keras: The kernels of ``fit`` with a bare optimizer. It prepares data on the host.
    """
    wrong = set()
    expected = set(without_gpu_kernel(of_keras, gpu_kernels))
    for name, kernels in found.items():
        cost = cost_of(kernels)
        missing = [each for each in without_gpu_kernel(kernels, gpu_kernels) if each not in expected]
        copied = copies_to_host(kernels, gpu_kernels)
        print(
            f"{name:<38} {cost.launches:>4} launches, {cost.conditionals} conditionals, "
            f"{len(missing)} without a version for a GPU, {len(copied)} copied to the host",
            flush=True,
        )
        wrong.update(f"{name}: {each}" for each in [*missing, *copied])
    return wrong


def main() -> None:
    arguments = parser(__doc__, seconds=0.0)
    arguments.add_argument("--sets", nargs="*", default=list(SETS))
    options = arguments.parse_args()
    print(machine())
    if not registered_gpu_kernels(["MatMul"])["MatMul"]:
        raise SystemExit("this build of TensorFlow has no CUDA: install tensorflow, not tensorflow-cpu")
    tf.config.experimental.set_virtual_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.experimental.VirtualDeviceConfiguration()] * 2
    )
    found = examined()
    of_keras = executed_kernels(lambda: fit_step(sgd()))
    steps_of_all = [*found.values(), of_keras]
    ops = {op for kernels in steps_of_all for each in kernels for op in (each.op, *(one.op for one in each.inputs))}
    wrong = faults(found, registered_gpu_kernels(ops), of_keras)
    if wrong:
        raise SystemExit("\n".join(sorted(wrong)))
    steps = [
        {"step": name, "launches": cost_of(kernels).launches, "conditionals": cost_of(kernels).conditionals}
        for name, kernels in found.items()
    ]
    rows = table(options.sets)
    if options.record:
        record("gpu_cost", rows)
        record("gpu_steps", steps)
        record_gpu_kernels(ops)


if __name__ == "__main__":
    main()
