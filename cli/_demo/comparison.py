"""Everything that a run has come to, and whether two runs have come to the same."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import numpy as np

from .training_steps import Step

Record = Dict[str, Any]


class Comparison(NamedTuple):
    """What differs, and by how much: ``largest`` is None where that is no number."""

    different: List[str]
    largest: Optional[float]

    @property
    def is_equal(self) -> bool:
        return not self.different


def record_of(model: Any, taken: Sequence[Step]) -> Record:
    """All of the state after the last step, and loss and scale of each step, by name."""
    state, told = model.optimizer.state_dict(), model.optimizer.telemetry
    found: Dict[str, Any] = {f"weights/{place}": weight for place, weight in enumerate(model.get_weights())}
    for owner, slots in state["slots"].items():
        found.update({f"slots/{owner}/{name}": value for name, value in slots.items()})
    found.update({f"scalars/{name}": value for name, value in state["scalars"].items()})
    found.update({f"loss scale/{name}": value for name, value in state["loss_scale"]["state"].items()})
    found["iterations"] = state["iterations"]
    if state["learning_rate"] is not None:  # a schedule is a function of the iterations
        found["learning rate"] = state["learning_rate"]
    found["scale"] = told.loss_scale
    found["steps/taken"], found["steps/skipped"] = told.steps, told.skipped
    found["steps/skipped in a row"] = told.skipped_in_a_row
    found["steps/last skipped"] = told.last_skipped_step or 0
    for name in ("number", "loss", "scale", "is_skipped"):
        found[f"each step/{name}"] = [getattr(step, name) for step in taken]
    return {name: np.asarray(value) for name, value in found.items()}


def compared(expected: Record, found: Record) -> Comparison:
    """Held to each other bit for bit."""
    names = sorted({*expected, *found})
    different = [name for name in names if not _same_bits(expected.get(name), found.get(name))]
    by = [_difference(expected.get(name), found.get(name)) for name in different]
    known = [each for each in by if each is not None]
    return Comparison(different, max(known, default=0.0) if len(known) == len(by) else None)


def _same_bits(one: Any, other: Any) -> bool:
    if one is None or other is None or one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(one.tobytes() == other.tobytes())


def _difference(one: Any, other: Any) -> Optional[float]:
    """The largest; None where one is missing, of another shape, or where either is not finite."""
    if one is None or other is None or one.shape != other.shape:
        return None
    largest = float(np.max(np.abs(one.astype(np.float64) - other.astype(np.float64)), initial=0.0))
    return largest if np.isfinite(largest) else None
