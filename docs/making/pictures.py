"""The pictures of docs/pictures/: policies on a recorded run and on synthetic gradients, and what a lost state costs.

They are small SVG files of a few lines each. Their colours can be read on light and on dark pages, and every number in
them comes from ``scalekeeper.simulate``.
"""

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import os

import numpy as np

import scalekeeper
from scalekeeper.simulation._plot import outline, overflow_marks
from scalekeeper.simulation._synthetic_traces import synthetic

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "..", "pictures")
STEPS = 20000
GREY, COLORS = "#808080", ("#1e88d2", "#e0701a", "#1f9d73", "#b55fa5", "#b8860b")
PANEL, TALL, LEFT, GAP, TOP = 330, 130, 40, 50, 24
COLUMNS = 165

# a picture → what is drawn in it: a name beside the line, and a policy
PICTURES: Dict[str, List[Tuple[str, Any]]] = {
    "fixed": [
        ("fixed, 64", {"name": "fixed", "loss_scale_value": 64, "skip_nonfinite": True}),
        ("fixed, 4096", {"name": "fixed", "loss_scale_value": 4096, "skip_nonfinite": True}),
    ],
    "dynamic": [
        ("dynamic", "dynamic"),
        ("increment_period: 200", {"name": "dynamic", "increment_period": 200}),
    ],
    "presets": [
        ("dynamic/pytorch", "dynamic/pytorch"),
        ("dynamic/deepspeed", "dynamic/deepspeed"),
        ("dynamic/deepspeed_consecutive", "dynamic/deepspeed_consecutive"),
        ("dynamic/tf1_contrib", "dynamic/tf1_contrib"),
    ],
    "tolerant": [
        ("dynamic", "dynamic"),
        ("tolerant, tolerance: 0.05", {"name": "tolerant", "tolerance": 0.05}),
    ],
    "log_max": [
        ("dynamic", "dynamic"),
        ("log_max", "log_max"),
        ("overflow_std_dev: 6", {"name": "log_max", "overflow_std_dev": 6.0}),
    ],
    "adaptive_window": [
        ("dynamic", "dynamic"),
        ("adaptive_window", "adaptive_window"),
    ],
    "scheduled": [
        ("piecewise", {"name": "scheduled", "values": [128, 1024], "boundaries": [5000]}),
        (
            "exponential",
            {"name": "scheduled", "values": [8192, 64], "boundaries": [15000], "schedule": "exponential"},
        ),
    ],
    "none": [
        ("dynamic", "dynamic"),
        ("none", {"name": "none", "skip_nonfinite": True}),
    ],
}


class Line(NamedTuple):
    """A line: from each of ``steps`` to the next a scale, as a power of two; and where steps were lost."""

    label: str
    steps: Any
    log2: Any
    lost: Any
    color: str


def pictures() -> Dict[str, str]:
    """File name → SVG text of each picture."""
    traces = [
        ("loss scale, recorded: a small recurrent network in float16", recorded()),
        ("loss scale, synthetic: drifting gradients", drifting()),
    ]
    found = {"kept_state.svg": kept_state()}
    for name, policies in PICTURES.items():
        panels = [
            (
                title,
                [drawn(label, scalekeeper.simulate(policy, trace), n) for n, (label, policy) in enumerate(policies)],
            )
            for title, trace in traces
        ]
        found[f"{name}.svg"] = picture(panels)
    return found


def recorded() -> Any:
    return scalekeeper.read_trace(os.path.join(HERE, "..", "..", "examples", "small_float16.npz"))


def drifting() -> Any:
    return synthetic("drifting", STEPS, median=0.05, spread=1.0, drift=0.05, seed=1)


def drawn(label: str, simulation: Any, number: int) -> Line:
    found = outline(simulation, COLUMNS)
    marks, _ = overflow_marks(simulation, COLUMNS)
    return Line(
        f"{label}: {simulation.steps_lost} steps lost", found.steps, np.log2(found.scale), marks, COLORS[number]
    )


