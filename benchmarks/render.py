"""Write the tables and plots of docs/performance.md, docs/cost.md and docs/gpu.md from benchmarks/results/.

    python benchmarks/render.py

Needs matplotlib, and no TensorFlow.
"""

from typing import Any, Dict, List

import glob
import json
import os

from scalekeeper_test_support.generated_pages import rewrite

HERE = os.path.dirname(os.path.abspath(__file__))
PLOT = os.path.join(HERE, "..", "docs", "step_overhead.svg")
COST_PLOT = os.path.join(HERE, "..", "docs", "cost_of_a_step.svg")
SETS = ("many", "mix", "big")
WAYS = ("counted", "attributed", "zero_share", "largest_magnitude")
GOALS = {"many": 0.6, "mix": 0.4, "big": 0.6}
SIZES = {"many": "160 × 64", "mix": "80 × 65,536 and 80 × 256", "big": "8 × 4,194,304"}


def results() -> List[Dict[str, Any]]:
    """Return the recorded results, the oldest TensorFlow first."""
    found = []
    for path in glob.glob(os.path.join(HERE, "results", "*.json")):
        with open(path, encoding="utf-8") as stream:
            found.append(json.load(stream))
    return sorted(found, key=lambda each: ([int(part) for part in each["name"].split()[0].split(".")], each["name"]))


def ratio(row: Dict[str, Any]) -> float:
    """Return the ratio of the overheads over the bare optimizer, scalekeeper / TensorFlow."""
    return float((row["ours"] - row["bare"]) / (row["own"] - row["bare"]))


def shown(row: Dict[str, Any]) -> str:
    """Return the ratio of the overheads, or of the whole steps if TensorFlow's overhead is about zero."""
    if row["own"] - row["bare"] < 0.05 * row["bare"]:
        return f"({row['ours'] / row['own']:.2f})"
    return f"{ratio(row):.2f}"


def by_kind(found: List[Dict[str, Any]], scale: str) -> Dict[str, Dict[Any, Any]]:
    """Return TensorFlow and generation of optimizers → (set, optimizer) → row."""
    table: Dict[str, Dict[Any, Any]] = {}
    for each in found:
        for row in each.get("step", []):
            name = each["name"] + ("" if row["kind"] == "default" else " " + row["kind"])
            if row["scale"] == scale:
                table.setdefault(name, {})[row["set"], row["optimizer"]] = row
    return table


def step_table(found: List[Dict[str, Any]], scale: str) -> str:
    columns = [(set_name, optimizer) for set_name in SETS for optimizer in ("SGD", "Adam")]
    lines = ["| TensorFlow | " + " | ".join(" ".join(column) for column in columns) + " |", "|---" * 7 + "|"]
    for name, rows in by_kind(found, scale).items():
        lines.append(f"| {name} | " + " | ".join(shown(rows[column]) for column in columns) + " |")
    if scale == "dynamic":
        lines.append("| goal, at most | " + " | ".join(f"{GOALS[set_name]}" for set_name, _ in columns) + " |")
    return "\n".join(lines)


def fit_table(found: List[Dict[str, Any]]) -> str:
    lines = ["| TensorFlow | convolutional | transformer |", "|---|---|---|"]
    for each in found:
        if "fit" in each:
            figures = {row["model"]: row["ours"] / row["own"] for row in each["fit"]}
            lines.append(f"| {each['name']} | {figures['convolutional']:.3f} | {figures['transformer']:.3f} |")
    return "\n".join(lines)


