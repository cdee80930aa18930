"""What telemetry costs: one step with it, in several ways, against the same step without.

    python benchmarks/telemetry.py [--seconds 20] [--repeats 3] [--sets …] [--ways …] [--record]

The step and the three sets of gradients are those of benchmarks/step_overhead.py, with SGD; all ways take turns in one
process, medians. Reported as a multiple of the step without telemetry. Counting is always on; the rest is on request.
"""

from typing import Any, Callable, Dict, List

import functools

import tensorflow as tf
from step_overhead import SETS, traced_step

from scalekeeper import LossScaleOptimizer
from scalekeeper_test_support.benchmark_results import machine, medians, parser, record

GOAL = 1.02


class Uncounted(LossScaleOptimizer):
    """A skipped step does what it always did, and counts nothing."""

    def _count_skipped(self, key: Any, bad: Any) -> Any:
        return self._skip()


def _uncounted() -> Any:
    return Uncounted(tf.keras.optimizers.SGD(1e-6), "dynamic")


def _ours(**options: Any) -> Callable[[], Any]:
    return lambda: LossScaleOptimizer(tf.keras.optimizers.SGD(1e-6), "dynamic", **options)


WAYS: Dict[str, Callable[[], Any]] = {
    "without": _uncounted,
    "again": _uncounted,  # the same once more: what two steps differ by that do exactly the same
    "counted": _ours(),
    "attributed": _ours(attribute_overflows=True, stop_after_skips=100),
    "zero_share": _ours(watch=["zero_share"]),
    "largest_magnitude": _ours(watch=["largest_magnitude"]),
}


def compare(shapes: List[Any], ways: List[str], seconds: float, repeats: int) -> Dict[str, float]:
    """Milliseconds of a step in each way."""
    return medians(
        {name: functools.partial(lambda make: traced_step(make(), shapes), WAYS[name]) for name in ways},
        seconds,
        repeats,
    )


def main() -> None:
    arguments = parser(__doc__, seconds=20.0)
    arguments.add_argument("--repeats", type=int, default=3, help="how often the steps of a row are made anew")
    arguments.add_argument("--sets", nargs="*", default=list(SETS))
    arguments.add_argument("--ways", nargs="*", default=list(WAYS)[1:], choices=list(WAYS)[1:])
    options = arguments.parse_args()
    tf.get_logger().setLevel("ERROR")  # of steps that are made anew on purpose
    print(machine())
    print(f"{'set':<5} {'without':>9} " + " ".join(f"{name:>17}" for name in options.ways))
    rows = []
    for name in options.sets:
        ms = compare(SETS[name], ["without", *options.ways], options.seconds, options.repeats)
        rows.append({"set": name, **ms})
        ratios = " ".join(f"{ms[way] / ms['without']:>17.3f}" for way in options.ways)
        print(f"{name:<5} {ms['without']:>6.2f} ms {ratios}", flush=True)
    if options.record:
        record("telemetry", rows)


if __name__ == "__main__":
    main()
