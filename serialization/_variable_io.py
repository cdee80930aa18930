"""A variable's value, read and set in every mode of TensorFlow."""

from typing import Any

import importlib

import numpy as np


def value_of(variable: Any) -> Any:
    """A variable's value, as NumPy has it; in TF1's graph mode, Keras's session knows."""
    tf = importlib.import_module("tensorflow")
    return np.asarray(variable.numpy() if tf.executing_eagerly() else tf.keras.backend.get_value(variable))


def assign(variable: Any, value: Any) -> None:
    """Give a variable a value, which is brought to its type."""
    tf = importlib.import_module("tensorflow")
    if tf.executing_eagerly():
        variable.assign(np.asarray(value, dtype=tf.as_dtype(variable.dtype).as_numpy_dtype))
    else:
        tf.keras.backend.set_value(variable, value)
