"""LossScaleOptimizer: the in-graph core, one thin file per Keras generation. The one room that needs TensorFlow."""

from typing import Any

import importlib

from .building import build as build


def __getattr__(name: str) -> Any:
    if name != "LossScaleOptimizer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module("." + _generation(), __name__).LossScaleOptimizer


def _generation() -> str:
    """The file for the installed Keras, asked by what it has."""
    try:
        import tensorflow as tf
    except ImportError as error:
        raise ImportError(f"LossScaleOptimizer needs TensorFlow, which can't be imported: {error}") from error

    mixed_precision = getattr(tf.keras, "mixed_precision", None)
    has_loss_scale_objects = hasattr(tf.train.experimental, "DynamicLossScale")
    if has_loss_scale_objects and not hasattr(mixed_precision, "LossScaleOptimizer"):
        return "keras_experimental"
    raise NotImplementedError(
        f"LossScaleOptimizer is there for TensorFlow 2.0 to 2.3 so far, and not yet for {tf.__version__}"
    )
