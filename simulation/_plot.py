"""Plots of simulations: the loss scale of each policy over the steps, and its overflows."""

from typing import Any, NamedTuple, Sequence, Tuple

import io
import os
import warnings

import numpy as np

from ..registry.errors import ArgumentError, MissingPackageError
from ._result import Simulation

ENDINGS = (".png", ".svg", ".html")
# distinct for colour-blind people, too
COLORS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#000000",
    "#7f7f7f",
)
_STYLES = ("-", "--", ":")
_COLUMNS = 300  # a line that changes more often is drawn as its mean and a band
_MARKS = 400
SETTINGS: Any = {
    "font.size": 9,
    "svg.hashsalt": "scalekeeper",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.useoffset": False,  # no "+1.4e1" beside an axis
}
_LOWEST, _HIGHEST = 2.0**-149, 2.0**127  # the range of a logarithmic axis of float32

Named = Tuple[str, Simulation]


def require_matplotlib() -> None:
    """Raise a :class:`MissingPackageError` if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        message = "plots need matplotlib, which is not installed: pip install matplotlib"
        raise MissingPackageError(message) from None


def plot(simulations: Sequence[Named], path: Any, title: str = "") -> None:
    """Write a plot of simulations to a ``.png``, ``.svg`` or ``.html`` file, atomically."""
    name = os.fspath(path)
    ending = os.path.splitext(name)[1].lower()
    if ending not in ENDINGS:
        raise ArgumentError(f"{name!r} must end with one of {', '.join(ENDINGS)}")
    require_matplotlib()
    if ending == ".html":
        from ._html_report import html_report

        data = html_report(simulations, title).encode("utf-8")
    else:
        data = render(simulations, title, ending[1:])[0]
    _write(name, data)


def _write(path: Any, data: bytes) -> None:
    from ..serialization import _atomic

    with _atomic.replacing(path) as temporary, open(temporary, "wb") as stream:
        stream.write(data)


def write_figure(figure: Any, path: Any, kind: str, title: str) -> None:
    """Write a figure with a title to a file, atomically."""
    _write(os.fspath(path), _encoded(figure, kind, title))


def _encoded(figure: Any, kind: str, title: str) -> bytes:
    if title:
        figure.suptitle(_plain(title), x=0.02, ha="left", fontsize=10)
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return stream.getvalue()


def render(simulations: Sequence[Named], title: str, kind: str) -> Tuple[bytes, Tuple[float, float, float, float]]:
    """Return the plot, and the left, right, top and bottom edge of its axes as shares of its size."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # for example a letter that the font lacks
        lanes = 0.16 * len(simulations)
        figure = Figure(figsize=(9.6, 4.6 + lanes + 0.2 * len(simulations)), dpi=130, layout="constrained")
        scales, overflows = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [4.2, 0.25 + lanes]})
        lines = [_draw_scale(scales, simulation, number) for number, (_, simulation) in enumerate(simulations)]
        for number, (_, simulation) in enumerate(simulations):
            _draw_overflows(overflows, simulation, number)
        _decorate(scales, overflows, simulations)
        names = [_legend(label, simulation) for label, simulation in simulations]
        scales.legend(lines, names, loc="lower left", bbox_to_anchor=(0, 1), frameon=False, borderaxespad=0.2)
        data = _encoded(figure, kind, title)
        box = scales.get_position()
    return data, (box.x0, box.x1, 1 - box.y1, 1 - overflows.get_position().y0)


