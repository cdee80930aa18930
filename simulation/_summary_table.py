"""The table of simulation results, as text."""

from typing import Any, List, Optional, Sequence, Tuple

import math

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
    """Return a row of the table."""
    return [
        label,
        f"{simulation.steps_lost:,}",
        percent(simulation.share_lost),
        _none_as_dash(simulation.mean_log2_scale, "{:.2f}"),
        percent(simulation.share_at_floor),
        *(scale_text(value) for value in (simulation.lowest, simulation.highest, simulation.last)),
    ]


def notes(simulations: Sequence[Tuple[str, Simulation]]) -> List[str]:
    """Return notes on applied steps with non-finite gradients."""
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
    """Return a share in percent; small shares as ``<0.01``."""
    if share is None:
        return "-"
    return "<0.01" if 0 < share < 0.0001 else f"{100 * share:.2f}"


def scale_text(scale: Optional[float]) -> str:
    """Return a loss scale as text: integers up to 2^24, larger powers of two as ``2^n``."""
    if scale is None:
        return "-"
    if 1 <= scale < 2**24 and scale == int(scale):
        return f"{int(scale)}"
    mantissa, exponent = math.frexp(scale)
    return f"2^{exponent - 1}" if mantissa == 0.5 else f"{scale:.6g}"


def _none_as_dash(value: Any, form: str) -> str:
    return "-" if value is None else form.format(value)
