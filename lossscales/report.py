"""The arguments of a pure step: the state, and the report on the gradients."""

from typing import Any, Mapping, NamedTuple

State = Mapping[str, Any]


class Report(NamedTuple):
    """The facts about the gradients of one step. Fields that the policy does not need are None.

    Attributes:
        finite: Whether all gradients are finite.
        largest_magnitude: The largest magnitude among the unscaled gradients.
        zero_share: The share of gradients that are 0.

    Example:
        >>> import numpy as np
        >>> from scalekeeper import Report
        >>> Report(finite=np.bool_(False)).largest_magnitude is None
        True
    """

    finite: Any = None
    largest_magnitude: Any = None
    zero_share: Any = None
