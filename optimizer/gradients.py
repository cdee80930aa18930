"""What is done with gradients: they are unscaled, and they are looked at, once each."""

from typing import Any, Callable, Dict, FrozenSet, List, Optional, Sequence

import collections

import tensorflow as tf

# Below this many elements, adding gradients of one shape first and summing the result is cheaper than one sum for each.
_SMALL = 4096


def scaled(loss: Any, scale: Any) -> Any:
    """The loss times the scale. A loss of fewer than 32 bits is scaled as float32, where the product can't overflow."""
    loss = tf.convert_to_tensor(loss)
    if loss.dtype in (tf.float16, tf.bfloat16):
        loss = tf.cast(loss, tf.float32)
    return loss * tf.cast(scale, loss.dtype)


def unscaled(grads: Sequence[Any], scale: Any) -> List[Any]:
    """The gradients divided by the scale: sparse ones stay sparse, None stays None."""
    reciprocal = 1.0 / scale
    by_type: Dict[Any, Any] = {}

    def divide(values: Any) -> Any:
        if values.dtype in (tf.float16, tf.bfloat16):  # where the reciprocal itself could underflow
            return tf.cast(tf.cast(values, tf.float32) * reciprocal, values.dtype)
        if values.dtype not in by_type:
            by_type[values.dtype] = tf.cast(reciprocal, values.dtype)
        return values * by_type[values.dtype]

    return [None if grad is None else _with_values(grad, divide) for grad in grads]


def _with_values(grad: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(change(grad.values), grad.indices, grad.dense_shape)
    return change(tf.convert_to_tensor(grad))


def all_finite(grads: Sequence[Any]) -> Any:
    """Whether every gradient is finite, as a boolean scalar.

    A finite sum proves that every term is finite, and a sum reads each gradient once. Only a sum that is not finite,
    which terms that are all finite can have too, needs the exact look.
    """
    arrays = [array for array in map(_checkable, grads) if array is not None]
    if not arrays:
        return tf.constant(True)
    total = tf.add_n([tf.cast(tf.reduce_sum(array), tf.float32) for array in _grouped(arrays)])
    return unlowered_cond(
        tf.math.is_finite(total),
        lambda: tf.constant(True),
        lambda: tf.reduce_all(tf.stack([tf.reduce_all(tf.math.is_finite(array)) for array in arrays])),
    )


def _checkable(grad: Any) -> Optional[Any]:
    """The numbers of a gradient; of a sparse one, as the optimizer will see them: those of one index added up."""
    if grad is None:
        return None
    if isinstance(grad, tf.IndexedSlices):
        rows, positions = tf.unique(grad.indices)
        values = tf.math.unsorted_segment_sum(grad.values, positions, tf.size(rows))
    else:
        values = tf.convert_to_tensor(grad)
    if values.dtype.is_complex:
        values = tf.stack([tf.math.real(values), tf.math.imag(values)])
    if not values.dtype.is_floating:
        return None
    return tf.cast(values, tf.float32) if values.dtype.size < 4 else values


def _grouped(arrays: List[Any]) -> List[Any]:
    """Small arrays of one shape and type are added up; what is not finite stays so in the sum."""
    small: Dict[Any, List[Any]] = collections.defaultdict(list)
    found = []
    for array in arrays:
        size = array.shape.num_elements() if array.shape.is_fully_defined() else None
        if size is not None and size <= _SMALL:
            small[array.dtype, tuple(array.shape)].append(array)
        else:
            found.append(array)
    return found + [group[0] if len(group) == 1 else tf.add_n(group) for group in small.values()]


def measure(grads: Sequence[Any], needs: FrozenSet[str]) -> Dict[str, Any]:
    """The fields of a report that a policy needs, of the gradients of this replica."""
    measured: Dict[str, Any] = {}
    arrays = [array for array in map(_checkable, grads) if array is not None]
    if "finite" in needs:
        measured["finite"] = all_finite(grads)
    if "largest_magnitude" in needs:
        largest = [tf.cast(tf.reduce_max(tf.abs(array)), tf.float32) for array in arrays]
        measured["largest_magnitude"] = tf.reduce_max(tf.stack([tf.constant(0.0), *largest]))
    if "zero_share" in needs:
        sizes = [tf.cast(tf.size(array), tf.float32) for array in arrays]
        nonzero = [tf.cast(tf.math.count_nonzero(array), tf.float32) for array in arrays]
        size = tf.add_n([tf.constant(0.0), *sizes])
        measured["zero_share"] = tf.math.divide_no_nan(size - tf.add_n([tf.constant(0.0), *nonzero]), size)
    return measured


def unlowered_cond(condition: Any, if_true: Callable[[], Any], if_false: Callable[[], Any]) -> Any:
    """``tf.cond`` that stays one operation in the graph.

    TensorFlow turns a conditional into switches, one for each tensor that its branches use: with hundreds of gradients
    and variables those cost more than what is inside.
    """
    result = tf.cond(condition, if_true, if_false)
    if not tf.executing_eagerly():
        operation = result.op
        while operation.type == "Identity":
            operation = operation.inputs[0].op
        if operation.type in ("If", "StatelessIf"):
            attribute = tf.compat.v1.AttrValue(b=False)
            operation._set_attr("_lower_using_switch_merge", attribute)
    return result
