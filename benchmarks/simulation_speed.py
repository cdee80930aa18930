"""Time the simulation of 1,000,000 steps on one core, for every registered policy.

    python benchmarks/simulation_speed.py

On gradients that are quiet, that overflow now and then, half of the time, or always. A policy that needs parameters
gets some. Exits with 1 if ``dynamic`` takes more than 2 seconds, or any policy more than 10.
"""

from typing import Any, Dict, List

import sys
import time

import numpy as np

import scalekeeper
from scalekeeper.registry import loss_scales
from scalekeeper.simulation import synthetic

STEPS = 1_000_000
LIMITS = {"dynamic": 2.0}
ANY = 10.0
PARAMETERS: Dict[str, Dict[str, Any]] = {
    "fixed": {"loss_scale_value": 1024.0, "skip_nonfinite": True},
    "scheduled": {"boundaries": [250_000, 500_000], "values": [1024.0, 4096.0, 512.0]},
}


def traces(steps: int = STEPS) -> Dict[str, scalekeeper.Trace]:
    """Return name → gradients."""
    random = np.random.RandomState(0)
    return {
        "quiet": scalekeeper.Trace(np.full(steps, 1e-30)),
        "now and then": synthetic("drifting", steps),
        "half": scalekeeper.Trace(np.where(random.random_sample(steps) < 0.5, np.inf, 1.0), 2.0**-100),
        "always": scalekeeper.Trace(np.full(steps, np.inf), 2.0**-100),
    }


def policies() -> Dict[str, Any]:
    """Return every registered policy by name."""
    found: Dict[str, Any] = {}
    for row in loss_scales.listing():
        if row.plugin is not None and (row.plugin.needs_nothing or row.name in PARAMETERS):
            found[row.name] = {"name": row.name, **PARAMETERS.get(row.name, {})}
        else:
            print(f"{row.name}: not measured; it needs parameters, and PARAMETERS here has none")
    return found


def main() -> int:
    made = traces()
    print(f"{'seconds for ' + format(STEPS, ',') + ' steps':<32}" + "".join(f"{name:>14}" for name in made))
    slow: List[str] = []
    for name, spec in policies().items():
        cells = []
        for kind, trace in made.items():
            began = time.process_time()
            scalekeeper.simulate(spec, trace)
            seconds = time.process_time() - began
            cells.append(f"{seconds:>14.2f}")
            if seconds > LIMITS.get(name, ANY):
                slow.append(f"{name}, {kind}: {seconds:.2f} s, limit {LIMITS.get(name, ANY):g}")
        print(f"{name:<32}" + "".join(cells), flush=True)
    for line in slow:
        print(f"too slow: {line}", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    raise SystemExit(main())
