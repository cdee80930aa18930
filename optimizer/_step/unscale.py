"""The loss times the scale, and the gradients divided by it."""

from typing import Any, List, NamedTuple, Optional, Sequence

import tensorflow as tf

# The reciprocal of a larger scale is no normal number. Most devices take that for zero, and all gradients would be.
_LARGEST_SCALE = 2.0**126


class Unscaling(NamedTuple):
    """Where an unscaled gradient comes from: ``times(scaled, reciprocal)``."""

    scaled: Any
    reciprocal: Optional[Any]


def usable(scale: Any) -> Any:
    """The scale, as far as gradients can be divided by it."""
    return tf.minimum(scale, _LARGEST_SCALE)


def scaled(loss: Any, scale: Any) -> Any:
    """The loss times the scale. A loss of fewer than 32 bits is scaled as float32, where the product can't overflow."""
    loss = tf.convert_to_tensor(loss)
    if loss.dtype in (tf.float16, tf.bfloat16):
        loss = tf.cast(loss, tf.float32)
    return loss * tf.cast(scale, loss.dtype)


def unscaled(grads: Sequence[Any], scale: Any) -> List[Any]:
    """The gradients divided by the scale: sparse ones stay sparse, None stays None."""
    reciprocal = 1.0 / scale
    return [None if grad is None else _unscaled(grad, reciprocal) for grad in grads]


def _unscaled(grad: Any, reciprocal: Any) -> Any:
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(times(grad.values, reciprocal), grad.indices, grad.dense_shape)
    grad = tf.convert_to_tensor(grad)
    result = times(grad, reciprocal)
    if not tf.executing_eagerly():
        # If the optimizer gets just this tensor, it can do the product where it needs it, and the graph drops this one.
        result._scalekeeper_unscaling = Unscaling(grad, reciprocal)
    return result


def unscaling_of(grad: Any) -> Unscaling:
    """How ``unscaled`` made this tensor; without a reciprocal, if it did not."""
    return getattr(grad, "_scalekeeper_unscaling", Unscaling(grad, None))


def times(values: Any, factor: Any) -> Any:
    """A product in the type of the values; of whole numbers, which have no fractions, in float32."""
    if values.dtype.is_integer:
        values = tf.cast(values, tf.float32)
    if values.dtype in (tf.float16, tf.bfloat16):  # where the factor itself could underflow
        return tf.cast(tf.cast(values, tf.float32) * factor, values.dtype)
    return values * tf.cast(factor, values.dtype)
