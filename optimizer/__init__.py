"""LossScaleOptimizer, callbacks for ``fit``, and ``build``: the only package that needs TensorFlow."""

from typing import TYPE_CHECKING, Any, List

from .. import registry as registry  # whole, before a part of it: docs/architecture.md, "Decisions worth knowing"
from ._state.telemetry import Telemetry as Telemetry
from .build import build as build
from .models import convert as convert
from .models import convert_folder as convert_folder
from .models import load_model as load_model
from .models import restore as restore
from .models import save_model as save_model
from .models import verify as verify

if TYPE_CHECKING:
    from ._keras.config_objects import custom_objects as custom_objects
    from .callbacks import LossScaleLogger as LossScaleLogger
    from .callbacks import ModelCheckpoint as ModelCheckpoint
    from .callbacks import TraceRecorder as TraceRecorder
    from .float16_diagnosis import diagnose as diagnose
    from .shared_loss_scale import SharedLossScale as SharedLossScale

    LossScaleOptimizer: Any  # its members depend on the installed Keras

__all__ = [
    "LossScaleLogger",
    "LossScaleOptimizer",
    "ModelCheckpoint",
    "SharedLossScale",
    "Telemetry",
    "TraceRecorder",
    "build",
    "convert",
    "convert_folder",
    "custom_objects",
    "diagnose",
    "load_model",
    "restore",
    "save_model",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import what needs TensorFlow when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import tensorflow  # noqa: F401
    except ImportError as error:
        raise registry.MissingPackageError(f"{name} needs TensorFlow, which can't be imported: {error}") from error
    from .. import diagnosis, lossscales, serialization, simulation  # noqa: F401  (whole, as above)
    from ..serialization._keras_introspection import installed_keras

    installed_keras()
    registry.target()  # warns if TensorFlow is newer than the newest that was tested
    from . import callbacks, float16_diagnosis, loss_scale_optimizer
    from ._keras import config_objects

    modules = (loss_scale_optimizer, callbacks, config_objects, float16_diagnosis)
    value = next(getattr(module, name) for module in modules if hasattr(module, name))
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted(__all__)
