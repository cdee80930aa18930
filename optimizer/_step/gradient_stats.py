"""Measure the gradients of one step: whether they are finite, their largest magnitude, their share of zeros."""

from typing import Any, Dict, FrozenSet, Iterable, List, Optional, Sequence

import functools

import tensorflow as tf

from .control_flow import unlowered_cond
from .unscale import Bucket, bucket_gradients, gradients_of, has_at_most, multiply

# the fields of a report, in the order in which ``measure`` returns them
FIELDS = ("finite", "largest_magnitude", "zero_share")
_NARROW = (tf.float16, tf.bfloat16, tf.float32, tf.complex64)
_CHEAP_TO_WIDEN = 2**16  # elements: half a megabyte in float64
# dtype → the integer dtype of the same width, and the exponent bits, which are all set in a non-finite number
_EXPONENT = {tf.float32: (tf.int32, 0x7F800000), tf.float64: (tf.int64, 0x7FF0000000000000)}


def is_finite(values: Any) -> Any:
    """Compute ``tf.math.is_finite`` from the bits: XLA's fast math on a CPU (up to 2.2) assumes no NaN."""
    integers, exponent = _EXPONENT[values.dtype]
    mask = tf.constant(exponent, integers)
    return tf.not_equal(tf.bitwise.bitwise_and(tf.bitcast(values, integers), mask), mask)


def measure(buckets: Sequence[Bucket], needs: FrozenSet[str]) -> Dict[str, Any]:
    """Return the named fields of a :class:`Report` for the gradients of this replica."""
    measured: Dict[str, Any] = {}
    if "finite" in needs:
        measured["finite"] = _all_finite(buckets)
    if "largest_magnitude" in needs:
        largest = _without_none(_largest_magnitude(bucket) for bucket in buckets)
        measured["largest_magnitude"] = tf.reduce_max(tf.stack([tf.constant(0.0), *largest]))
    if "zero_share" in needs:
        # Scaled gradients have the same zeros as unscaled ones, and measuring them saves one read.
        arrays = _without_none(_summed_by_index(bucket.values) for bucket in buckets)
        sizes = [tf.cast(tf.size(array), tf.float32) for array in arrays]
        # tf.math.count_nonzero converts to int64 and takes five to ten times as long.
        zeros = [tf.reduce_sum(tf.cast(tf.equal(array, 0), tf.float32)) for array in arrays]
        size = tf.add_n([tf.constant(0.0), *sizes])
        measured["zero_share"] = tf.math.divide_no_nan(tf.add_n([tf.constant(0.0), *zeros]), size)
    return measured


def measure_gradients(grads: Sequence[Any], needs: FrozenSet[str]) -> Dict[str, Any]:
    """Return the named fields of a :class:`Report` for a list of gradients, in which None means no gradient."""
    return measure(bucket_gradients([grad for grad in grads if grad is not None]), needs)


def nonfinite_flags(buckets: Sequence[Bucket]) -> Any:
    """Return a float32 vector with 1 for each non-finite gradient and 0 for the others, in their original order."""
    arrays = [_exact(grad) for grad in gradients_of(buckets)]
    are_finite = [tf.constant(True) if array is None else tf.reduce_all(is_finite(array)) for array in arrays]
    return tf.where(tf.stack(are_finite), tf.zeros(len(arrays)), tf.ones(len(arrays)))


def _largest_magnitude(bucket: Bucket) -> Optional[Any]:
    """Return the largest magnitude after unscaling; unscaling keeps the order, so only the largest is multiplied."""
    array = _summed_by_index(bucket.values)
    if array is None:
        return None
    largest = tf.reduce_max(tf.abs(array))
    return tf.cast(largest if bucket.reciprocal is None else multiply(largest, bucket.reciprocal), tf.float32)


