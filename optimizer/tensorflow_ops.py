"""The operations of a pure step in TensorFlow: the names and results of ``lossscales.numpy_state.NumpyOps``."""

from typing import Any

import tensorflow as tf

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

    @staticmethod
    def float32(value: Any) -> Any:
        return tf.constant(value, tf.float32)

    @staticmethod
    def int64(value: Any) -> Any:
        return tf.constant(value, tf.int64)


OPS = TensorFlowOps()
