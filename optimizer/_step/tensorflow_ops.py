"""The operations of a pure step in TensorFlow: the names and results of ``lossscales.numpy_state.NumpyOps``."""

from typing import Any, Callable

import numpy as np
import tensorflow as tf

from ...lossscales._numpy_state import HIGHEST_LOG, LOWEST_LOG

_LARGEST = float(np.finfo(np.float32).max)
_BITS_OF_ONE = 0x3F800000
# type → the integers of the same width, and the bits of the exponent: all of them set in what is not finite
_EXPONENT = {tf.float32: (tf.int32, 0x7F800000), tf.float64: (tf.int64, 0x7FF0000000000000)}


def is_finite(values: Any) -> Any:
    """``tf.math.is_finite`` by the bits: XLA's fast arithmetic on a CPU (up to 2.2) holds that no number is NaN."""
    integers, exponent = _EXPONENT[values.dtype]
    mask = tf.constant(exponent, integers)
    return tf.not_equal(tf.bitwise.bitwise_and(tf.bitcast(values, integers), mask), mask)


class TensorFlowOps:
    """Each is one TensorFlow operation, or a few, that run on the device."""

    minimum = staticmethod(tf.minimum)
    maximum = staticmethod(tf.maximum)
    isfinite = staticmethod(is_finite)
    logical_and = staticmethod(tf.logical_and)
    logical_or = staticmethod(tf.logical_or)
    logical_not = staticmethod(tf.logical_not)
    where = staticmethod(tf.where)
    sqrt = staticmethod(tf.sqrt)

    @staticmethod
    def float32(value: Any) -> Any:
        return tf.constant(value, tf.float32)

    @staticmethod
    def int64(value: Any) -> Any:
        return tf.constant(value, tf.int64)

    @staticmethod
    def either(condition: Any, if_true: Callable[[], Any], if_false: Callable[[], Any]) -> Any:
        # both: a few operations on scalars cost less than a conditional
        chosen, other = if_true(), if_false()
        return {name: tf.where(condition, value, other[name]) for name, value in chosen.items()}

    @staticmethod
    def rounded(value: Any) -> Any:
        # infinity instead of what is beyond the largest number: nothing changes, but no compiler sees that and looks
        # through it. Both sides, as it may know of a sign: that a square is not negative
        for beyond, limit, infinity in ((tf.less, -_LARGEST, -np.inf), (tf.greater, _LARGEST, np.inf)):
            is_beyond = beyond(value, tf.constant(limit, tf.float32))
            value = tf.where(is_beyond, tf.constant(infinity, tf.float32), value)
        return value

    @staticmethod
    def as_float32(value: Any) -> Any:
        return tf.cast(value, tf.float32)

    @staticmethod
    def log2(value: Any) -> Any:
        bits = tf.cast(tf.bitcast(value, tf.int32), tf.int64) - tf.constant(_BITS_OF_ONE, tf.int64)
        return tf.cast(bits + _bend(bits), tf.float32) * tf.constant(2.0**-23, tf.float32)

    @staticmethod
    def exp2(value: Any) -> Any:
        value = tf.maximum(value, tf.constant(LOWEST_LOG, tf.float32))
        value = tf.minimum(value, tf.constant(HIGHEST_LOG, tf.float32))
        bits = tf.cast(value * tf.constant(2.0**23, tf.float32), tf.int64)
        bits += tf.constant(_BITS_OF_ONE, tf.int64) - _bend(bits)
        return tf.bitcast(tf.cast(bits, tf.int32), tf.float32)

    @staticmethod
    def pick(values: Any, index: Any) -> Any:
        return tf.gather(tf.constant(np.array(values)), index)

    @staticmethod
    def count_reached(thresholds: Any, value: Any) -> Any:
        return tf.reduce_sum(tf.cast(tf.constant(thresholds, tf.int64, [len(thresholds)]) <= value, tf.int64))


def _bend(bits: Any) -> Any:
    fraction = tf.bitwise.bitwise_and(bits, tf.constant(2**23 - 1, tf.int64))
    parabola = tf.bitwise.right_shift(fraction * (tf.constant(2**23, tf.int64) - fraction), tf.constant(23, tf.int64))
    return tf.bitwise.right_shift(parabola * tf.constant(87, tf.int64), tf.constant(8, tf.int64))


OPS = TensorFlowOps()
