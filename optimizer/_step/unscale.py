"""Scale the loss, unscale the gradients, and group small gradients into buckets."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import sys
import warnings

import tensorflow as tf

from ...registry.errors import ForgottenScalingWarning
from .control_flow import is_compiled_by_xla, rounded

# The reciprocal of a larger scale is subnormal. Most devices flush it to zero, which would zero all gradients.
_LARGEST_SCALE = 2.0**126
# Up to this many elements, starting an operation costs more than the operation itself.
_SMALL = 4096
# From this many small gradients of one shape on, stacking them is cheaper than handling them one by one.
_FEW = 4

GET_SCALED_LOSS, GET_UNSCALED_GRADIENTS = SCALING_METHODS = ("get_scaled_loss", "get_unscaled_gradients")
_LIBRARIES = ("scalekeeper.", "tensorflow.", "tensorflow_core.", "keras.", "tf_keras.")


def warn_of_forgotten_scaling(forgotten: Sequence[str]) -> None:
    """Warn that a program applies gradients without calling some of ``SCALING_METHODS``, at the line that does."""
    frame: Any = sys._getframe(0)
    level = 1
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(_LIBRARIES):
        level, frame = level + 1, frame.f_back
    effect = "the loss scale has no effect"
    if len(forgotten) == 1:
        effect = "the gradients are too large" if GET_UNSCALED_GRADIENTS in forgotten else "the gradients are too small"
    warnings.warn(
        f"apply_gradients is called without {' and '.join(forgotten)}, so {effect}. Compute the gradients of "
        "optimizer.get_scaled_loss(loss), and apply what optimizer.get_unscaled_gradients(gradients) returns; "
        "or call optimizer.minimize",
        ForgottenScalingWarning,
        stacklevel=level,
    )


def usable_scale(scale: Any) -> Any:
    """Clamp a loss scale to the largest one that gradients can be divided by."""
    return tf.minimum(scale, _LARGEST_SCALE)


def scale_loss(loss: Any, scale: Any) -> Any:
    """Multiply the loss by the scale; a loss of fewer than 32 bits becomes float32, where it cannot overflow."""
    loss = tf.convert_to_tensor(loss)
    if loss.dtype in (tf.float16, tf.bfloat16):
        loss = tf.cast(loss, tf.float32)
    return loss * tf.cast(scale, loss.dtype)


def unscale_gradients(grads: Sequence[Any], scale: Any) -> List[Any]:
    """Divide the gradients by the scale: sparse ones stay sparse, None stays None."""
    reciprocal = 1.0 / scale
    return [None if grad is None else _unscale(grad, reciprocal) for grad in grads]


def multiply(values: Any, factor: Any) -> Any:
    """Multiply in the dtype of the values; integers become float32."""
    if values.dtype.is_integer:
        values = tf.cast(values, tf.float32)
    if values.dtype in (tf.float16, tf.bfloat16):  # where the factor itself could underflow
        return tf.cast(tf.cast(values, tf.float32) * factor, values.dtype)
    factor = tf.cast(factor, values.dtype)
    if values.dtype.is_floating and is_compiled_by_xla():
        # XLA of 2.4 to 2.7 reorders products. The reciprocal of a large scale times anything but the scaled gradient
        # can be subnormal, and zero on most devices.
        return rounded(rounded(values) * factor)
    return values * factor


class _ScaledSource(NamedTuple):
    """The tensors that an unscaled gradient was computed from: ``multiply(scaled, reciprocal)``."""

    scaled: Any
    reciprocal: Optional[Any]


def _unscale(grad: Any, reciprocal: Any) -> Any:
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(multiply(grad.values, reciprocal), grad.indices, grad.dense_shape)
    grad = tf.convert_to_tensor(grad)
    result = multiply(grad, reciprocal)
    if not tf.executing_eagerly():
        # If apply_gradients gets this very tensor, it multiplies where it needs the product, and the graph drops this.
        result._scalekeeper_unscaling = _ScaledSource(grad, reciprocal)
    return result


class Bucket(NamedTuple):
    """One gradient, or several of one shape stacked.

    Attributes:
        indices: The positions of the gradients in the list they came from.
        values: The gradient, or the stack.
        reciprocal: The factor the values still have to be multiplied by; None if they are unscaled already.
    """

    indices: Tuple[int, ...]
    values: Any
    reciprocal: Optional[Any] = None

    def unscaled_values(self) -> Any:
        """Return the values multiplied by the reciprocal, if there is one."""
        return self.values if self.reciprocal is None else multiply(self.values, self.reciprocal)

    def gradients(self) -> List[Any]:
        """Return the unscaled gradients as tensors of the current graph, which summing over replicas requires."""
        values = self.unscaled_values()
        if len(self.indices) > 1:
            return list(tf.unstack(values, num=len(self.indices)))
        is_unchanged = self.reciprocal is None and not isinstance(values, tf.IndexedSlices)
        return [tf.identity(values) if is_unchanged else values]


def bucket_gradients(grads: Sequence[Any]) -> List[Bucket]:
    """Group gradients: defer the unscaling of large ones, stack small ones of one shape and unscale them together."""
    buckets = []
    groups: Dict[Any, List[int]] = {}
    grads = [grad if isinstance(grad, tf.IndexedSlices) else tf.convert_to_tensor(grad) for grad in grads]
    sources = [getattr(grad, "_scalekeeper_unscaling", _ScaledSource(grad, None)) for grad in grads]
    for index, (grad, source) in enumerate(zip(grads, sources)):
        if has_at_most(_SMALL, grad):
            alike = (grad.dtype, tuple(grad.shape), id(source.reciprocal))
            groups.setdefault(alike, []).append(index)
        else:
            buckets.append(Bucket((index,), *source))
    for indices in groups.values():
        if len(indices) < _FEW:
            buckets += [Bucket((index,), grads[index]) for index in indices]
        else:
            stack = tf.stack([sources[index].scaled for index in indices])
            scaled = Bucket(tuple(indices), stack, sources[indices[0]].reciprocal)
            buckets.append(Bucket(scaled.indices, scaled.unscaled_values()))
    return buckets


def gradients_of(buckets: Sequence[Bucket]) -> List[Any]:
    """Return the unscaled gradients in their original order."""
    found: Dict[int, Any] = {}
    for bucket in buckets:
        found.update(zip(bucket.indices, bucket.gradients()))
    return [found[index] for index in sorted(found)]


def has_at_most(count: int, values: Any) -> bool:
    """Return whether a dense array is statically known to have at most this many elements."""
    if isinstance(values, tf.IndexedSlices) or not values.shape.is_fully_defined():
        return False
    return bool(values.shape.num_elements() <= count)
