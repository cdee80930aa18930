"""Training state in files: formats, restoring, inspecting and converting, for every TensorFlow version.

``load_model``, ``convert`` and ``convert_folder``, which create optimizers, are in ``scalekeeper.optimizer``.
"""

from .. import registry as registry  # whole, before a part of it: docs/architecture.md, "Decisions worth knowing"
from . import formats as formats
from .conversion import Conversion as Conversion
from .formats import Format as Format
from .formats import register_format as register_format
from .formats.npz import read_state as read_state
from .formats.npz import save_state as save_state
from .inspection import Inspection as Inspection
from .inspection import inspect as inspect
from .models import save_model as save_model
from .restore import RestoreReport as RestoreReport
from .restore import restore as restore
from .verification import Verification as Verification

formats.formats()  # import every codec now, so that no two threads import them at the same time

__all__ = [
    "Conversion",
    "Format",
    "Inspection",
    "RestoreReport",
    "Verification",
    "inspect",
    "read_state",
    "register_format",
    "restore",
    "save_model",
    "save_state",
]