def telemetry_table(found: List[Dict[str, Any]]) -> str:
    columns = [(name, way) for name in SETS for way in WAYS]
    lines = ["| TensorFlow | " + " | ".join(f"{name} {way}" for name, way in columns) + " |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for each in found:
        if "telemetry" in each:
            rows = {row["set"]: row for row in each["telemetry"]}
            ratios = (rows[name][way] / rows[name]["without"] for name, way in columns)
            lines.append(f"| {each['name']} | " + " | ".join(f"{ratio:.3f}" for ratio in ratios) + " |")
    return "\n".join(lines)


def parts_of_page(found: List[Dict[str, Any]]) -> Dict[str, str]:
    """Return the parts of the page by name."""
    return {
        "dynamic": step_table(found, "dynamic"),
        "fixed": step_table(found, "fixed"),
        "fit": fit_table(found),
        "telemetry": telemetry_table(found),
        "gpu": gpu_reports_table(gpu_reports()),
        "machine": found[-1]["machine"].partition(", Python")[2].partition(", ")[2] + ".",
    }


def added(row: Dict[str, Any], who: str) -> float:
    """Return what a loss scale adds to the bare optimizer's step, in percent."""
    return 100.0 * (float(row[who]) / float(row["bare"]) - 1.0)


def _range(values: List[float], form: str) -> str:
    return f"{min(values):{form}} to {max(values):{form}}"


def cost_table(found: List[Dict[str, Any]]) -> str:
    """Return what a dynamic loss scale adds to a step: the least and the most of all versions."""
    rows = [row for each in found for row in each["step"] if row["scale"] == "dynamic" and row["kind"] == "default"]
    lines = [
        "| numbers in the gradients | optimizer | bare step, ms | Keras's class adds, % | scalekeeper adds, % |",
        "|---|---|--:|--:|--:|",
    ]
    for set_name in SETS:
        for optimizer in ("SGD", "Adam"):
            part = [row for row in rows if (row["set"], row["optimizer"]) == (set_name, optimizer)]
            bare = _range([row["bare"] for row in part], ".1f")
            own, ours = (_range([added(row, who) for row in part], "+.0f") for who in ("own", "ours"))
            lines.append(f"| {SIZES[set_name]} | {optimizer} | {bare} | {own} | {ours} |")
    return "\n".join(lines)


def fit_range(found: List[Dict[str, Any]]) -> str:
    """Return the least and the most ratio of whole training steps, scalekeeper / Keras's class."""
    ratios = [row["ours"] / row["own"] for each in found for row in each.get("fit", [])]
    return (
        f"A whole step of `fit` takes {_range(ratios, '.2f')} of the time that it takes with Keras's class: a small\n"
        "convolutional and a small transformer model in `mixed_float16`, on 2.10, 2.15 and 2.21."
    )


def parts_of_cost_page(found: List[Dict[str, Any]]) -> Dict[str, str]:
    """Return the parts of docs/cost.md by name."""
    return {"cost": cost_table(found), "fit": fit_range(found)}


def _three(row: Dict[str, Any], index: int, shown: Any) -> str:
    return " / ".join(shown(row[who][index]) for who in ("bare", "own", "ours"))


def _share(row: Dict[str, Any], index: int) -> str:
    bare, own, ours = (row[who][index] for who in ("bare", "own", "ours"))
    return f"{(ours - bare) / (own - bare):.2f}"


def gpu_cost_table(found: List[Dict[str, Any]]) -> str:
    """Return what a step starts and moves: bare, TensorFlow's class, scalekeeper; and the ratios of the overheads."""
    lines = [
        "| TensorFlow | gradients | launches | overhead | megabytes | overhead | conditionals |",
        "|---|---|---|--:|---|--:|---|",
    ]
    for each in found:
        for row in each.get("gpu_cost", []):
            lines.append(
                f"| {each['name']} | {row['set']} {row['optimizer']} | {_three(row, 0, str)} | {_share(row, 0)} | "
                f"{_three(row, 1, lambda count: f'{count / 1e6:.1f}')} | {_share(row, 1)} | {_three(row, 2, str)} |"
            )
    return "\n".join(lines)


def gpu_steps_table(found: List[Dict[str, Any]]) -> str:
    """Return the operations that a step starts on each TensorFlow, by policy and mode."""
    found = [each for each in found if "gpu_steps" in each]
    launches = [{row["step"]: row["launches"] for row in each["gpu_steps"]} for each in found]
    lines = ["| step | " + " | ".join(each["name"] for each in found) + " |", "|---" + "|--:" * len(found) + "|"]
    for step in launches[0]:
        lines.append(f"| {step} | " + " | ".join(str(each.get(step, "-")) for each in launches) + " |")
    return "\n".join(lines)


def gpu_xla_table(found: List[Dict[str, Any]]) -> str:
    """Return what XLA compiles a step to for GPUs: bare, Keras's class, scalekeeper."""
    lines = ["| GPU | gradients | kernels | passes | megabytes | conditionals | float64 |", "|---" * 7 + "|"]
    for each in found:
        for row in each.get("gpu_xla", []):
            lines.append(
                f"| {row['gpu']} | {row['set']} {row['optimizer']} | {_three(row, 0, str)} | "
                f"{_three(row, 1, lambda passes: f'{passes:g}')} | "
                f"{_three(row, 2, lambda size: f'{size / 1e6:.1f}')} | {_three(row, 3, str)} | {_three(row, 4, str)} |"
            )
    return "\n".join(lines)


def gpu_reports(folder: str = os.path.join(HERE, "results", "gpu")) -> List[Dict[str, Any]]:
    """Return what ``python -m scalekeeper.testing.gpu`` wrote on machines with a GPU, by the names of the files."""
    found = []
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        with open(path, encoding="utf-8") as stream:
            found.append(json.load(stream))
    return found


def gpu_reports_table(reports: List[Dict[str, Any]]) -> str:
    """Return a line for each report: ratios of the overheads, of training steps, and copies to the host."""
    if not reports:
        return "No figures have come in yet."
    columns = [(set_name, inner) for set_name in SETS for inner in ("SGD", "Adam")]
    lines = [
        "| GPU | TensorFlow | "
        + " | ".join(" ".join(column) for column in columns)
        + " | convolutional | transformer | copies to the host |",
        "|---" * (len(columns) + 5) + "|",
    ]
    for report in reports:
        environment = report["environment"]
        steps = {(row["set"], row["optimizer"]): row for row in report["steps"]}
        fit = {row["model"]: row["ours"] / row["own"] for row in report["fit"]}
        copies = " / ".join(str(report["operations"][who]["copies_to_host"]) for who in ("bare", "own", "ours"))
        lines.append(
            f"| {', '.join(environment['gpus']) or 'none'} "
            f"| {environment['tensorflow']}, Keras {environment['keras']} | "
            + " | ".join(shown(steps[column]) for column in columns)
            + f" | {fit['convolutional']:.3f} | {fit['transformer']:.3f} | {copies} |"
        )
    return "\n".join(lines)


def parts_of_gpu_page(found: List[Dict[str, Any]]) -> Dict[str, str]:
    """Return the parts of docs/gpu.md by name."""
    return {"cost": gpu_cost_table(found), "steps": gpu_steps_table(found), "xla": gpu_xla_table(found)}


def plot(found: List[Dict[str, Any]]) -> None:
    """Plot both classes as multiples of the bare optimizer's step, for each set of gradients."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "scalekeeper"
    from matplotlib import pyplot

    table = by_kind(found, "dynamic")
    figure, axes = pyplot.subplots(1, len(SETS), figsize=(10, 0.42 * len(table) + 1.2), sharey=True)
    for axis, set_name in zip(axes, SETS):
        for place, rows in enumerate(table.values()):
            for shift, optimizer in ((-0.18, "SGD"), (0.18, "Adam")):
                row = rows[set_name, optimizer]
                own, ours = row["own"] / row["bare"] - 1, row["ours"] / row["bare"] - 1
                axis.plot([ours, own], [place + shift] * 2, color="#bbbbbb", linewidth=1, zorder=1)
                marker = "o" if optimizer == "SGD" else "s"
                axis.scatter([own], [place + shift], color="#d1495b", marker=marker, s=22, zorder=2)
                axis.scatter([ours], [place + shift], color="#00798c", marker=marker, s=22, zorder=3)
        axis.set_title(set_name)
        axis.set_xlim(left=min(0.0, axis.get_xlim()[0]))
        axis.grid(axis="x", color="#eeeeee")
        axis.set_xlabel("overhead / bare step")
    axes[0].set_yticks(range(len(table)), list(table))
    axes[0].invert_yaxis()
    handles = [
        matplotlib.lines.Line2D([], [], color=color, marker=marker, linestyle="", label=label)
        for color, marker, label in (
            ("#d1495b", "o", "TensorFlow's own, SGD"),
            ("#d1495b", "s", "TensorFlow's own, Adam"),
            ("#00798c", "o", "ours, SGD"),
            ("#00798c", "s", "ours, Adam"),
        )
    ]
    figure.legend(handles=handles, loc="lower center", ncol=4, frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(PLOT, metadata={"Date": None})


def cost_plot(found: List[Dict[str, Any]]) -> None:
    """Plot what a dynamic loss scale adds to a step of Adam, with Keras's class and with scalekeeper."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "scalekeeper"
    from matplotlib import pyplot

    rows = {
        each["name"]: row
        for each in found
        for row in each["step"]
        if (row["set"], row["optimizer"], row["scale"], row["kind"]) == ("mix", "Adam", "dynamic", "default")
    }
    figure, axis = pyplot.subplots(figsize=(9, 0.36 * len(rows) + 1.2))
    for shift, who, color, label in (
        (-0.2, "own", "#d1495b", "Keras's own class"),
        (0.2, "ours", "#00798c", "scalekeeper"),
    ):
        places = [place + shift for place in range(len(rows))]
        values = [added(row, who) for row in rows.values()]
        bars = axis.barh(places, values, height=0.36, color=color, label=label)
        for bar, value in zip(bars, values):
            place = (max(value, 0.0) + 2, bar.get_y() + bar.get_height() / 2)
            axis.text(*place, f"{value:+.0f} %", va="center", fontsize=8, color=color)
    axis.axvline(0, color="#444444", linewidth=0.8)
    axis.set_yticks(range(len(rows)), [f"TensorFlow {name}" for name in rows])
    axis.invert_yaxis()
    axis.set_xlim(right=axis.get_xlim()[1] + 12)
    axis.set_xlabel("time added to a step of Adam without a loss scale, in percent")
    axis.set_title("What a dynamic loss scale adds to the optimizer's step", loc="left", fontweight="bold")
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(axis="y", length=0)
    axis.legend(frameon=False, loc="lower right")
    figure.tight_layout()
    figure.savefig(COST_PLOT, metadata={"Date": None})


def main() -> None:
    found = results()
    rewrite("cost.md", parts_of_cost_page(found))
    cost_plot(found)
    rewrite("performance.md", parts_of_page(found))
    rewrite("gpu.md", parts_of_gpu_page(found))
    plot(found)


if __name__ == "__main__":
    main()
