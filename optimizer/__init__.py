"""LossScaleOptimizer: the in-graph core, one thin file per Keras generation. The one room that needs TensorFlow."""

from typing import Any

import importlib


def __getattr__(name: str) -> Any:
    if name != "LossScaleOptimizer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("." + _generation(), __name__), name)


def _generation() -> str:
    """The file for the installed Keras, asked by what it has."""
    import tensorflow as tf

    if hasattr(tf.keras, "mixed_precision") and hasattr(
        getattr(tf.keras.mixed_precision, "experimental", None), "LossScaleOptimizer"
    ):
        if hasattr(tf.train.experimental, "DynamicLossScale"):
            return "keras_experimental"
    raise NotImplementedError(
        f"LossScaleOptimizer is there for TensorFlow 2.0 to 2.3 so far, and not yet for {tf.__version__}"
    )
