"""LossScaleOptimizer: the in-graph core, one thin file per Keras generation. The one room that needs TensorFlow."""

from typing import Any

import importlib

from .. import registry as registry  # whole, before a part of it: docs/architecture.md, "Decisions worth knowing"
from .building import build as build
from .telemetry import Telemetry as Telemetry

_ROOMS = ("lossscales", "serialization", "simulation")  # that these files import: likewise
_FILES = {
    "LossScaleOptimizer": ".wrapper",
    "LossScaleLogger": ".callbacks",
    "TraceRecorder": ".callbacks",
    "custom_objects": ".known_to_keras",
}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        importlib.import_module("tensorflow")
    except ImportError as error:
        raise ImportError(f"{name} needs TensorFlow, which can't be imported: {error}") from error
    for room in _ROOMS:
        importlib.import_module(".." + room, __name__)
    importlib.import_module("..serialization.constructors", __name__).installed_keras()
    return getattr(importlib.import_module(_FILES[name], __name__), name)
