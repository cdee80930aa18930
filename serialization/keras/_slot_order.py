"""In which order an optimizer lists its slots: files that have no names for them go by it."""

from typing import List, Mapping, Sequence, Tuple

from ._optimizer_config import LEGACY
from ._slot_names import slots_of_class

_AVERAGE = "average"  # the moving average of the variables themselves: made before all others
# classes of newer optimizers that make one slot for all variables, and then the next; and of legacy ones that do not
_IN_BLOCKS, _LEGACY_IN_TURN = ("RMSprop",), ("Ftrl",)
# slots that come in a block after all others
_LAST = ("vhat",)


def ordered(
    slots: Mapping[str, Mapping[str, object]], class_name: str, family: str, owners: Sequence[str]
) -> List[Tuple[str, str]]:
    """Owner and slot of each, in order. Legacy optimizers go slot after slot, newer ones variable after variable."""
    present = {name for each in slots.values() for name in each}
    known = [name for name in slots_of_class(class_name) if name in present]
    names = [*known, *sorted(present - {*known, _AVERAGE})]
    if class_name not in _LEGACY_IN_TURN if family == LEGACY else class_name in _IN_BLOCKS:
        groups = [[name] for name in names]
    else:
        in_turn = [name for name in names if name not in _LAST]
        groups = [in_turn, *([name] for name in names if name in _LAST)]
    groups = [*([[_AVERAGE]] if _AVERAGE in present else []), *groups]
    return [(owner, name) for group in groups for owner in owners for name in group if name in slots.get(owner, {})]
