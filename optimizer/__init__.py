"""LossScaleOptimizer: the in-graph core, one thin file per Keras generation. The one room that needs TensorFlow."""

from typing import Any

import importlib

from .building import build as build


def __getattr__(name: str) -> Any:
    if name != "LossScaleOptimizer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        importlib.import_module("tensorflow")
    except ImportError as error:
        raise ImportError(f"LossScaleOptimizer needs TensorFlow, which can't be imported: {error}") from error
    return importlib.import_module(".wrapper", __name__).LossScaleOptimizer
