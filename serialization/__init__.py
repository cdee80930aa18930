"""What each TensorFlow version writes to disk: reading it, writing it, converting it."""

from .. import registry as registry  # whole, before a part of it: docs/architecture.md, "Decisions worth knowing"
from ._conversion.batch import convert_folder as convert_folder
from .conversion import Conversion as Conversion
from .conversion import convert as convert
from .formats.npz import read_state as read_state
from .formats.npz import save_state as save_state
from .inspection import Inspection as Inspection
from .inspection import inspect as inspect
from .models import load_model as load_model
from .models import save_model as save_model
from .restore import RestoreReport as RestoreReport
from .restore import restore as restore
