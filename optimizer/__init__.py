"""LossScaleOptimizer: the in-graph core, one thin file per Keras generation. The one room that needs TensorFlow."""

from typing import Any

import importlib

from .building import build as build
from .telemetry import Telemetry as Telemetry

_FILES = {"LossScaleOptimizer": ".wrapper", "LossScaleLogger": ".callbacks", "TraceRecorder": ".callbacks"}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        importlib.import_module("tensorflow")
    except ImportError as error:
        raise ImportError(f"{name} needs TensorFlow, which can't be imported: {error}") from error
    return getattr(importlib.import_module(_FILES[name], __name__), name)
