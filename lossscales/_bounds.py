"""The floor and the ceiling of a scale: that they make sense, and how growing and backing off keep to them."""

from typing import Any, Optional

from ..registry.field_types import broken_rule


def require_bounds(initial: float, minimum: float, maximum: Optional[float]) -> None:
    """The initial scale lies between the bounds, or an error names the parameter to change."""
    ceiling = float("inf") if maximum is None else maximum
    if minimum > ceiling:
        raise broken_rule("minimum", f"{minimum:g} is above the maximum, {ceiling:g}")
    if not minimum <= initial <= ceiling:
        bounds = f"between the minimum, {minimum:g}, and the maximum, {ceiling:g}"
        message = f"the initial scale, {initial:g}, is not {bounds}: give one that is"
        raise broken_rule("initial_loss_scale", message)


def grown(scale: Any, factor: float, maximum: Optional[float], ops: Any) -> Any:
    """The scale times the factor: not above the maximum; without one, the scale stays where that is not finite."""
    product = scale * ops.float32(factor)
    if maximum is not None:
        return ops.minimum(product, ops.float32(maximum))
    return ops.where(ops.isfinite(product), product, scale)


def shrunk(scale: Any, divisor: float, minimum: float, ops: Any) -> Any:
    """The scale divided, not below the minimum."""
    # not scale / divisor: a graph optimizer makes this product of it, which may differ in the last bit
    return ops.maximum(scale * (ops.float32(1) / ops.float32(divisor)), ops.float32(minimum))