def style(number: int) -> Tuple[str, str]:
    """Return the colour and the line style of a policy."""
    return COLORS[number % len(COLORS)], _STYLES[number // len(COLORS) % len(_STYLES)]


class Outline(NamedTuple):
    """The points of a line: from each of ``steps`` to the next, the scale and its range."""

    steps: Any
    scale: Any
    lowest: Any
    highest: Any


def outline(simulation: Simulation, columns: int = _COLUMNS) -> Outline:
    """Return the points where the scale changes; if these are many, mean and range of each column."""
    scale = np.clip(simulation.scale, _LOWEST, _HIGHEST)
    starts = np.array(simulation.changes, np.int64)
    if len(starts) <= columns:
        return Outline(starts, *[scale[starts]] * 3)
    starts = np.linspace(0, simulation.steps, columns, endpoint=False).astype(np.int64)
    sizes = np.diff(np.append(starts, simulation.steps))
    mean = np.exp2(np.add.reduceat(np.log2(scale, dtype=np.float64), starts) / sizes)
    return Outline(starts, mean, np.minimum.reduceat(scale, starts), np.maximum.reduceat(scale, starts))


def overflow_marks(simulation: Simulation, columns: int = _MARKS) -> Tuple[Any, Any]:
    """Return the steps to mark, at most one per column, and the share of overflows around each."""
    steps = np.flatnonzero(simulation.overflowed)
    if len(steps) <= columns:
        return steps, np.ones(len(steps))
    starts = np.linspace(0, simulation.steps, columns, endpoint=False).astype(np.int64)
    counts = np.add.reduceat(simulation.overflowed.astype(np.int64), starts)
    shares = counts / np.diff(np.append(starts, simulation.steps))
    return starts[counts > 0], shares[counts > 0]


def _draw_scale(axes: Any, simulation: Simulation, number: int) -> Any:
    color, kind = style(number)
    found = outline(simulation)
    steps = np.append(found.steps, simulation.steps)[: len(found.steps) + 1]
    scale, lowest, highest = (np.append(values, values[-1:]) for values in found[1:])
    if len(found.steps) and (lowest != highest).any():
        axes.fill_between(steps, lowest, highest, step="post", color=color, alpha=0.16, linewidth=0)
    # lines overlap: the first ones are wider, to stay visible
    width = max(1.1, 2.0 - 0.25 * number)
    steps = steps if len(found.steps) else found.steps
    return axes.plot(steps, scale, kind, drawstyle="steps-post", color=color, linewidth=width, alpha=0.95)[0]


def _draw_overflows(axes: Any, simulation: Simulation, number: int) -> None:
    from matplotlib.colors import to_rgba

    steps, shares = overflow_marks(simulation)
    # make small shares visible, too
    colors = [to_rgba(style(number)[0], 0.35 + 0.65 * share**0.5) for share in shares]
    width = 1.2 if len(steps) < _MARKS // 2 else 1.6  # many marks form a band
    axes.vlines(steps, number - 0.38, number + 0.38, colors=colors, linewidth=width)


def _decorate(scales: Any, overflows: Any, simulations: Sequence[Named]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    steps = max([simulation.steps for _, simulation in simulations] or [1])
    scales.set_yscale("log", base=2)
    scales.set_ylabel("loss scale")
    scales.grid(True, which="major", color="#dddddd", linewidth=0.6)
    scales.set_axisbelow(True)
    scales.set_xlim(-0.005 * steps, 1.005 * steps)
    low, high = scales.get_ylim()
    if high < 8 * low:  # do not magnify a scale that hardly changes
        scales.set_ylim(low / 4, high * 4)
    overflows.set_ylim(len(simulations) - 0.4, -0.6)
    overflows.set_yticks([])
    overflows.set_ylabel("overflows", rotation=0, ha="right", va="center")
    overflows.set_xlabel("step")
    overflows.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    overflows.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    overflows.spines["left"].set_visible(False)


def _legend(label: str, simulation: Simulation) -> str:
    lost = f"{simulation.steps_lost:,} of {simulation.steps:,} steps lost"
    return f"{_plain(label)}: {lost}"


def _plain(text: str) -> str:
    """Escape a text that matplotlib would take for a formula or a hidden label."""
    text = text.replace("$", r"\$")
    return " " + text if text.startswith("_") else text
