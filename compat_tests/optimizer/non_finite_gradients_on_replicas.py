"""Bad numbers under MirroredStrategy: a script, as the number of logical CPUs is fixed when TensorFlow starts."""

import json
import warnings

import numpy as np
import tensorflow as tf

from scalekeeper import LossScaleOptimizer
from scalekeeper_test_support.installed_keras import IS_KERAS_3, OPTIMIZERS, state_of
from scalekeeper_test_support.repository import load_script

trials = load_script("compat_tests/reliability/non_finite_gradients.py")

SIZES = (1, 3, 3, 3, 3, 0, 70000)  # alone, stacked, empty, large


def outcomes(strategy, kind, dtype):
    """Return what a step does whose gradients end with a number of each replica's own."""
    with strategy.scope():
        variables = [tf.Variable(np.zeros(size), dtype=dtype) for size in SIZES]
        optimizer = LossScaleOptimizer(trials.inner(kind, dtype), {"name": "dynamic", **trials.DYNAMIC})
        if IS_KERAS_3:
            optimizer.build(variables)

    def in_replica(common, numbers):
        number = numbers[tf.distribute.get_replica_context().replica_id_in_sync_group]
        grads = [tf.concat([tf.fill([max(size - 1, 0)], common), [number]], 0)[:size] for size in SIZES]
        optimizer.apply_gradients(zip(optimizer.get_unscaled_gradients(grads), variables))

    step = tf.function(lambda *args: run(strategy, in_replica, *args), autograph=False)
    found = {}
    # half of the largest number on each of two replicas: their sum is the largest, unscaled
    half = trials.LARGEST[dtype] / 2
    for name, common, numbers in (
        ("NaN on the second", 1.0, [1.0, trials.NAN]),
        ("inf on the first", 1.0, [trials.INF, 1.0]),
        ("the largest numbers", half, [half, half]),
    ):
        before = state_of(optimizer)["current_loss_scale"]
        step(*(tf.cast(tf.constant(each, tf.float64), dtype) for each in (common, numbers)))
        after = state_of(optimizer)["current_loss_scale"] / before
        weights = [each for variable in variables for each in weights_on_replicas(strategy, variable)]
        moved = [np.array_equal(each, np.full(each.shape, -trials.LARGEST[dtype] / before)) for each in weights]
        if after == 0.5 and not any(each.any() for each in weights):
            found[name] = trials.SKIPPED
        else:
            found[name] = trials.APPLIED if after == 2.0 and all(moved) else f"scale × {after}"
    return found


def weights_on_replicas(strategy, variable):
    return [np.asarray(each.numpy(), np.float64) for each in strategy.experimental_local_results(variable)]


def run(strategy, function, *args):
    """``strategy.run``, which has an older name up to 2.1."""
    return getattr(strategy, "run" if hasattr(strategy, "run") else "experimental_run_v2")(function, args=args)


def without_gradients(strategy, kind):
    """Return the result of None for every variable, and of an empty list."""
    with strategy.scope():
        variable, optimizer = (
            tf.Variable(1.0),
            LossScaleOptimizer(trials.inner(kind), {"name": "dynamic", **trials.DYNAMIC}),
        )
        if IS_KERAS_3:
            optimizer.build([variable])
    told = None
    try:
        run(strategy, lambda: optimizer.apply_gradients([(None, variable)]))
    except ValueError as error:
        told = str(error)
    run(strategy, lambda: optimizer.apply_gradients([]))
    return {"None for every variable": told, "an empty list": state_of(optimizer)}


def main():
    (cpu,) = tf.config.experimental.list_physical_devices("CPU")
    logical = [tf.config.experimental.VirtualDeviceConfiguration() for _ in range(2)]
    tf.config.experimental.set_virtual_device_configuration(cpu, logical)
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    types = (tf.float16, tf.float32)
    found = {
        kind: {
            "steps": {dtype.name: outcomes(strategy, kind, dtype) for dtype in types},
            **without_gradients(strategy, kind),
        }
        for kind in OPTIMIZERS
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
