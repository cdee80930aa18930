"""Number types for parameters that end up as float32 or int64 on a device.

The bounds are those of the device type, so a value that passes here is still the same kind of number there: positive
values do not become 0, finite ones not inf, and a factor above 1 does not round to 1.
"""

from typing import Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError
from typing_extensions import Annotated

FLOAT32_MAX = float(2**128 - 2**104)
FLOAT32_TINY = 2.0**-126
FLOAT32_ABOVE_ONE = 1.0 + 2.0**-23
FLOAT32_BELOW_ONE = 1.0 - 2.0**-24
INT64_MAX = 2**63 - 1


class StrictModel(BaseModel):
    """A frozen record of parameters: unknown names are refused, and nothing is converted from another type."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())


def _whole(value: Any) -> Any:
    """JSON has one number type, so 2000.0 is as whole as 2000; anything else is left for the type to judge."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WholeNumber = Annotated[int, BeforeValidator(_whole)]
Number = Annotated[float, Field(ge=-FLOAT32_MAX, le=FLOAT32_MAX)]
NonNegativeFloat = Annotated[float, Field(ge=0, le=FLOAT32_MAX)]
PositiveFloat = Annotated[float, Field(ge=FLOAT32_TINY, le=FLOAT32_MAX)]
AtLeastOne = Annotated[float, Field(ge=1, le=FLOAT32_MAX)]
GreaterThanOne = Annotated[float, Field(ge=FLOAT32_ABOVE_ONE, le=1 / FLOAT32_TINY)]  # so that 1 / x is no denormal
BelowOne = Annotated[float, Field(ge=FLOAT32_TINY, le=FLOAT32_BELOW_ONE)]
Fraction = Annotated[float, Field(ge=0, le=1)]
PositiveInt = Annotated[int, Field(ge=1, le=INT64_MAX), BeforeValidator(_whole)]
NonNegativeInt = Annotated[int, Field(ge=0, le=INT64_MAX), BeforeValidator(_whole)]
AtLeastTwoInt = Annotated[int, Field(ge=2, le=INT64_MAX), BeforeValidator(_whole)]


def broken_rule(field: str, message: str) -> PydanticCustomError:
    """The error for a rule between several fields, which no single field's type (and no JSON Schema) can state."""
    return PydanticCustomError("rule", "{message}", {"field": field, "message": message})
