"""LossScaleOptimizer: the in-graph core, one thin file per Keras generation. The one room that needs TensorFlow."""

from typing import Any

import importlib

from .. import registry as registry  # whole, before a part of it: docs/architecture.md, "Decisions worth knowing"
from ._state.telemetry import Telemetry as Telemetry
from .build import build as build
from .models import convert as convert
from .models import convert_folder as convert_folder
from .models import load_model as load_model

_FILES = {
    "LossScaleOptimizer": ".loss_scale_optimizer",
    "LossScaleLogger": ".callbacks",
    "TraceRecorder": ".callbacks",
    "custom_objects": "._keras.object_registration",
}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        importlib.import_module("tensorflow")
    except ImportError as error:
        raise ImportError(f"{name} needs TensorFlow, which can't be imported: {error}") from error
    from .. import lossscales, serialization, simulation  # noqa: F401 - whole, before a part of them: likewise
    from ..serialization._keras_introspection import installed_keras

    installed_keras()
    return getattr(importlib.import_module(_FILES[name], __name__), name)
