"""The figures of simulations, as people read them."""

from typing import Any, List, Optional, Sequence, Tuple

from ._result import Simulation

COLUMNS = (
    "policy",
    "steps lost",
    "% lost",
    "mean log2 scale",
    "% at the floor",
    "lowest",
    "highest",
    "last scale",
)


def cells(label: str, simulation: Simulation) -> List[str]:
    """A row of the table."""
    return [
        label,
        f"{simulation.steps_lost:,}",
        percent(simulation.share_lost),
        _none_as_dash(simulation.mean_log2_scale, "{:.2f}"),
        percent(simulation.share_at_floor),
        *(scale_text(value) for value in (simulation.lowest, simulation.highest, simulation.last)),
    ]


def notes(simulations: Sequence[Tuple[str, Simulation]]) -> List[str]:
    """What the table alone would hide."""
    found = []
    for label, simulation in simulations:
        if simulation.first_spoiled is not None:
            count = int((simulation.overflowed & simulation.applied).sum())
            found.append(
                f"{label}: {count:,} steps with gradients that are not finite are applied; the first is step "
                f"{simulation.first_spoiled:,}, and the weights are NaN from there on. skip_nonfinite: true would skip "
                "them."
            )
    return found


def percent(share: Optional[float]) -> str:
    """A share as people read it; what is little is not shown as nothing."""
    if share is None:
        return "-"
    return "<0.01" if 0 < share < 0.0001 else f"{100 * share:.2f}"


def scale_text(scale: Optional[float]) -> str:
    """A scale: whole numbers up to a million as they are, powers of two above that as such."""
    if scale is None:
        return "-"
    if 1 <= scale < 2**24 and scale == int(scale):
        return f"{int(scale)}"
    mantissa, exponent = _split(scale)
    return f"2^{exponent}" if mantissa == 1.0 else f"{scale:.6g}"


def _split(scale: float) -> Tuple[float, int]:
    import math

    mantissa, exponent = math.frexp(scale)
    return 2 * mantissa, exponent - 1


def _none_as_dash(value: Any, form: str) -> str:
    return "-" if value is None else form.format(value)
