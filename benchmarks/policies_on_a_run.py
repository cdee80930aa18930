"""Make the table and the plot of "On a recorded run" in docs/policies.md.

    python benchmarks/policies_on_a_run.py

Needs matplotlib, and no TensorFlow.
"""

from typing import Any, Dict, List, Tuple

import os

import scalekeeper
from scalekeeper.simulation._plot import plot
from scalekeeper.simulation._summary_table import cells
from scalekeeper_test_support.generated_pages import DOCS, rewrite

TRACE = os.path.join(DOCS, "..", "examples", "small_float16.npz")
FASTER: Dict[str, Any] = {"name": "dynamic", "increment_period": 200}
POLICIES: Dict[str, Any] = {
    "dynamic": "dynamic",
    "dynamic (increment_period=200)": FASTER,
    **{
        f"dynamic/{name}": f"dynamic/{name}"
        for name in ("pytorch", "deepspeed", "megatron", "tf1_contrib", "mindspore")
    },
    "tolerant (tolerance=0.05)": {"name": "tolerant", "tolerance": 0.05},
    "log_max": "log_max",
    "log_max (overflow_std_dev=6)": {"name": "log_max", "overflow_std_dev": 6.0},
    "adaptive_window": "adaptive_window",
    "scheduled (128, then 1024)": {"name": "scheduled", "values": [128.0, 1024.0], "boundaries": [5000]},
    "fixed (1024, skip_nonfinite)": {"name": "fixed", "loss_scale_value": 1024.0, "skip_nonfinite": True},
    "fixed (64, skip_nonfinite)": {"name": "fixed", "loss_scale_value": 64.0, "skip_nonfinite": True},
    "none (skip_nonfinite)": {"name": "none", "skip_nonfinite": True},
}
DRAWN = ("dynamic", "dynamic (increment_period=200)", "tolerant (tolerance=0.05)", "log_max", "adaptive_window")
_SHOWN = (0, 1, 2, 3, 4, 5, 7)  # of the columns of the table that the command prints


def simulated() -> List[Tuple[str, Any]]:
    """Each policy on the recorded steps."""
    trace = scalekeeper.read_trace(TRACE)
    return [(label, scalekeeper.simulate(policy, trace)) for label, policy in POLICIES.items()]


def table(found: List[Tuple[str, Any]]) -> str:
    """Rows of a Markdown table."""
    rows = [[cells(label, simulation)[place] for place in _SHOWN] for label, simulation in found]
    head = ["policy", "steps lost", "% lost", "mean log2 scale", "% at the floor", "lowest", "last scale"]
    lines = [head, ["---", *["--:"] * 6], *([f"`{first}`", *rest] for first, *rest in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    found = simulated()
    rewrite("policies.md", {"policies": table(found)})
    drawn = [(label, simulation) for label, simulation in found if label in DRAWN]
    plot(drawn, os.path.join(DOCS, "policies_on_a_run.svg"), "examples/small_float16.npz, 20,000 steps")


if __name__ == "__main__":
    main()
