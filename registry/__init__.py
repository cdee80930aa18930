"""Names for loss scales, and documents that use them. Nothing here imports TensorFlow."""

from ._documents import Document as Document
from ._documents import DocumentError as DocumentError
from ._documents import load_document as load_document
from ._optimizer_spec import OptimizerSpec as OptimizerSpec
from ._plugins import Registry as Registry
from ._plugins import loss_scales as loss_scales
from ._schema import document_schema as document_schema
from ._targets import Target as Target
from ._targets import known_targets as known_targets
from ._targets import target as target
from .errors import ArgumentError as ArgumentError
from .errors import ArgumentTypeError as ArgumentTypeError
from .errors import BrokenContractError as BrokenContractError
from .errors import ConversionError as ConversionError
from .errors import DestinationExistsError as DestinationExistsError
from .errors import InvalidSpecError as InvalidSpecError
from .errors import LossyConversionError as LossyConversionError
from .errors import MissingFileError as MissingFileError
from .errors import MissingPackageError as MissingPackageError
from .errors import NameTakenError as NameTakenError
from .errors import NothingRestoredError as NothingRestoredError
from .errors import PluginLoadError as PluginLoadError
from .errors import Problem as Problem
from .errors import ScalekeeperError as ScalekeeperError
from .errors import StateMismatchError as StateMismatchError
from .errors import StrategyError as StrategyError
from .errors import TooManySkipsError as TooManySkipsError
from .errors import TranslationError as TranslationError
from .errors import UnknownTargetError as UnknownTargetError
from .errors import UnreadableFileError as UnreadableFileError
from .errors import UnsupportedOperationError as UnsupportedOperationError

register = loss_scales.register
register_preset = loss_scales.register_preset
resolve = loss_scales.resolve
temporary_registration = loss_scales.temporary_registration
