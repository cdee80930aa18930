"""The operations of a pure step in TensorFlow, with the names and results of ``scalekeeper.lossscales.NumpyOps``."""

from typing import Any, Callable

import functools

import numpy as np
import tensorflow as tf

from ...lossscales._numpy_state import HIGHEST_LOG, LOWEST_LOG
from .control_flow import rounded
from .gradient_stats import is_finite

_BITS_OF_ONE = 0x3F800000


class TensorFlowOps:
    """Operations that a policy's step may use; each is one TensorFlow operation or a few, and runs on the device."""

    float32 = staticmethod(functools.partial(tf.constant, dtype=tf.float32))
    int64 = staticmethod(functools.partial(tf.constant, dtype=tf.int64))

    minimum = staticmethod(tf.minimum)
    maximum = staticmethod(tf.maximum)
    isfinite = staticmethod(is_finite)
    logical_and = staticmethod(tf.logical_and)
    logical_or = staticmethod(tf.logical_or)
    logical_not = staticmethod(tf.logical_not)
    where = staticmethod(tf.where)
    sqrt = staticmethod(tf.sqrt)
    rounded = staticmethod(rounded)

    @staticmethod
    def either(condition: Any, if_true: Callable[[], Any], if_false: Callable[[], Any]) -> Any:
        # Compute both: a few operations on scalars cost less than a conditional.
        chosen, other = if_true(), if_false()
        return {name: tf.where(condition, value, other[name]) for name, value in chosen.items()}

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
