"""The picture: the scale over the steps, of the uninterrupted run and of all that went on from it, and the loss."""

from typing import Any, List

import io
import warnings

import numpy as np

from ...serialization._atomic import replacing
from ...simulation._plot import COLORS
from .demo_run import Outcome

_SKIPPED = "#d55e00"
_CONTINUED = [color for color in COLORS if color != _SKIPPED]
_UNINTERRUPTED = "#c8c8c8"
_DASH = 5.0  # points: each continuation has its own places in the line that all of them share if they are equal
_LOWEST, _HIGHEST = 2.0**-149, 2.0**127  # what a logarithmic axis can show of float32


def draw(outcome: Outcome, path: str, title: str) -> None:
    """Write it as PNG, whole or not at all."""
    data = _drawn(outcome, title)
    with replacing(path) as temporary, open(temporary, "wb") as stream:
        stream.write(data)


def _drawn(outcome: Outcome, title: str) -> bytes:
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    settings = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter that the font has not is a small matter
        figure = Figure(figsize=(9.6, 5.8), dpi=130, layout="constrained")
        scales, losses = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [2.6, 1.6]})
        _draw_lines(scales, outcome, "scale")
        _draw_lines(losses, outcome, "loss")
        _mark_skipped(scales, outcome)
        for axes in (scales, losses):
            axes.axvline(outcome.half + 0.5, color="#444444", linewidth=1.0, linestyle=(0, (4, 3)))
            axes.grid(True, which="major", color="#e8e8e8", linewidth=0.6)
            axes.set_axisbelow(True)
        _dress_scales(scales, outcome)
        losses.set_ylabel("loss")
        losses.set_ylim(bottom=0)
        losses.set_xlabel("step")
        losses.set_xlim(0, len(outcome.taken) + 1)
        losses.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=9))
        _add_legend(scales)
        figure.suptitle(title, x=0.015, ha="left", fontsize=10.5)
        stream = io.BytesIO()
        figure.savefig(stream, format="png")
    return stream.getvalue()


def _draw_lines(axes: Any, outcome: Outcome, what: str) -> None:
    """A broad line, and on it one of dashes for each continuation."""
    numbers = [step.number for step in outcome.taken]
    values = [getattr(step, what) for step in outcome.taken]
    kind = "steps-mid" if what == "scale" else "default"
    width = 6.0 if what == "scale" else 4.0
    axes.plot(numbers, _shown(values), color=_UNINTERRUPTED, linewidth=width, drawstyle=kind, label="not interrupted")
    there = [each for each in outcome.continuations if each.record is not None]
    for place, each in enumerate(there):
        record: Any = each.record
        dashes = (place * _DASH, (_DASH, _DASH * (len(there) - 1))) if len(there) > 1 else "-"
        color = _CONTINUED[place % len(_CONTINUED)]
        x, y = record["each step/number"], _shown(record[f"each step/{what}"])
        axes.plot(x, y, color=color, linewidth=1.8, drawstyle=kind, linestyle=dashes, label=each.title)


def _shown(values: Any) -> Any:
    """A number that is not finite leaves a gap."""
    found = np.asarray(values, np.float64)
    return np.where(np.isfinite(found), found, np.nan)


def _mark_skipped(axes: Any, outcome: Outcome) -> None:
    skipped = [step for step in outcome.taken if step.is_skipped]
    scales: List[float] = [step.scale for step in skipped]
    label = f"skipped ({len(skipped)})"
    numbers = [step.number for step in skipped]
    axes.plot(numbers, scales, "x", color=_SKIPPED, markersize=7, markeredgewidth=1.8, label=label, zorder=3)


def _dress_scales(axes: Any, outcome: Outcome) -> None:
    scales = np.clip([step.scale for step in outcome.taken], _LOWEST, _HIGHEST)
    axes.set_yscale("log", base=2)
    axes.set_ylim(float(scales.min()) / 2, float(scales.max()) * 3)
    axes.set_ylabel("loss scale")
    text = f" saved after step {outcome.half},\n continued in new processes"
    axes.annotate(text, (outcome.half + 0.5, 0.03), xycoords=("data", "axes fraction"), va="bottom", color="#444444")


def _add_legend(axes: Any) -> None:
    """In one row; a dash that begins late would not be seen in it, so there lines are whole."""
    legend = axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1.01), ncol=9, frameon=False, borderaxespad=0, columnspacing=1.2
    )
    for line in legend.get_lines():
        if line.get_marker() == "None":
            line.set_linestyle("-")
