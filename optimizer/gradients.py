"""What is done with gradients: they are unscaled, and they are looked at, once each."""

from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence

import collections

import tensorflow as tf

from .tensorflow_ops import is_finite

# Starting an operation costs more than what it does to an array of this many elements; with as many arrays as this, it
# pays to handle them together.
_SMALL = 4096
_FEW = 4


def scaled(loss: Any, scale: Any) -> Any:
    """The loss times the scale. A loss of fewer than 32 bits is scaled as float32, where the product can't overflow."""
    loss = tf.convert_to_tensor(loss)
    if loss.dtype in (tf.float16, tf.bfloat16):
        loss = tf.cast(loss, tf.float32)
    return loss * tf.cast(scale, loss.dtype)


def unscaled(grads: Sequence[Any], scale: Any) -> List[Any]:
    """The gradients divided by the scale: sparse ones stay sparse, None stays None."""
    reciprocal = 1.0 / scale
    found: List[Any] = [
        tf.IndexedSlices(_times(grad.values, reciprocal), grad.indices, grad.dense_shape)
        if isinstance(grad, tf.IndexedSlices)
        else grad
        for grad in grads
    ]
    dense = {
        place: tf.convert_to_tensor(grad)
        for place, grad in enumerate(grads)
        if grad is not None and not isinstance(grad, tf.IndexedSlices)
    }
    for places in _alike(dense):
        if len(places) < _FEW:
            for place in places:
                found[place] = _times(dense[place], reciprocal)
        else:  # three operations for all of them instead of one for each
            together = _times(tf.stack([dense[place] for place in places]), reciprocal)
            for place, grad in zip(places, tf.unstack(together, num=len(places))):
                found[place] = grad
    return found


def _times(values: Any, factor: Any) -> Any:
    if values.dtype in (tf.float16, tf.bfloat16):  # where the factor itself could underflow
        return tf.cast(tf.cast(values, tf.float32) * factor, values.dtype)
    return values * tf.cast(factor, values.dtype)


def _alike(arrays: Mapping[int, Any]) -> List[List[int]]:
    """The places of small arrays of one shape and type together; every other one alone."""
    groups: Dict[Any, List[int]] = collections.OrderedDict()
    for place, array in arrays.items():
        size = array.shape.num_elements() if array.shape.is_fully_defined() else None
        is_small = size is not None and size <= _SMALL
        groups.setdefault((array.dtype, tuple(array.shape)) if is_small else place, []).append(place)
    return list(groups.values())


def all_finite(grads: Sequence[Any]) -> Any:
    """Whether every gradient is finite, as a boolean scalar.

    A finite sum proves that every term is finite, and a sum reads each gradient once. Only a sum that is not finite,
    which terms that are all finite can have too, needs the exact look.
    """
    return _are_finite(_arrays(grads))


def _arrays(grads: Sequence[Any]) -> List[Any]:
    return [array for array in map(_checkable, grads) if array is not None]


def _are_finite(arrays: Sequence[Any]) -> Any:
    if not arrays:
        return tf.constant(True)
    sums = [
        # what is not finite stays so in a sum, so arrays of one shape can be added up before
        tf.reduce_sum(arrays[places[0]] if len(places) == 1 else tf.add_n([arrays[place] for place in places]))
        for places in _alike(dict(enumerate(arrays)))
    ]
    total = tf.add_n([tf.cast(each, tf.float32) for each in sums])
    return unlowered_cond(
        is_finite(total),
        lambda: tf.constant(True),
        lambda: tf.reduce_all(tf.stack([tf.reduce_all(is_finite(array)) for array in arrays])),
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


def measure(grads: Sequence[Any], needs: FrozenSet[str]) -> Dict[str, Any]:
    """The fields of a report that a policy needs, of the gradients of this replica."""
    measured: Dict[str, Any] = {}
    arrays = _arrays(grads) if needs else []
    if "finite" in needs:
        measured["finite"] = _are_finite(arrays)
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
