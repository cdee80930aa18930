"""Number types for parameters that become float32 or int64 on a device.

Their bounds are those of the device type: a positive value does not become 0, a finite one not inf, and a factor above
1 does not round to 1.
"""

from typing import Any

import numbers

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError
from typing_extensions import Annotated

FLOAT32_MAX = float(2**128 - 2**104)
FLOAT32_TINY = 2.0**-126
FLOAT32_ABOVE_ONE = 1.0 + 2.0**-23
FLOAT32_BELOW_ONE = 1.0 - 2.0**-24
INT64_MAX = 2**63 - 1


class StrictModel(BaseModel):
    """Base class of parameter models: frozen, without unknown names or type conversions."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())


def _whole(value: Any) -> Any:
    """Return 2000.0 and an integer of NumPy as int, because JSON has one number type; return others unchanged."""
    is_whole = isinstance(value, float) and value.is_integer()
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, (bool, int))
    return int(value) if is_whole or is_integer else value


WholeNumber = Annotated[int, BeforeValidator(_whole)]
Number = Annotated[float, Field(ge=-FLOAT32_MAX, le=FLOAT32_MAX)]
NonNegativeFloat = Annotated[float, Field(ge=0, le=FLOAT32_MAX)]
PositiveFloat = Annotated[float, Field(ge=FLOAT32_TINY, le=FLOAT32_MAX)]
AtLeastOne = Annotated[float, Field(ge=1, le=FLOAT32_MAX)]
GreaterThanOne = Annotated[float, Field(ge=FLOAT32_ABOVE_ONE, le=1 / FLOAT32_TINY)]  # so that 1 / x is a normal number
BelowOne = Annotated[float, Field(ge=FLOAT32_TINY, le=FLOAT32_BELOW_ONE)]
Fraction = Annotated[float, Field(ge=0, le=1)]
PositiveInt = Annotated[int, Field(ge=1, le=INT64_MAX), BeforeValidator(_whole)]
NonNegativeInt = Annotated[int, Field(ge=0, le=INT64_MAX), BeforeValidator(_whole)]
AtLeastTwoInt = Annotated[int, Field(ge=2, le=INT64_MAX), BeforeValidator(_whole)]


def broken_rule(field: str, message: str) -> PydanticCustomError:
    """Return the error for a rule between several fields."""
    return PydanticCustomError("rule", "{message}", {"field": field, "message": message})
