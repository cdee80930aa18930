"""Registered policies, specs, documents, JSON Schema and errors. Imports no TensorFlow."""

from ._documents import Document, load_document
from ._optimizer_spec import OptimizerSpec
from ._plugins import Registry, loss_scales
from ._schema import document_schema
from ._targets import Target, known_targets, target
from .errors import (
    AmbiguousMatchError,
    ArgumentError,
    ArgumentTypeError,
    BrokenContractError,
    ConversionError,
    DemoError,
    DestinationExistsError,
    DocumentError,
    IncompleteRestoreError,
    IncompleteRestoreWarning,
    InvalidSpecError,
    LossyConversionError,
    MissingFileError,
    MissingPackageError,
    ModelDiffersError,
    NameTakenError,
    NothingRestoredError,
    PluginLoadError,
    Problem,
    ScalekeeperError,
    StateMismatchError,
    StateTypeError,
    StrategyError,
    TooManySkipsError,
    TranslationError,
    UnknownTargetError,
    UnreadableFileError,
    UnsupportedOperationError,
    UntestedVersionWarning,
)

register = loss_scales.register
register_preset = loss_scales.register_preset
resolve = loss_scales.resolve
temporary_registration = loss_scales.temporary_registration

__all__ = [
    "AmbiguousMatchError",
    "ArgumentError",
    "ArgumentTypeError",
    "BrokenContractError",
    "ConversionError",
    "DemoError",
    "DestinationExistsError",
    "Document",
    "DocumentError",
    "IncompleteRestoreError",
    "IncompleteRestoreWarning",
    "InvalidSpecError",
    "LossyConversionError",
    "MissingFileError",
    "MissingPackageError",
    "ModelDiffersError",
    "NameTakenError",
    "NothingRestoredError",
    "OptimizerSpec",
    "PluginLoadError",
    "Problem",
    "Registry",
    "ScalekeeperError",
    "StateMismatchError",
    "StateTypeError",
    "StrategyError",
    "Target",
    "TooManySkipsError",
    "TranslationError",
    "UnknownTargetError",
    "UnreadableFileError",
    "UnsupportedOperationError",
    "UntestedVersionWarning",
    "document_schema",
    "known_targets",
    "load_document",
    "loss_scales",
    "register",
    "register_preset",
    "resolve",
    "target",
    "temporary_registration",
]
