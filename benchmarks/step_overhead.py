"""What one step costs more than the bare optimizer's: TensorFlow's own LossScaleOptimizer, and ours.

    python benchmarks/step_overhead.py [--rounds 200] [--json FILE]

One traced ``get_unscaled_gradients`` + ``apply_gradients`` step, in one process, interleaved, medians, on three sets of
float32 gradients. Overhead = time − bare; reported as ours / TensorFlow's own.
"""

from typing import Any, Callable, Dict, List

import argparse
import json
import platform
import random
import statistics
import time

import numpy as np
import tensorflow as tf

from scalekeeper.optimizer import LossScaleOptimizer

SETS = {
    "many": [(64,)] * 160,
    "mix": [(256, 256)] * 80 + [(256,)] * 80,
    "big": [(2048, 2048)] * 8,
}
OPTIMIZERS = {"SGD": lambda: tf.keras.optimizers.SGD(1e-6), "Adam": lambda: tf.keras.optimizers.Adam(1e-6)}
SCALES: Dict[str, Any] = {"fixed": 128.0, "dynamic": "dynamic"}
UPSTREAM = tf.keras.mixed_precision.experimental.LossScaleOptimizer


def traced_step(optimizer: Any, shapes: List[Any]) -> Callable[[], Any]:
    """One step of an optimizer on variables and gradients of its own, traced and run once."""
    rng = np.random.RandomState(0)
    variables = [tf.Variable(rng.randn(*shape).astype("float32")) for shape in shapes]
    grads = [tf.constant(rng.randn(*shape).astype("float32")) for shape in shapes]
    scales = hasattr(optimizer, "get_unscaled_gradients")

    @tf.function
    def step(*grads: Any) -> Any:
        unscaled = optimizer.get_unscaled_gradients(list(grads)) if scales else list(grads)
        optimizer.apply_gradients(zip(unscaled, variables))
        return optimizer.iterations

    step(*grads)
    return lambda: step(*grads)


def compare(shapes: List[Any], make: Callable[[], Any], scale: Any, rounds: int) -> Dict[str, float]:
    """Milliseconds of a step: bare, TensorFlow's own class, ours."""
    steps = {
        "bare": traced_step(make(), shapes),
        "own": traced_step(UPSTREAM(make(), scale), shapes),
        "ours": traced_step(LossScaleOptimizer(make(), scale), shapes),
    }
    seconds: Dict[str, List[float]] = {name: [] for name in steps}
    names = list(steps)
    for turn in range(rounds + 5):
        random.shuffle(names)  # none of them always comes after the same other one
        for name in names:
            step = steps[name]
            began = time.perf_counter()
            step().numpy()
            if turn >= 5:
                seconds[name].append(time.perf_counter() - began)
    return {name: 1000 * statistics.median(times) for name, times in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--json")
    options = parser.parse_args()
    print(
        f"TensorFlow {tf.__version__}, Python {platform.python_version()}, {platform.processor() or platform.machine()}"
    )
    print(f"{'set':<5} {'optimizer':<9} {'scale':<8} {'bare':>7} {'own':>7} {'ours':>7}   overhead ours / own")
    rows = []
    for set_name in options.sets:
        rounds = options.rounds if set_name != "big" else max(20, options.rounds // 4)
        for optimizer_name, make in OPTIMIZERS.items():
            for scale_name, scale in SCALES.items():
                ms = compare(SETS[set_name], make, scale, rounds)
                ratio = (ms["ours"] - ms["bare"]) / (ms["own"] - ms["bare"])
                rows.append({"set": set_name, "optimizer": optimizer_name, "scale": scale_name, "ratio": ratio, **ms})
                print(
                    f"{set_name:<5} {optimizer_name:<9} {scale_name:<8} "
                    f"{ms['bare']:>7.2f} {ms['own']:>7.2f} {ms['ours']:>7.2f}   {ratio:.2f}",
                    flush=True,
                )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as stream:
            json.dump({"tensorflow": tf.__version__, "rows": rows}, stream, indent=1)


if __name__ == "__main__":
    main()
