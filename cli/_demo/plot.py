"""The plot of the demo: the loss scale and the loss of the uninterrupted run and of every resumed run."""

from typing import Any

import io
import warnings

import numpy as np

from ...serialization._atomic import replacing
from ...simulation._plot import COLORS
from .demo_run import Outcome

_SKIPPED, _UNINTERRUPTED, _SAVED = "#d55e00", "#c8c8c8", "#444444"
_CONTINUED = [color for color in COLORS if color != _SKIPPED]
_DASH = 5.0  # points; the dashes of equal continuations lie side by side and form one line
_LOWEST, _HIGHEST = 2.0**-149, 2.0**127  # the range of a logarithmic axis of float32
_EXPLANATION = """\
Each step multiplies the loss by the loss scale, so that small float16 gradients do not become zero. At each × a
gradient was too large for float16: the step is skipped. The dashes are runs that new processes resumed from saved
files. Where they lie on the broad grey line, a resumed run equals the run that was not interrupted."""


def draw(outcome: Outcome, half: int, path: str, note: str) -> None:
    """Write the plot as a PNG file, atomically. The note stands in its last line."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    settings = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # for example a letter that the font lacks
        figure = Figure(figsize=(9.6, 6.8), dpi=130, layout="constrained")
        scales, losses = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [2.6, 1.6]})
        for axes, what in ((scales, "scale"), (losses, "loss")):
            _draw_lines(axes, outcome, what)
            axes.axvline(half + 0.5, color=_SAVED, linewidth=1.0, linestyle=(0, (4, 3)))
            axes.grid(True, which="major", color="#e8e8e8", linewidth=0.6)
            axes.set_axisbelow(True)
        _decorate_scales(scales, outcome, half)
        losses.set(ylabel="training loss", xlabel="training step", xlim=(0, len(outcome.taken) + 1))
        losses.set_ylim(bottom=0)
        losses.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=9))
        figure.suptitle(_title(outcome, half), x=0.015, ha="left", fontsize=13, fontweight="bold")
        scales.set_title(_EXPLANATION, loc="left", x=-0.045, pad=26, fontsize=9, linespacing=1.4)
        figure.supxlabel(note, x=0.99, ha="right", fontsize=7.5, color=_SAVED)
        data = io.BytesIO()
        figure.savefig(data, format="png")
    with replacing(path) as temporary, open(temporary, "wb") as stream:
        stream.write(data.getvalue())


def _title(outcome: Outcome, half: int) -> str:
    count, equal = len(outcome.continuations), sum(each.is_equal for each in outcome.continuations)
    which = f"all {count}" if equal == count else f"{equal} of {count}"
    return f"Saved after step {half} and resumed: {which} resumed runs equal the uninterrupted run"


def _draw_lines(axes: Any, outcome: Outcome, what: str) -> None:
    """Draw a broad line, and on it one of dashes for each continuation."""
    style, width = ("steps-mid", 6.0) if what == "scale" else ("default", 4.0)
    values = _finite([getattr(step, what) for step in outcome.taken])
    numbers = [step.number for step in outcome.taken]
    axes.plot(numbers, values, color=_UNINTERRUPTED, linewidth=width, drawstyle=style, label="uninterrupted")
    resumed = [(each.format.title, each.record) for each in outcome.continuations if each.record is not None]
    for index, (title, record) in enumerate(resumed):
        dashes = (index * _DASH, (_DASH, _DASH * (len(resumed) - 1))) if len(resumed) > 1 else "-"
        color = _CONTINUED[index % len(_CONTINUED)]
        x, y = record["each step/number"], _finite(record[f"each step/{what}"])
        axes.plot(x, y, color=color, linewidth=1.8, drawstyle=style, linestyle=dashes, label=title)


def _finite(values: Any) -> Any:
    """Return the values with NaN, which leaves a gap, for those that are not finite."""
    found = np.asarray(values, np.float64)
    return np.where(np.isfinite(found), found, np.nan)


def _decorate_scales(axes: Any, outcome: Outcome, half: int) -> None:
    skipped = [(step.number, step.scale) for step in outcome.taken if step.is_skipped]
    marks = {"color": _SKIPPED, "markersize": 7, "markeredgewidth": 1.8, "zorder": 3}
    axes.plot([x for x, _ in skipped], [y for _, y in skipped], "x", label=f"{len(skipped)} skipped steps", **marks)
    scales = np.clip([step.scale for step in outcome.taken], _LOWEST, _HIGHEST)
    axes.set_yscale("log", base=2)
    axes.set(ylabel="loss scale (logarithmic)", ylim=(float(scales.min()) / 2, float(scales.max()) * 3))
    text = f" saved after step {half},\n resumed in new processes"
    axes.annotate(text, (half + 0.5, 0.03), xycoords=("data", "axes fraction"), va="bottom", color=_SAVED)
    position = {"loc": "lower left", "bbox_to_anchor": (0, 1.01), "borderaxespad": 0}
    for line in axes.legend(ncol=9, frameon=False, columnspacing=1.2, **position).get_lines():
        if line.get_marker() == "None":  # a dash that begins late would not show in the legend
            line.set_linestyle("-")
