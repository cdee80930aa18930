"""Monitoring options of an optimizer."""

from typing import Any, Dict, List, Mapping, Optional

from pydantic import Field
from typing_extensions import Literal

from ._parameters import checked
from .field_types import PositiveInt, StrictModel


class Monitoring(StrictModel):
    """Monitoring options: arguments of a LossScaleOptimizer, and keys of a document."""

    stop_after_skips: Optional[PositiveInt] = Field(
        None, description="Stop with an error after so many skipped steps in a row; null: never."
    )
    attribute_overflows: bool = Field(
        False, description="Count for each variable the skipped steps at which its gradient was not finite."
    )
    watch: List[Literal["largest_magnitude", "zero_share"]] = Field(
        [], description="Figures of the gradients to measure at every step, besides those that the loss scale needs."
    )

    def said(self) -> Dict[str, Any]:
        """Return the options that are not defaults; plain TensorFlow reads a configuration without them."""
        return {name: value for name, value in self.model_dump().items() if value not in (None, False, [])}


NAMES = tuple(Monitoring.model_fields)


def monitoring_of(values: Mapping[str, Any], owner: str) -> Monitoring:
    """Return the monitoring options among the values, checked."""
    return checked(Monitoring, {name: values[name] for name in NAMES if name in values}, owner)
