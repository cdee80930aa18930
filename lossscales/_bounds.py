"""Minimum and maximum of a loss scale, and growth and back-off within them."""

from typing import Any, Optional

from ..registry.field_types import broken_rule


def require_bounds(initial: float, minimum: float, maximum: Optional[float]) -> None:
    """Raise an error unless the initial scale is between minimum and maximum."""
    ceiling = float("inf") if maximum is None else maximum
    if minimum > ceiling:
        raise broken_rule("minimum", f"{minimum:g} is above the maximum, {ceiling:g}")
    if not minimum <= initial <= ceiling:
        bounds = f"between the minimum, {minimum:g}, and the maximum, {ceiling:g}"
        message = f"the initial scale, {initial:g}, is not {bounds}: give one that is"
        raise broken_rule("initial_loss_scale", message)


def grown(scale: Any, factor: float, maximum: Optional[float], ops: Any) -> Any:
    """Return the scale times a factor, at most the maximum; without a maximum, keep a scale that would overflow."""
    product = scale * ops.float32(factor)
    if maximum is not None:
        return ops.minimum(product, ops.float32(maximum))
    return ops.where(ops.isfinite(product), product, scale)


def shrunk(scale: Any, divisor: float, minimum: float, ops: Any) -> Any:
    """Return the scale divided by a divisor, at least the minimum."""
    # not scale / divisor, which a graph optimizer replaces by this product, and which may differ in the last bit
    return ops.maximum(scale * (ops.float32(1) / ops.float32(divisor)), ops.float32(minimum))
