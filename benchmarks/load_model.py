"""Loading an H5 model of 100 MB: ours against Keras's own load_model, in time and in peak memory.

    python benchmarks/load_model.py [--megabytes 100] [--repeats 5]

The file is written by TensorFlow's own class; with Keras 3, which does not read the optimizer in its own H5, it is
a .keras file. Each load is a process of its own, in turns; medians; the memory is the peak while loading over what the
process had before, as Linux counts it.
"""

from typing import Any, Dict, List

import argparse
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
from scalekeeper_test_support.installed_keras import IS_KERAS_3, OPTIMIZERS, upstream

LIMITS = {"seconds": 1.1, "megabytes": 1.2}


def write(path: str, megabytes: float) -> None:
    """A model and Adam's two slots for each weight: three equal parts."""
    width = int((megabytes * 1e6 / 4 / 3 / 4) ** 0.5)
    layers = [tf.keras.layers.Dense(width, input_shape=(width,)), *(tf.keras.layers.Dense(width) for _ in range(3))]
    model = tf.keras.Sequential(layers)
    kinds = OPTIMIZERS.get("legacy", OPTIMIZERS["default"])  # those whose weights Keras itself can read back
    model.compile(upstream(kinds.Adam()), "mse")
    model.train_on_batch(np.zeros((1, width), "float32"), np.zeros((1, width), "float32"))
    model.save(path)


def load(path: str, who: str) -> Dict[str, float]:
    """Seconds and megabytes of one load in this process."""
    if who == "ours":
        import scalekeeper

        _ = scalekeeper.LossScaleOptimizer  # what it needs is imported, as Keras is
        loader: Any = scalekeeper.load_model
    else:
        loader = tf.keras.models.load_model
    tf.zeros([1]).numpy()
    with open("/proc/self/clear_refs", "w", encoding="ascii") as stream:
        stream.write("5")  # the peak begins anew
    before, began = megabytes_of_process("VmRSS"), time.perf_counter()
    model = loader(path)
    figures = {"seconds": time.perf_counter() - began, "megabytes": megabytes_of_process("VmHWM") - before}
    assert int(model.optimizer.iterations.numpy()) == 1
    return figures


def megabytes_of_process(name: str) -> float:
    """One of the sizes of this process: VmRSS is the present one, VmHWM its peak."""
    with open("/proc/self/status", encoding="ascii") as stream:
        (kilobytes,) = re.findall(rf"{name}:\s*(\d+) kB", stream.read())
    return int(kilobytes) * 1024 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--load", nargs=2, metavar=("PATH", "WHO"), help="one load, for the script itself")
    options = parser.parse_args()
    if options.load:
        print(json.dumps(load(*options.load)))
        return
    print(machine())
    figures: Dict[str, List[Dict[str, float]]] = {"own": [], "ours": []}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras" if IS_KERAS_3 else "model.h5")
        write(path, options.megabytes)
        print(f"a file of {os.path.getsize(path) / 1e6:.0f} MB")
        for _ in range(options.repeats):
            for who in random.sample(list(figures), len(figures)):
                output = subprocess.check_output([sys.executable, __file__, "--load", path, who])
                figures[who].append(json.loads(output.decode().splitlines()[-1]))
    failed = False
    for name, limit in LIMITS.items():
        own, ours = (statistics.median(each[name] for each in figures[who]) for who in ("own", "ours"))
        failed |= ours / own > limit
        print(f"{name:<10} own {own:.3f}, ours {ours:.3f}, ours / own {ours / own:.2f} (at most {limit})")
    sys.exit(failed)


if __name__ == "__main__":
    main()
