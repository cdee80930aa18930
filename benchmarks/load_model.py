"""Compare scalekeeper's and Keras's load_model: time and peak memory, and the cost of the probe.

    python benchmarks/load_model.py [--megabytes 100] [--repeats 5]
    python benchmarks/load_model.py --probe [--megabytes 100] [--repeats 5]

The first command loads an H5 model of 100 MB.
The file is written by TensorFlow's own class; with Keras 3, which does not read the optimizer in its own H5, it is
a .keras file. Each load is a process of its own, in turns; medians; the memory is the peak while loading over what the
process had before, as Linux counts it.

With --probe, the files are those of scalekeeper.save_model: Dense layers of 100 MB and MobileNetV2 with random weights,
with Adam's slots, as H5 and .keras. Keras's load_model, scalekeeper's without the probe and with it take turns; medians
of the CPU time of all threads. Keras does not restore the slots of all of these files.
"""

from typing import Any, Dict, List

import argparse
import functools
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import tensorflow as tf

from scalekeeper_test_support.benchmark_results import machine
from scalekeeper_test_support.installed_keras import IS_KERAS_3, MODEL_SUFFIXES, OPTIMIZERS, upstream

LIMITS = {"seconds": 1.1, "megabytes": 1.2}
PROBE_LIMIT = 1.1  # with the probe / without it


def dense_model(megabytes: float) -> Any:
    """Return a model that takes a third of this space: Adam's two slots for each weight take the rest."""
    width = int((megabytes * 1e6 / 4 / 3 / 4) ** 0.5)
    layers = [tf.keras.layers.Dense(width, input_shape=(width,)), *(tf.keras.layers.Dense(width) for _ in range(3))]
    return tf.keras.Sequential(layers)


def write(path: str, megabytes: float) -> None:
    """Save a model that TensorFlow's own class has trained."""
    model = dense_model(megabytes)
    width = model.input_shape[-1]
    kinds = OPTIMIZERS.get("legacy", OPTIMIZERS["default"])  # those whose weights Keras itself can read back
    model.compile(upstream(kinds.Adam()), "mse")
    model.train_on_batch(np.zeros((1, width), "float32"), np.zeros((1, width), "float32"))
    model.save(path)


def load(path: str, who: str) -> Dict[str, float]:
    """Return the seconds, the CPU seconds and the megabytes of one load in this process."""
    if who == "own":
        loader: Any = tf.keras.models.load_model
    else:
        import scalekeeper

        _ = scalekeeper.LossScaleOptimizer  # what it needs is imported, as Keras is
        loader = functools.partial(scalekeeper.load_model, probe=who == "ours")
    tf.zeros([1]).numpy()
    with open("/proc/self/clear_refs", "w", encoding="ascii") as stream:
        stream.write("5")  # the peak begins anew
    before, began, used = megabytes_of_process("VmRSS"), time.perf_counter(), time.process_time()
    model = loader(path)
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    assert who == "own" or int(model.optimizer.iterations.numpy()) == 1
    return {"seconds": seconds, "cpu": cpu, "megabytes": megabytes_of_process("VmHWM") - before}


def medians(path: str, loaders: List[str], repeats: int) -> Dict[str, Dict[str, float]]:
    """Return the figures of each loader; each load is a process of its own, and the loaders take turns."""
    found: Dict[str, List[Dict[str, float]]] = {who: [] for who in loaders}
    for _ in range(repeats):
        for who in random.sample(loaders, len(loaders)):
            output = subprocess.check_output([sys.executable, __file__, "--load", path, who])
            found[who].append(json.loads(output.decode().splitlines()[-1]))
    return {
        who: {name: statistics.median(run[name] for run in runs) for name in runs[0]} for who, runs in found.items()
    }


def compare_probe(megabytes: float, repeats: int) -> bool:
    """Print the CPU time of loading without and with the probe; return whether all of it is within the limits."""
    import scalekeeper

    is_within = True
    for name in ("dense", "mobilenet_v2"):
        model = dense_model(megabytes) if name == "dense" else tf.keras.applications.MobileNetV2(weights=None)
        optimizer = scalekeeper.LossScaleOptimizer(OPTIMIZERS["default"].Adam(), "dynamic")
        model.compile(optimizer, tf.keras.losses.MeanSquaredError())
        optimizer.apply_gradients([(tf.ones(variable.shape), variable) for variable in model.trainable_variables])
        for suffix in sorted({".h5", *MODEL_SUFFIXES} & {".h5", ".keras"}):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, f"model{suffix}")
                scalekeeper.save_model(model, path)
                size = os.path.getsize(path) / 1e6
                found = medians(path, ["own", "without", "ours"], repeats)
            own, without, ours = (found[who]["cpu"] for who in ("own", "without", "ours"))
            is_within &= without / own <= LIMITS["seconds"] and ours / without <= PROBE_LIMIT
            print(
                f"{name:<12} {suffix:<6} {size:3.0f} MB: Keras {own:.2f} s, scalekeeper / Keras {without / own:.2f} "
                f"(at most {LIMITS['seconds']}), with / without the probe {ours / without:.2f} (at most {PROBE_LIMIT})",
                flush=True,
            )
    return is_within


def megabytes_of_process(name: str) -> float:
    """Return a memory size of this process: VmRSS is the current one, VmHWM the peak."""
    with open("/proc/self/status", encoding="ascii") as stream:
        (kilobytes,) = re.findall(rf"{name}:\s*(\d+) kB", stream.read())
    return int(kilobytes) * 1024 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--load", nargs=2, metavar=("PATH", "WHO"), help="one load, for the script itself")
    parser.add_argument("--probe", action="store_true", help="compare loading without and with the probe")
    options = parser.parse_args()
    if options.load:
        print(json.dumps(load(*options.load)))
        return
    print(machine())
    if options.probe:
        sys.exit(not compare_probe(options.megabytes, options.repeats))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras" if IS_KERAS_3 else "model.h5")
        write(path, options.megabytes)
        print(f"a file of {os.path.getsize(path) / 1e6:.0f} MB")
        figures = medians(path, ["own", "ours"], options.repeats)
    failed = False
    for name, limit in LIMITS.items():
        own, ours = (figures[who][name] for who in ("own", "ours"))
        failed |= ours / own > limit
        print(f"{name:<10} own {own:.3f}, ours {ours:.3f}, ours / own {ours / own:.2f} (at most {limit})")
    sys.exit(failed)


if __name__ == "__main__":
    main()
