"""What a policy's step gets: the state, and a report on the gradients."""

from typing import Any, Mapping, NamedTuple

State = Mapping[str, Any]


class Report(NamedTuple):
    """What the optimizer knows of one step's gradients. What the policy's ``needs`` do not name is None."""

    finite: Any = None
    largest_magnitude: Any = None
    zero_share: Any = None
