"""Measure the gradients of one step: whether they are finite, their largest magnitude, their share of zeros."""

from typing import Any, Callable, Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Sequence

import functools

import tensorflow as tf

from .control_flow import is_compiled_by_xla, unlowered_cond
from .unscale import Bucket, bucket_gradients, gradients_of, has_at_most, multiply

# the fields of a report, in the order in which ``measure`` returns them
FIELDS = ("finite", "largest_magnitude", "zero_share")
# Up to this many elements, a GPU adds several gradients of one shape and sums once in less time than it starts a sum of
# each. A CPU sums each, on all cores: with gradients of 2**16 elements, adding took 6 to 8 % of a step.
_CHEAP_TO_ADD = 2**16
# dtype → the integer dtype of the same width, and the exponent bits, which are all set in a non-finite number
_EXPONENT = {tf.float32: (tf.int32, 0x7F800000), tf.float64: (tf.int64, 0x7FF0000000000000)}


def is_finite(values: Any) -> Any:
    """Compute ``tf.math.is_finite`` from the bits: XLA's fast math on a CPU (up to 2.2) assumes no NaN."""
    integers, exponent = _EXPONENT[values.dtype]
    mask = tf.constant(exponent, integers)
    return tf.not_equal(tf.bitwise.bitwise_and(tf.bitcast(values, integers), mask), mask)


@functools.lru_cache(maxsize=None)
def has_gpu() -> bool:
    """Return whether TensorFlow has a GPU, which does not change once it has begun to run operations."""
    return bool(tf.config.experimental.list_logical_devices("GPU"))


class FiniteCheck(NamedTuple):
    """Whether all gradients are finite.

    Attributes:
        is_proven: A boolean scalar: whether a sum proves that they are. If not, they may be finite all the same.
        exact: Computes whether they are from each number; None if ``is_proven`` decides.
    """

    is_proven: Any
    exact: Optional[Callable[[], Any]] = None

    def verdict(self) -> Any:
        """Return whether all gradients are finite, as a boolean scalar."""
        if self.exact is None:
            return self.is_proven
        return unlowered_cond(self.is_proven, lambda: tf.constant(True), self.exact)


def measure(buckets: Sequence[Bucket], needs: FrozenSet[str]) -> Dict[str, Any]:
    """Return the named fields of a :class:`Report` for the gradients of this replica."""
    measured: Dict[str, Any] = {}
    if "finite" in needs:
        measured["finite"] = finite_check(buckets).verdict()
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


def finite_check(buckets: Sequence[Bucket]) -> FiniteCheck:
    """Return the check of whether every gradient is finite.

    A finite sum proves that every term is finite, and a sum reads each gradient once. Only if it is not finite, each
    number is checked. Gradients are summed before they are unscaled: a finite number times a factor of at most 1 is
    finite. XLA needs no sum: it compiles the search for the largest number into one pass, so there it decides at once.
    """
    buckets = [bucket for bucket in buckets if _can_be_nonfinite(bucket.values)]
    if not buckets:
        return FiniteCheck(tf.constant(True))

    def exact() -> Any:
        arrays = _without_none(_exact(bucket.unscaled_values()) for bucket in buckets)
        return tf.reduce_all(tf.stack([tf.reduce_all(is_finite(array)) for array in arrays]))

    if is_compiled_by_xla() and not any(isinstance(bucket.values, tf.IndexedSlices) for bucket in buckets):
        return FiniteCheck(tf.reduce_all(tf.stack([_is_largest_finite(bucket) for bucket in buckets])))
    sums = [tf.cast(each, tf.float32) for each in _proving_sums(buckets)]
    # not add_n, which TensorFlow's memory optimizer takes apart, scalars or not
    is_proven = is_finite(tf.reduce_sum(tf.stack(sums)) if len(sums) > 1 else sums[0])
    reciprocals = {id(bucket.reciprocal): bucket.reciprocal for bucket in buckets if bucket.reciprocal is not None}
    for reciprocal in reciprocals.values():
        is_proven = tf.logical_and(is_proven, reciprocal <= 1.0)
    return FiniteCheck(is_proven, exact)


def _is_largest_finite(bucket: Bucket) -> Any:
    """Return whether a dense gradient is finite after unscaling, for XLA: only the largest number is multiplied.

    Without their signs, the bits of numbers are ordered as the numbers, and those of NaN come last. A product for each
    number would have to be ``rounded``, which XLA for GPUs does not fuse with a reduction: it would write a boolean for
    each number, and read them again.
    """
    array: Any = _as_real(tf.convert_to_tensor(bucket.values))
    integers, _ = _EXPONENT[array.dtype]
    magnitudes = tf.bitwise.bitwise_and(tf.bitcast(array, integers), tf.constant(integers.max, integers))
    largest = tf.cast(tf.bitcast(tf.reduce_max(magnitudes), array.dtype), bucket.values.dtype.real_dtype)
    return is_finite(_as_real(largest if bucket.reciprocal is None else multiply(largest, bucket.reciprocal)))


def _can_be_nonfinite(values: Any) -> bool:
    return bool(values.dtype.is_floating or values.dtype.is_complex)


def _proving_sums(buckets: Sequence[Bucket]) -> List[Any]:
    """Return sums of these gradients: if all are finite, all gradients are."""
    alike: Dict[Any, List[Any]] = {}
    most = _CHEAP_TO_ADD if has_gpu() else 0
    for index, bucket in enumerate(buckets):
        values = bucket.values
        key = (values.dtype, tuple(values.shape)) if has_at_most(most, values) else index
        alike.setdefault(key, []).append(values)
    added = (group[0] if len(group) == 1 else tf.add_n(list(map(_as_real, group))) for group in alike.values())
    return [_proving_sum(values) for values in added]


def _without_none(arrays: Iterable[Optional[Any]]) -> List[Any]:
    return [array for array in arrays if array is not None]


def _proving_sum(values: Any) -> Any:
    """Return a sum that, if it is finite, proves that the gradient is finite.

    For a sparse gradient it is the sum of all magnitudes, which bounds the sum of the rows of any index, so that the
    rows need not be grouped. Half of the largest number leaves room for different rounding.
    """
    if not isinstance(values, tf.IndexedSlices):
        return tf.reduce_sum(_as_real(tf.convert_to_tensor(values)))
    magnitudes = tf.reduce_sum(tf.abs(_as_real(values.values)))
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
