"""Names for loss scales, and documents that use them. Nothing here imports TensorFlow."""

from .documents import Document as Document
from .documents import DocumentError as DocumentError
from .documents import load_document as load_document
from .errors import BrokenContractError as BrokenContractError
from .errors import ConversionError as ConversionError
from .errors import InvalidSpecError as InvalidSpecError
from .errors import LossyConversionError as LossyConversionError
from .errors import MissingPackageError as MissingPackageError
from .errors import NameTakenError as NameTakenError
from .errors import NothingRestoredError as NothingRestoredError
from .errors import PluginLoadError as PluginLoadError
from .errors import Problem as Problem
from .errors import ScalekeeperError as ScalekeeperError
from .errors import TooManySkipsError as TooManySkipsError
from .errors import TranslationError as TranslationError
from .errors import UnknownTargetError as UnknownTargetError
from .errors import UnreadableFileError as UnreadableFileError
from .optimizers import OptimizerSpec as OptimizerSpec
from .plugins import Registry as Registry
from .plugins import loss_scales as loss_scales
from .schema import document_schema as document_schema
from .targets import Target as Target
from .targets import known_targets as known_targets
from .targets import target as target

register = loss_scales.register
register_preset = loss_scales.register_preset
resolve = loss_scales.resolve
temporary_registration = loss_scales.temporary_registration
