"""Count the specs per second that become validated objects, in comparison with similar libraries.

    python -m tox -e benchmarks

All get the same 10,000 specifications, in the form each wants. For the others, the class is a plain one with an
annotated constructor, which is cheaper than ours: it checks nothing itself. Rounds are interleaved, and the median of
each is reported, as a ratio to ours.
"""

from typing import Any, Callable, Dict, List

import random
import statistics
import time

import catalogue
import confection
import hydra_zen
import mmengine.registry

import scalekeeper

COUNT = 10_000
ROUNDS = 5


class PlainDynamic:
    def __init__(
        self,
        initial_loss_scale: float = 2.0**15,
        increment_period: int = 2000,
        multiplier: float = 2.0,
        minimum: float = 1.0,
    ) -> None:
        self.values = (initial_loss_scale, increment_period, multiplier, minimum)


def make_specs() -> List[Dict[str, Any]]:
    """Return specs of a dynamic scale with one to four parameters."""
    rng = random.Random(0)
    specs = []
    for _ in range(COUNT):
        values = {
            "initial_loss_scale": 2.0 ** rng.randint(4, 20),
            "increment_period": rng.randint(1, 5000),
            "multiplier": rng.uniform(1.5, 4),
            "minimum": rng.uniform(0.5, 8),
        }
        chosen = rng.sample(sorted(values), rng.randint(1, 4))
        specs.append({name: values[name] for name in chosen})
    return specs


class ConfectionRegistry(confection.registry):
    scales = catalogue.create("benchmark", "scales", entry_points=False)


ConfectionRegistry.scales.register("dynamic", func=PlainDynamic)
mmengine_registry = mmengine.registry.Registry("scales")
mmengine_registry.register_module(name="dynamic", module=PlainDynamic)


def contestants(specs: List[Dict[str, Any]]) -> Dict[str, Callable[[], int]]:
    """Return name → a function that creates all objects and returns their number."""
    named = [dict(spec, name="dynamic") for spec in specs]
    for_confection = [{"scale": {"@scales": "dynamic", **spec}} for spec in specs]
    for_hydra = [{"_target_": f"{__name__}.PlainDynamic", **spec} for spec in specs]
    for_mmengine = [dict(spec, type="dynamic") for spec in specs]
    return {
        "scalekeeper": lambda: sum(1 for spec in named if scalekeeper.resolve(spec)),
        "confection": lambda: sum(1 for spec in for_confection if ConfectionRegistry.resolve(spec)["scale"]),
        "hydra-zen": lambda: sum(1 for spec in for_hydra if hydra_zen.instantiate(spec)),
        "mmengine": lambda: sum(1 for spec in for_mmengine if mmengine_registry.build(spec)),
    }


def main() -> int:
    runs = contestants(make_specs())
    seconds: Dict[str, List[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            began = time.perf_counter()
            made = run()
            seconds[name].append(time.perf_counter() - began)
            assert made == COUNT
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    print(f"{'library':<12} {'specs/s':>10} {'time / ours':>12}")
    for name, median in medians.items():
        print(f"{name:<12} {COUNT / median:>10,.0f} {median / medians['scalekeeper']:>12.1f}")
    fastest = min(medians, key=lambda name: medians[name])
    print(f"fastest: {fastest}")
    return 0 if fastest == "scalekeeper" else 1


if __name__ == "__main__":
    raise SystemExit(main())
