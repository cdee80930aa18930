"""What our files hold of skipped steps, and under which names."""

from typing import Any, Dict, Iterator, List, Mapping, Tuple

from ..registry.errors import Problem, shown
from ..registry.field_types import INT64_MAX

NAME = "skips"  # a child of the optimizer in a checkpoint, and a key of a record
COUNTERS = TOTAL, IN_A_ROW, LAST = ("total", "in_a_row", "last")
OVERFLOWS = "overflows"  # variable → steps at which its gradient was not finite; in a record only


def whole(skips: Mapping[str, Any]) -> Dict[str, Any]:
    """With all counters, if there are any."""
    return {**dict.fromkeys(COUNTERS, 0), **skips} if skips else {}


def problems(skips: Any) -> Iterator[Problem]:
    """What is wrong with that part of a record, if anything is."""
    if not isinstance(skips, Mapping):
        yield Problem((NAME,), f"{shown(skips)} does not belong here", "type")
        return
    overflows = skips.get(OVERFLOWS, {})
    if not isinstance(overflows, Mapping):
        yield Problem((NAME, OVERFLOWS), f"{shown(overflows)} does not belong here", "type")
        return
    counts: List[Tuple[Any, Any]] = [((NAME, name), skips.get(name, 0)) for name in COUNTERS]
    counts += [((NAME, OVERFLOWS, name), count) for name, count in overflows.items()]
    for path, count in counts:
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= INT64_MAX:
            yield Problem(path, f"{shown(count)} is no count", "value")
