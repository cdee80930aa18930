"""Old name of ``KerasProfile.ordered_slots``, until the callers have moved."""

from typing import Any, List, Mapping, Sequence, Tuple

from .profile import profile_of_family


def ordered(
    slots: Mapping[str, Mapping[str, Any]], class_name: str, family: str, owners: Sequence[str]
) -> List[Tuple[str, str]]:
    profile = profile_of_family(family)
    assert profile is not None
    return profile.ordered_slots(slots, class_name, owners)
