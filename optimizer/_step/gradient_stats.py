"""The report on one step's gradients: each is read once."""

from typing import Any, Dict, FrozenSet, List, Optional, Sequence

import functools

import tensorflow as tf

from .conditional import unlowered_cond
from .gradient_buckets import Pack, is_of_at_most, packed, unpacked
from .tensorflow_ops import is_finite
from .unscale import times

_NARROW = (tf.float16, tf.bfloat16, tf.float32, tf.complex64)
_CHEAP_TO_WIDEN = 2**16  # elements: half a megabyte in float64


def measure(packs: Sequence[Pack], needs: FrozenSet[str]) -> Dict[str, Any]:
    """The fields of a report that a policy needs, of the gradients of this replica."""
    measured: Dict[str, Any] = {}
    if "finite" in needs:
        measured["finite"] = _are_finite(packs)
    if "largest_magnitude" in needs:
        largest = [_largest(pack) for pack in packs]
        measured["largest_magnitude"] = tf.reduce_max(tf.stack([tf.constant(0.0), *_present(largest)]))
    if "zero_share" in needs:
        # before they are unscaled, which reads them once less: a zero stays one, and no other number becomes one
        arrays = _present(_checkable(pack.values) for pack in packs)
        sizes = [tf.cast(tf.size(array), tf.float32) for array in arrays]
        # count_nonzero makes integers of 64 bits of them, and takes five to ten times as long
        zeros = [tf.reduce_sum(tf.cast(tf.equal(array, 0), tf.float32)) for array in arrays]
        size = tf.add_n([tf.constant(0.0), *sizes])
        measured["zero_share"] = tf.math.divide_no_nan(tf.add_n([tf.constant(0.0), *zeros]), size)
    return measured


def _largest(pack: Pack) -> Optional[Any]:
    """The largest magnitude after unscaling, which keeps the order: so it is done to the largest alone."""
    array = _checkable(pack.values)
    if array is None:
        return None
    largest = tf.reduce_max(tf.abs(array))
    return tf.cast(largest if pack.reciprocal is None else times(largest, pack.reciprocal), tf.float32)


def measure_gradients(grads: Sequence[Any], needs: FrozenSet[str]) -> Dict[str, Any]:
    """The same, of gradients as they are; None among them stands for no gradient."""
    return measure(packed([grad for grad in grads if grad is not None]), needs)


def are_bad(packs: Sequence[Pack]) -> Any:
    """1 for each gradient that is not finite and 0 for the others, in their order: a closer look at each of them."""
    arrays = [_exact(grad) for grad in unpacked(packs)]
    is_good = [tf.constant(True) if array is None else tf.reduce_all(is_finite(array)) for array in arrays]
    return tf.where(tf.stack(is_good), tf.zeros(len(is_good)), tf.ones(len(is_good)))


def _are_finite(packs: Sequence[Pack]) -> Any:
    """Whether every gradient is finite, as a boolean scalar.

    A finite sum proves that every term is finite, and a sum reads each gradient once. A sum of float32 numbers in
    float64 is finite just then, so that small gradients need no more. For the others that would take too long: they are
    added up as they are, and only a sum that is not finite, which terms that are all finite can have too, needs the
    exact look. They are added up before they are unscaled: a product of a finite number with a factor of at most 1 is
    finite.
    """
    sums, large = [], []
    for pack in packs:
        is_small = pack.reciprocal is None and is_of_at_most(_CHEAP_TO_WIDEN, pack.values)
        if is_small and pack.values.dtype in _NARROW:
            sums.append(tf.reduce_sum(tf.cast(_checkable(pack.values), tf.float64)))
        else:
            large.append(pack)
    verdicts = [is_finite(tf.add_n(sums))] if sums else []
    verdicts += _large_are_finite(large)
    return functools.reduce(tf.logical_and, verdicts) if verdicts else tf.constant(True)


def _large_are_finite(packs: Sequence[Pack]) -> List[Any]:
    """One verdict, or none if there is nothing to look at."""
    sums = _present(_sum(pack.values) for pack in packs)
    if not sums:
        return []
    reciprocals = {id(pack.reciprocal): pack.reciprocal for pack in packs if pack.reciprocal is not None}
    is_proof = is_finite(tf.add_n([tf.cast(each, tf.float32) for each in sums]))
    for reciprocal in reciprocals.values():
        is_proof = tf.logical_and(is_proof, reciprocal <= 1.0)
    exact_look = unlowered_cond(
        is_proof,
        lambda: tf.constant(True),
        lambda: tf.reduce_all(tf.stack([tf.reduce_all(is_finite(array)) for array in _unscaled_arrays(packs)])),
    )
    return [exact_look]


def _unscaled_arrays(packs: Sequence[Pack]) -> List[Any]:
    return _present(_exact(pack.unscaled_values()) for pack in packs)


def _present(arrays: Any) -> List[Any]:
    return [array for array in arrays if array is not None]


def _sum(values: Any) -> Optional[Any]:
    """A sum that proves, if it is finite, that a gradient is.

    The rows of a sparse one can add up to no more than all magnitudes do; half of the largest number leaves room for
    how other sums of them are rounded. So nobody has to find out which rows are for one index.
    """
    if not isinstance(values, tf.IndexedSlices):
        array = _real(tf.convert_to_tensor(values))
        return None if array is None else tf.reduce_sum(array)
    array = _real(values.values)
    if array is None:
        return None
    magnitudes = tf.reduce_sum(tf.abs(array))
    room = tf.constant(float(values.values.dtype.real_dtype.max) / 2, magnitudes.dtype)
    return tf.where(magnitudes <= room, magnitudes, tf.constant(float("inf"), magnitudes.dtype))


def _exact(values: Any) -> Optional[Any]:
    """The numbers that must be finite: of a sparse gradient, those of one index added up.

    The rows of one index are found by sorting: up to 2.3, XLA can't compile ``tf.unique``.
    """
    if not isinstance(values, tf.IndexedSlices):
        return _real(tf.convert_to_tensor(values))
    order = tf.argsort(tf.cast(values.indices, tf.int32))
    indices = tf.gather(values.indices, order)
    is_other = tf.cast(tf.not_equal(indices[1:], indices[:-1]), tf.int32)
    # as many sums as there are rows: those of no row are zero
    places = tf.cumsum(tf.concat([tf.zeros_like(order[:1]), is_other], 0))
    return _real(tf.math.unsorted_segment_sum(tf.gather(values.values, order), places, tf.size(order)))


def _checkable(values: Any) -> Optional[Any]:
    """The numbers of a gradient; of a sparse one, as the optimizer will see them: those of one index added up."""
    if isinstance(values, tf.IndexedSlices):
        rows, positions = tf.unique(values.indices)
        values = tf.math.unsorted_segment_sum(values.values, positions, tf.size(rows))
    return _real(tf.convert_to_tensor(values))


def _real(values: Any) -> Optional[Any]:
    """Real numbers of at least 32 bits; None for such as are always finite."""
    if values.dtype.is_complex:
        values = tf.stack([tf.math.real(values), tf.math.imag(values)])
    if not values.dtype.is_floating:
        return None
    return tf.cast(values, tf.float32) if values.dtype.size < 4 else values
