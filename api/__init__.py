"""One LossScaleOptimizer for every TensorFlow 2: its policy is configuration, its state is never lost.

Public names are imported on first use, so ``import scalekeeper`` is fast.
"""

from typing import TYPE_CHECKING, Any, List

import importlib
import types

from ._built_in_plugins import loaders

if TYPE_CHECKING:
    __version__: str
    """The version of scalekeeper.

    Example:
        >>> import scalekeeper
        >>> scalekeeper.__version__.count(".")
        2
    """
    from .diagnosis import Diagnosis as Diagnosis
    from .lossscales import AdaptiveWindowLossScale as AdaptiveWindowLossScale
    from .lossscales import DynamicLossScale as DynamicLossScale
    from .lossscales import FixedLossScale as FixedLossScale
    from .lossscales import LogMaxLossScale as LogMaxLossScale
    from .lossscales import LossScale as LossScale
    from .lossscales import LossScaleParams as LossScaleParams
    from .lossscales import NoLossScale as NoLossScale
    from .lossscales import Report as Report
    from .lossscales import ScheduledLossScale as ScheduledLossScale
    from .lossscales import TolerantLossScale as TolerantLossScale
    from .optimizer import LossScaleLogger as LossScaleLogger
    from .optimizer import LossScaleOptimizer as LossScaleOptimizer
    from .optimizer import ModelCheckpoint as ModelCheckpoint
    from .optimizer import SharedLossScale as SharedLossScale
    from .optimizer import Telemetry as Telemetry
    from .optimizer import TraceRecorder as TraceRecorder
    from .optimizer import convert as convert
    from .optimizer import convert_folder as convert_folder
    from .optimizer import custom_objects as custom_objects
    from .optimizer import diagnose as diagnose
    from .optimizer import load_model as load_model
    from .optimizer import restore as restore
    from .optimizer import save_model as save_model
    from .optimizer import verify as verify
    from .optimizer.build import build as build
    from .registry import AmbiguousMatchError as AmbiguousMatchError
    from .registry import ArgumentError as ArgumentError
    from .registry import ArgumentTypeError as ArgumentTypeError
    from .registry import AssumedOrderWarning as AssumedOrderWarning
    from .registry import BrokenContractError as BrokenContractError
    from .registry import ConversionError as ConversionError
    from .registry import DemoError as DemoError
    from .registry import DestinationExistsError as DestinationExistsError
    from .registry import Document as Document
    from .registry import DocumentError as DocumentError
    from .registry import ForgottenScalingWarning as ForgottenScalingWarning
    from .registry import IncompleteRestoreError as IncompleteRestoreError
    from .registry import IncompleteRestoreWarning as IncompleteRestoreWarning
    from .registry import InvalidSpecError as InvalidSpecError
    from .registry import InvalidSpecTypeError as InvalidSpecTypeError
    from .registry import LossyConversionError as LossyConversionError
    from .registry import MissingFileError as MissingFileError
    from .registry import MissingPackageError as MissingPackageError
    from .registry import ModelDiffersError as ModelDiffersError
    from .registry import NameTakenError as NameTakenError
    from .registry import NothingRestoredError as NothingRestoredError
    from .registry import PluginLoadError as PluginLoadError
    from .registry import PolicyContractError as PolicyContractError
    from .registry import ReadOnlyError as ReadOnlyError
    from .registry import ScalekeeperError as ScalekeeperError
    from .registry import StateMismatchError as StateMismatchError
    from .registry import StateTypeError as StateTypeError
    from .registry import StrategyError as StrategyError
    from .registry import TooManySkipsError as TooManySkipsError
    from .registry import TranslationError as TranslationError
    from .registry import UnknownTargetError as UnknownTargetError
    from .registry import UnreadableFileError as UnreadableFileError
    from .registry import UnsupportedOperationError as UnsupportedOperationError
    from .registry import UntestedVersionWarning as UntestedVersionWarning
    from .registry import WrongArgumentError as WrongArgumentError
    from .registry import document_schema as document_schema
    from .registry import load_document as load_document
    from .registry import register as register
    from .registry import register_preset as register_preset
    from .registry import resolve as resolve
    from .registry import temporary_registration as temporary_registration
    from .serialization import Conversion as Conversion
    from .serialization import Inspection as Inspection
    from .serialization import RestoreReport as RestoreReport
    from .serialization import Verification as Verification
    from .serialization import inspect as inspect
    from .serialization import read_state as read_state
    from .serialization import save_state as save_state
    from .simulation import Recommendation as Recommendation
    from .simulation import Simulation as Simulation
    from .simulation import Sweep as Sweep
    from .simulation import Trace as Trace
    from .simulation import TraceWriter as TraceWriter
    from .simulation import read_trace as read_trace
    from .simulation import recommend as recommend
    from .simulation import simulate as simulate
    from .simulation import sweep as sweep
    from .simulation import write_trace as write_trace

_ROOMS = {
    "diagnosis": ("Diagnosis",),
    "lossscales": (
        "AdaptiveWindowLossScale",
        "DynamicLossScale",
        "FixedLossScale",
        "LogMaxLossScale",
        "LossScale",
        "LossScaleParams",
        "NoLossScale",
        "Report",
        "ScheduledLossScale",
        "TolerantLossScale",
    ),
    "optimizer": (
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
    ),
    "registry": (
        "AmbiguousMatchError",
        "ArgumentError",
        "ArgumentTypeError",
        "AssumedOrderWarning",
        "BrokenContractError",
        "ConversionError",
        "DemoError",
        "DestinationExistsError",
        "Document",
        "DocumentError",
        "ForgottenScalingWarning",
        "IncompleteRestoreError",
        "IncompleteRestoreWarning",
        "InvalidSpecError",
        "InvalidSpecTypeError",
        "LossyConversionError",
        "MissingFileError",
        "MissingPackageError",
        "ModelDiffersError",
        "NameTakenError",
        "NothingRestoredError",
        "PluginLoadError",
        "PolicyContractError",
        "ReadOnlyError",
        "ScalekeeperError",
        "StateMismatchError",
        "StateTypeError",
        "StrategyError",
        "TooManySkipsError",
        "TranslationError",
        "UnknownTargetError",
        "UnreadableFileError",
        "UnsupportedOperationError",
        "UntestedVersionWarning",
        "WrongArgumentError",
        "document_schema",
        "load_document",
        "register",
        "register_preset",
        "resolve",
        "temporary_registration",
    ),
    "serialization": (
        "Conversion",
        "Inspection",
        "RestoreReport",
        "Verification",
        "inspect",
        "read_state",
        "save_state",
    ),
    "simulation": (
        "Recommendation",
        "Simulation",
        "Sweep",
        "Trace",
        "TraceWriter",
        "read_trace",
        "recommend",
        "simulate",
        "sweep",
        "write_trace",
    ),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module(".registry._compat", __name__).metadata.version(__name__)
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module("." + _HOME[name], __name__), name)
    globals()[name] = value
    return value


def _built_in_policies() -> types.ModuleType:
    from . import lossscales

    return lossscales


def _policies_in_tensorflow() -> types.ModuleType:
    from . import optimizer  # noqa: F401  (whole, before a part of it)
    from .optimizer._step import lone_policy

    return lone_policy


loaders["scalekeeper.loss_scales"] = _built_in_policies
loaders["scalekeeper.policies_in_tensorflow"] = _policies_in_tensorflow


def __dir__() -> List[str]:
    return sorted(__all__)
