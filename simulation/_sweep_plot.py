"""Plots of sweeps: a heat map of two parameters, or curves over one."""

from typing import Any, Callable, List, Sequence, Tuple

import os
import warnings

import numpy as np

from ..registry.errors import ArgumentError
from ._plot import COLORS, SETTINGS, require_matplotlib, write_figure
from ._sweep import Sweep, SweepPoint

ENDINGS = (".png", ".svg")
MOST_AXES = 2
_MOST_TICKS = 20
_MOST_NUMBERS = 144  # cells of a heat map that have their number in them

Figures = Tuple[Tuple[str, Callable[[SweepPoint], Any], str], ...]
_FIGURES: Figures = (
    ("steps lost, %", lambda point: 100 * point.summary["share_lost"], "{:.2f}"),
    ("mean log2 scale", lambda point: point.mean_log2_scale, "{:.1f}"),
)


def plot_sweep(sweep: Sweep, path: Any, title: str = "", text_of: Callable[[Any], str] = str) -> None:
    """Write a plot of a sweep of one or two parameters to a ``.png`` or ``.svg`` file, atomically.

    ``text_of`` returns the label of a value.
    """
    ending = os.path.splitext(os.fspath(path))[1].lower()
    if ending not in ENDINGS:
        raise ArgumentError(f"{os.fspath(path)!r} must end with {' or '.join(ENDINGS)}")
    if len(sweep.axes) > MOST_AXES:
        raise ArgumentError(f"a plot has one or two parameters, and the sweep has {len(sweep.axes)}")
    require_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # for example a letter that the font lacks
        figure = Figure(figsize=(9.6, 4.2), dpi=130, layout="constrained")
        if len(sweep.axes) == MOST_AXES:
            _draw_heat_maps(figure, sweep, text_of)
        else:
            _draw_curves(figure, sweep, text_of)
        write_figure(figure, path, ending[1:], title)


def _values(sweep: Sweep, of: Callable[[SweepPoint], Any]) -> Any:
    """Return a figure of every combination as an array; NaN where there is none."""
    found = [of(point) for point in sweep.points]
    array = np.array([np.nan if value is None else value for value in found], np.float64)
    return array.reshape([len(values) for values in sweep.axes.values()])


def _ticks(values: Sequence[Any], text_of: Callable[[Any], str]) -> Tuple[List[int], List[str]]:
    """Return the positions and labels of values, of many only some."""
    positions = list(range(0, len(values), -(-len(values) // _MOST_TICKS)))
    return positions, [text_of(values[at]).replace("$", r"\$") for at in positions]


def _draw_heat_maps(figure: Any, sweep: Sweep, text_of: Callable[[Any], str]) -> None:
    (down, rows), (across, columns) = sweep.axes.items()
    for axes, (name, of, form) in zip(figure.subplots(1, len(_FIGURES)), _FIGURES):
        values = _values(sweep, of)
        image = axes.imshow(values, aspect="auto", cmap="viridis")
        figure.colorbar(image, ax=axes, shrink=0.8)
        axes.set_title(name, fontsize=9)
        axes.set_xlabel(across)
        axes.set_ylabel(down)
        axes.set_xticks(*_ticks(columns, text_of))
        axes.set_yticks(*_ticks(rows, text_of))
        if values.size <= _MOST_NUMBERS:
            for (row, column), value in np.ndenumerate(values):
                red, green, blue, _ = image.cmap(image.norm(value)) if value == value else (1, 1, 1, 1)
                color = "black" if red + green + blue > 1.4 else "white"
                text = form.format(value) if value == value else "-"
                axes.text(column, row, text, ha="center", va="center", color=color)


def _draw_curves(figure: Any, sweep: Sweep, text_of: Callable[[Any], str]) -> None:
    ((across, values),) = sweep.axes.items()
    panels = figure.subplots(len(_FIGURES), 1, sharex=True)
    for number, (axes, (name, of, _)) in enumerate(zip(panels, _FIGURES)):
        axes.plot(range(len(values)), _values(sweep, of), "o-", color=COLORS[number])
        axes.set_ylabel(name)
        axes.grid(True, color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
    panels[-1].set_xlabel(across)
    panels[-1].set_xticks(*_ticks(values, text_of))
