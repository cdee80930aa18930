"""Time the start: ``import scalekeeper``, ``validate`` and ``show`` of a 50-line file, ``inspect``.

    python -m tox -e benchmarks

Whole processes, interleaved, medians, as ratios in one run: importing against ``import pydantic, yaml``, the commands
against ``import tensorflow``, and ``show`` against ``validate``. The files to inspect are golden ones.
"""

from typing import Dict, List

import os
import statistics
import subprocess
import sys
import tempfile
import time

from scalekeeper_test_support.golden import archives, matrix

ROUNDS = 15
LIMITS = {"import": 1.3, "validate": 0.15, "show": 1.2, "inspect": 0.15}
INSPECTED = ("model.h5", "model.keras", "config.json", "state.npz")


def document() -> str:
    """Return a document of 50 lines: a long piecewise schedule, a loss scale, and comments."""
    boundaries = [f"      - {1000 * step}" for step in range(1, 16)]
    values = [f"      - {0.1 / step:.6f}" for step in range(1, 17)]
    lines = [
        "# How this model is trained.",
        "",
        "optimizer:",
        "  name: sgd",
        "  momentum: 0.9",
        "  nesterov: true",
        "  learning_rate:",
        "    schedule: piecewise_constant_decay",
        "    boundaries:",
        *boundaries,
        "    values:",
        *values,
        "",
        "# The loss scale grows quickly at first.",
        "loss_scale:",
        "  name: dynamic",
        "  initial_loss_scale: 4096",
        "  increment_period: 500",
        "  multiplier: 2",
        "  minimum: 1",
        "  maximum: 16777216",
    ]
    assert len(lines) == 50, len(lines)
    return "\n".join(lines) + "\n"


def timed(command: List[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, archives.unpacked(matrix.Producer("scalekeeper", "k3")) as unpacked:
        path = os.path.join(folder, "train.yaml")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(document())
        command_line = os.path.join(os.path.dirname(sys.executable), "scalekeeper")
        commands = {
            "import scalekeeper": [sys.executable, "-c", "import scalekeeper"],
            "import pydantic, yaml": [sys.executable, "-c", "import pydantic, yaml"],
            "scalekeeper validate": [command_line, "validate", path],
            "scalekeeper show": [command_line, "show", path],
            "import tensorflow": [sys.executable, "-c", "import tensorflow"],
        }
        for name in INSPECTED:
            commands[name] = [command_line, "inspect", os.path.join(unpacked, "dynamic-adam", name)]
        seconds: Dict[str, List[float]] = {name: [] for name in commands}
        for command in commands.values():  # once for the file cache
            timed(command)
        for _ in range(ROUNDS):
            for name, command in commands.items():
                seconds[name].append(timed(command))
    median = {name: statistics.median(times) for name, times in seconds.items()}
    ratios = {
        "import": median["import scalekeeper"] / median["import pydantic, yaml"],
        "validate": median["scalekeeper validate"] / median["import tensorflow"],
        "show": median["scalekeeper show"] / median["scalekeeper validate"],
        "inspect": max(median[name] for name in INSPECTED) / median["import tensorflow"],
    }
    print(f"import scalekeeper / import pydantic, yaml: {ratios['import']:.2f} (limit {LIMITS['import']})")
    print(f"scalekeeper validate / import tensorflow:   {ratios['validate']:.3f} (limit {LIMITS['validate']})")
    print(f"scalekeeper show / validate:                {ratios['show']:.2f} (limit {LIMITS['show']})")
    each = ", ".join(f"{name} {median[name] / median['import tensorflow']:.3f}" for name in INSPECTED)
    print(f"scalekeeper inspect / import tensorflow:    {ratios['inspect']:.3f} (limit {LIMITS['inspect']}): {each}")
    return 0 if all(ratios[name] <= LIMITS[name] for name in LIMITS) else 1


if __name__ == "__main__":
    raise SystemExit(main())