def kept_state() -> str:
    """A run that is saved and loaded four times, with its state and without."""
    trace, pieces = recorded(), 5
    whole = scalekeeper.simulate("dynamic", trace)
    length = STEPS // pieces
    lines = [drawn("state kept", whole, 0)]
    parts = [
        scalekeeper.simulate("dynamic", scalekeeper.Trace(trace.largest[start : start + length]))
        for start in range(0, STEPS, length)
    ]
    again = whole._replace(
        scale=np.concatenate([part.scale for part in parts]),
        applied=np.concatenate([part.applied for part in parts]),
        overflowed=np.concatenate([part.overflowed for part in parts]),
    )
    lines.append(drawn("state lost at each load", again, 1))
    loads = range(length, STEPS, length)
    title = "the loss scale of a run that is saved and loaded four times"
    return picture([(title, lines[::-1])], width=2 * PANEL + GAP, loads=loads)


# Drawing


def picture(panels: Sequence[Tuple[str, List[Line]]], width: int = PANEL, loads: Sequence[int] = ()) -> str:
    """Panels side by side on the same heights, with the lines' names below."""
    lines = [line for _, several in panels for line in several]
    low = int(np.floor(min(line.log2.min() for line in lines)))
    high = int(np.ceil(max(line.log2.max() for line in lines)))
    low, high = (low - 2, high + 2) if high - low < 4 else (low, high)
    lanes = max(len(several) for _, several in panels)
    total = LEFT + len(panels) * width + (len(panels) - 1) * GAP + 22
    tall = TOP + TALL + 8 * lanes + 22 + 15 * lanes + 4
    size = f'viewBox="0 0 {total} {tall}" width="{total}" height="{tall}"'
    found = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">']
    for place, (title, several) in enumerate(panels):
        found += panel(LEFT + place * (width + GAP), width, title, several, low, high, loads)
    return "\n".join([*found, "</svg>\n"])


def panel(left: int, width: int, title: str, lines: List[Line], low: int, high: int, loads: Sequence[int]) -> List[str]:
    """The title, a grid, a line for each policy, a row of marks for each, and names."""

    def across(step: float) -> str:
        return f"{left + width * step / STEPS:.0f}"

    def up(log2: float) -> str:
        return f"{TOP + TALL * (high - log2) / (high - low):.1f}".replace(".0", "")

    found = [f'<text x="{left}" y="14" fill="{GREY}" font-weight="bold">{title}</text>']
    for each in range(low, high + 1):
        if each % max(1, round((high - low) / 5)) == 0:
            found.append(f'<path d="M{left} {up(each)}H{left + width}" stroke="{GREY}" stroke-opacity=".3"/>')
            found.append(
                f'<text x="{left - 5}" y="{float(up(each)) + 4:.0f}" fill="{GREY}" text-anchor="end">'
                f'2<tspan dy="-4" font-size="8">{each}</tspan></text>'
            )
    bottom = TOP + TALL
    for load in loads:
        found.append(f'<path d="M{across(load)} {TOP}V{bottom}" stroke="{GREY}" stroke-dasharray="3 3"/>')
    for number, line in enumerate(lines):
        path = f"M{across(line.steps[0])} {up(line.log2[0])}"
        for step, log2 in zip(line.steps[1:], line.log2[1:]):
            path += f"H{across(step)}V{up(log2)}"
        path += f"H{left + width}"
        found.append(f'<path d="{path}" fill="none" stroke="{line.color}" stroke-width="{2.4 - 0.4 * number:.1f}"/>')
        lane = bottom + 4 + 8 * number
        columns = sorted({across(step) for step in line.lost}, key=int)
        marks = "".join(f"M{column} {lane}v6" for column in columns)
        if marks:
            found.append(f'<path d="{marks}" stroke="{line.color}"/>')
    lowest = bottom + 8 * len(lines) + 16
    if left == LEFT:  # the panels have one axis
        found.append(f'<text x="{left - 12}" y="{lowest}" fill="{GREY}" text-anchor="end">step</text>')
    for share in range(5):
        step = STEPS * share // 4
        found.append(f'<text x="{across(step)}" y="{lowest}" fill="{GREY}" text-anchor="middle">{step:,}</text>')
    for number, line in enumerate(lines):
        place = lowest + 15 * (number + 1)
        found.append(f'<path d="M{left} {place - 4}h18" stroke="{line.color}" stroke-width="3"/>')
        found.append(f'<text x="{left + 24}" y="{place}" fill="{line.color}">{line.label}</text>')
    return found


def write() -> None:
    """Write all of them."""
    os.makedirs(FOLDER, exist_ok=True)
    for name, text in pictures().items():
        with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as stream:
            stream.write(text)
