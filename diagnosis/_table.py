"""The text of a diagnosis: findings, and a table of the layers."""

from typing import Any, List, Optional, Sequence, Tuple

from ._magnitudes import Spread, power_text

COLUMNS = (
    "layer",
    "class",
    "type",
    "outputs",
    "% above",
    "% to 0",
    "gradients",
    "scale from",
    "to",
    "weights",
)


def cells(layer: Any) -> List[str]:
    """Return the row of a layer."""
    gradients = layer.weight_gradients or layer.gradients
    return [
        layer.path,
        layer.cls,
        layer.compute_dtype,
        _largest(layer.activations),
        _percent(layer.activations, "overflow"),
        _percent(layer.activations, "underflow"),
        _largest(gradients),
        power_text(layer.lowest_scale),
        power_text(layer.highest_scale),
        _largest(layer.weights),
    ]


def _largest(spread: Optional[Spread]) -> str:
    return "-" if spread is None else f"{spread.largest:.3g}"


def _percent(spread: Optional[Spread], name: str) -> str:
    if spread is None:
        return "-"
    share = 100 * getattr(spread, name)
    return "0" if not share else "<0.01" if share < 0.01 else f"{share:.2f}"


def summary(diagnosis: Any) -> str:
    """Return the verdict in one line."""
    batches = f"{diagnosis.batches} batch{'es' if diagnosis.batches != 1 else ''}"
    runs = "in float32 and as it is" if diagnosis.is_replayed else "in float32"
    number = len(diagnosis.findings)
    found = "nothing breaks in float16" if not number else f"{number} finding{'s' if number > 1 else ''}"
    layers = f"{len(diagnosis.layers)} layer{'s' if len(diagnosis.layers) != 1 else ''}"
    return f"{found}: {layers}, {batches}, {runs}"


def finding_lines(diagnosis: Any) -> List[Tuple[str, str, str]]:
    """Return level, text and advice of each finding."""
    return [
        (each.level, f"{each.layer}: {each.message}" if each.layer else each.message, each.advice)
        for each in diagnosis.findings
    ]


def scale_line(diagnosis: Any) -> str:
    """Return the recommended loss scale and the reason in one line."""
    return f"loss scale: {power_text(diagnosis.loss_scale).replace('-', 'none')}. {diagnosis.reason}"


def text_of(diagnosis: Any) -> str:
    """Return the whole diagnosis as plain text."""
    lines = [summary(diagnosis)]
    for level, text, advice in finding_lines(diagnosis):
        lines += [f"  {level}: {text}", f"    advice: {advice}"]
    lines += [scale_line(diagnosis), "", *_aligned([COLUMNS, *map(cells, diagnosis.layers)])]
    lines += [f"note: {each}" for each in diagnosis.notes]
    return "\n".join(lines)


def _aligned(rows: Sequence[Sequence[str]]) -> List[str]:
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
