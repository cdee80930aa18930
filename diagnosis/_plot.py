"""A picture of a diagnosis: layers by magnitudes, with the limits of float16."""

from typing import Any, List, Optional, Sequence

import io
import math
import os
import warnings

import numpy as np

from ..registry.errors import ArgumentError
from ..simulation._plot import require_matplotlib
from ._magnitudes import LARGEST, ROUNDS_TO_ZERO, SMALLEST_NORMAL, Spread, power_text

ENDINGS = (".png", ".svg")
_LOWEST, _HIGHEST = -44, 28  # powers of two; what is beyond counts for the edges
_MOST_LAYERS = 150  # of a picture that can be read
_LIMITS = ((ROUNDS_TO_ZERO, "zero below"), (SMALLEST_NORMAL, "subnormal below"), (LARGEST, "infinite above"))


def plot(diagnosis: Any, path: Any) -> None:
    """Write a picture to a ``.png`` or ``.svg`` file, atomically."""
    from ..serialization import _atomic

    name = os.fspath(path)
    ending = os.path.splitext(name)[1].lower()
    if ending not in ENDINGS:
        raise ArgumentError(f"{name!r} must end with {' or '.join(ENDINGS)}")
    require_matplotlib()
    data = render(diagnosis, ending[1:])
    with _atomic.replacing(name) as temporary, open(temporary, "wb") as stream:
        stream.write(data)


def render(diagnosis: Any, kind: str) -> bytes:
    """Return the picture."""
    import matplotlib
    from matplotlib.figure import Figure

    scale = diagnosis.scale_in_use or diagnosis.loss_scale or 1.0
    layers = [each for each in diagnosis.layers if any((each.activations, each.gradients, each.weights))]
    layers = layers[:_MOST_LAYERS]
    panels = [
        ("outputs", [each.activations for each in layers], 1.0),
        (f"gradients × {power_text(scale)}", [each.weight_gradients or each.gradients for each in layers], scale),
        ("weights", [each.weights for each in layers], 1.0),
    ]
    settings: Any = {"font.size": 8, "svg.hashsalt": "scalekeeper"}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # for example a letter that the font lacks
        figure = Figure(figsize=(11, 1.6 + 0.2 * max(len(layers), 3)), dpi=120, layout="constrained")
        for axes, (title, spreads, factor) in zip(figure.subplots(1, 3, sharey=True), panels):
            _draw(axes, title, spreads, factor)
        first = figure.axes[0]
        first.set_yticks(np.arange(len(layers)) + 0.5)
        first.set_yticklabels([each.path.replace("$", r"\$") for each in layers])
        first.set_ylim(max(len(layers), 1), 0)
        stream = io.BytesIO()
        figure.savefig(stream, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return stream.getvalue()


def shares(spread: Optional[Spread], factor: float) -> List[float]:
    """Return the share of the numbers above zero in each column of the picture, multiplied by a factor."""
    found = [0.0] * (_HIGHEST - _LOWEST + 1)
    if spread is None or not spread.powers:
        return found
    total, shift = sum(spread.powers.values()), round(math.log2(factor))
    for power, count in spread.powers.items():
        found[min(max(power + shift, _LOWEST), _HIGHEST) - _LOWEST] += count / total
    return found


def _draw(axes: Any, title: str, spreads: Sequence[Optional[Spread]], factor: float) -> None:
    from matplotlib.ticker import FuncFormatter

    rows = np.array([shares(each, factor) for each in spreads] or [shares(None, 1.0)])
    edges = np.arange(_LOWEST, _HIGHEST + 2)
    axes.pcolormesh(edges, np.arange(len(rows) + 1), np.ma.masked_equal(rows**0.5, 0), cmap="viridis_r", vmin=0, vmax=1)
    for limit, label in _LIMITS:
        place = math.log2(limit)
        axes.axvline(place, color="#d55e00", linewidth=1, linestyle=":" if limit == SMALLEST_NORMAL else "-")
        behind = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.5}  # the columns below may be dark
        axes.annotate(
            label, (place, 0), (2, -2), textcoords="offset points", rotation=90, va="top", fontsize=6, bbox=behind
        )
    axes.set_title(title, loc="left")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"$2^{{{value:.0f}}}$"))
    axes.set_xlim(_LOWEST, _HIGHEST + 1)
