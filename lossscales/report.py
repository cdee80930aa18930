"""The arguments of a pure step: the state, and the report on the gradients."""

from typing import Any, Mapping, NamedTuple

State = Mapping[str, Any]


class Report(NamedTuple):
    """The facts about the gradients of one step. Fields that the policy does not need are None.

    Attributes:
        finite: Whether all gradients are finite.
        largest_magnitude: The largest magnitude among the unscaled gradients.
        zero_share: The share of gradients that are 0.
    """

    finite: Any = None
    largest_magnitude: Any = None
    zero_share: Any = None
