"""The operations of a pure step in TensorFlow: the names and results of ``lossscales.numpy_state.NumpyOps``."""

from typing import Any

import tensorflow as tf


class TensorFlowOps:
    """Every one of them is a single TensorFlow operation that runs on the device."""

    minimum = staticmethod(tf.minimum)
    maximum = staticmethod(tf.maximum)
    isfinite = staticmethod(tf.math.is_finite)
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
