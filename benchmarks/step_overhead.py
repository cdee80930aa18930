"""What one step costs more than the bare optimizer's: TensorFlow's own LossScaleOptimizer, and ours.

    python benchmarks/step_overhead.py [--seconds 10] [--repeats 3] [--sets …] [--scales …] [--record]

One traced ``get_unscaled_gradients`` + ``apply_gradients`` step, in one process, interleaved in random order, medians,
on three sets of float32 gradients. Overhead = time − bare; reported as ours / TensorFlow's own. ``--record`` writes the
figures to benchmarks/results/, from which benchmarks/render.py makes the tables and the plot of docs/performance.md.
"""

from typing import Any, Callable, Dict, List

import numpy as np
import tensorflow as tf

from scalekeeper import LossScaleOptimizer
from scalekeeper_test_support.benchmark_results import machine, medians, parser, record
from scalekeeper_test_support.installed_keras import IS_KERAS_3, OPTIMIZERS, InexpressibleError, upstream

SETS = {
    "many": [(64,)] * 160,
    "mix": [(256, 256)] * 80 + [(256,)] * 80,
    "big": [(2048, 2048)] * 8,
}
INNER = ("SGD", "Adam")
SCALES: Dict[str, Any] = {"fixed": 128.0, "dynamic": "dynamic"}


def traced_step(optimizer: Any, shapes: List[Any]) -> Callable[[], Any]:
    """One step of an optimizer on variables and gradients of its own, traced and run once."""
    rng = np.random.RandomState(0)
    variables = [tf.Variable(rng.randn(*shape).astype("float32")) for shape in shapes]
    grads = [tf.constant(rng.randn(*shape).astype("float32")) for shape in shapes]
    unscales = hasattr(optimizer, "get_unscaled_gradients")  # Keras 3's own does it when it applies them

    # the gradients are captured, not passed: newer TensorFlows take longer to look at 160 arguments than for the step
    @tf.function
    def step() -> Any:
        unscaled = optimizer.get_unscaled_gradients(list(grads)) if unscales else list(grads)
        optimizer.apply_gradients(zip(unscaled, variables))
        return tf.identity(optimizer.iterations.value if IS_KERAS_3 else optimizer.iterations)

    step()
    return lambda: step().numpy()


def compare(shapes: List[Any], make: Callable[[], Any], scale: Any, seconds: float, repeats: int) -> Dict[str, float]:
    """Milliseconds of a step: bare, TensorFlow's own class, ours."""
    makers = {
        "bare": lambda: traced_step(make(), shapes),
        "own": lambda: traced_step(upstream(make(), scale), shapes),
        "ours": lambda: traced_step(LossScaleOptimizer(make(), scale), shapes),
    }
    return medians(makers, seconds, repeats)


def main() -> None:
    arguments = parser(__doc__, seconds=10.0)
    arguments.add_argument("--repeats", type=int, default=3, help="how often the steps of a row are made anew")
    arguments.add_argument("--sets", nargs="*", default=list(SETS))
    arguments.add_argument("--scales", nargs="*", default=list(SCALES))
    options = arguments.parse_args()
    print(machine())
    print(f"{'set':<5} {'optimizer':<12} {'scale':<8} {'bare':>7} {'own':>7} {'ours':>7}   overhead ours / own")
    rows = []
    for set_name in options.sets:
        for kind, optimizers in OPTIMIZERS.items():
            for inner in INNER:
                for scale_name in options.scales:
                    scale = SCALES[scale_name]
                    try:
                        make = getattr(optimizers, inner)
                        ms = compare(
                            SETS[set_name], lambda make=make: make(1e-6), scale, options.seconds, options.repeats
                        )
                    except InexpressibleError:
                        continue
                    ratio = (ms["ours"] - ms["bare"]) / (ms["own"] - ms["bare"])
                    rows.append({"set": set_name, "kind": kind, "optimizer": inner, "scale": scale_name, **ms})
                    name = inner if kind == "default" else f"{inner} {kind}"
                    print(
                        f"{set_name:<5} {name:<12} {scale_name:<8} "
                        f"{ms['bare']:>7.2f} {ms['own']:>7.2f} {ms['ours']:>7.2f}   {ratio:.2f}",
                        flush=True,
                    )
    if options.record:
        record("step", rows)


if __name__ == "__main__":
    main()