def _all_finite(buckets: Sequence[Bucket]) -> Any:
    """Return whether every gradient is finite, as a boolean scalar.

    A finite sum proves that every term is finite, and a sum reads each gradient once. Float32 numbers summed in float64
    cannot overflow, so for small gradients the sum decides. For large ones that would be slow: they are summed in their
    own dtype, and only if that sum is not finite, each number is checked. Gradients are summed before they are
    unscaled: a finite number times a factor of at most 1 is finite.
    """
    sums, large = [], []
    for bucket in buckets:
        is_small = bucket.reciprocal is None and has_at_most(_CHEAP_TO_WIDEN, bucket.values)
        if is_small and bucket.values.dtype in _NARROW:
            sums.append(tf.reduce_sum(tf.cast(_summed_by_index(bucket.values), tf.float64)))
        else:
            large.append(bucket)
    verdicts = [is_finite(tf.add_n(sums))] if sums else []
    verdicts += _large_finite(large)
    return functools.reduce(tf.logical_and, verdicts) if verdicts else tf.constant(True)


def _large_finite(buckets: Sequence[Bucket]) -> List[Any]:
    """Return one boolean scalar for all large gradients, or an empty list if none of them can be non-finite."""
    sums = _without_none(_proving_sum(bucket.values) for bucket in buckets)
    if not sums:
        return []
    reciprocals = {id(bucket.reciprocal): bucket.reciprocal for bucket in buckets if bucket.reciprocal is not None}
    is_proof = is_finite(tf.add_n([tf.cast(each, tf.float32) for each in sums]))
    for reciprocal in reciprocals.values():
        is_proof = tf.logical_and(is_proof, reciprocal <= 1.0)

    def check_each_number() -> Any:
        arrays = _without_none(_exact(bucket.unscaled_values()) for bucket in buckets)
        return tf.reduce_all(tf.stack([tf.reduce_all(is_finite(array)) for array in arrays]))

    return [unlowered_cond(is_proof, lambda: tf.constant(True), check_each_number)]


def _without_none(arrays: Iterable[Optional[Any]]) -> List[Any]:
    return [array for array in arrays if array is not None]


def _proving_sum(values: Any) -> Optional[Any]:
    """Return a sum that, if it is finite, proves that the gradient is finite.

    For a sparse gradient it is the sum of all magnitudes, which bounds the sum of the rows of any index, so that the
    rows need not be grouped. Half of the largest number leaves room for different rounding.
    """
    if not isinstance(values, tf.IndexedSlices):
        array = _as_real(tf.convert_to_tensor(values))
        return None if array is None else tf.reduce_sum(array)
    array = _as_real(values.values)
    if array is None:
        return None
    magnitudes = tf.reduce_sum(tf.abs(array))
    limit = tf.constant(float(values.values.dtype.real_dtype.max) / 2, magnitudes.dtype)
    return tf.where(magnitudes <= limit, magnitudes, tf.constant(float("inf"), magnitudes.dtype))


def _exact(values: Any) -> Optional[Any]:
    """Return the numbers that must be finite: for a sparse gradient, the sums of the rows of each index.

    Rows are grouped by sorting, because up to 2.3 XLA cannot compile ``tf.unique``.
    """
    if not isinstance(values, tf.IndexedSlices):
        return _as_real(tf.convert_to_tensor(values))
    order = tf.argsort(tf.cast(values.indices, tf.int32))
    indices = tf.gather(values.indices, order)
    is_other = tf.cast(tf.not_equal(indices[1:], indices[:-1]), tf.int32)
    # As many segments as rows: the superfluous ones are zero.
    segments = tf.cumsum(tf.concat([tf.zeros_like(order[:1]), is_other], 0))
    return _as_real(tf.math.unsorted_segment_sum(tf.gather(values.values, order), segments, tf.size(order)))


def _summed_by_index(values: Any) -> Optional[Any]:
    """Return the numbers of a gradient as the optimizer uses them: for a sparse one, rows of one index summed."""
    if isinstance(values, tf.IndexedSlices):
        rows, positions = tf.unique(values.indices)
        values = tf.math.unsorted_segment_sum(values.values, positions, tf.size(rows))
    return _as_real(tf.convert_to_tensor(values))


def _as_real(values: Any) -> Optional[Any]:
    """Return the values as real numbers of at least 32 bits; None for integers, which are always finite."""
    if values.dtype.is_complex:
        values = tf.stack([tf.math.real(values), tf.math.imag(values)])
    if not values.dtype.is_floating:
        return None
    return tf.cast(values, tf.float32) if values.dtype.size < 4 else values
