"""What each TensorFlow version writes to disk: reading it, writing it, converting it."""

from .. import registry as registry  # whole, before a part of it: docs/architecture.md, "Decisions worth knowing"
from .inspecting import Inspection as Inspection
from .inspecting import inspect as inspect
from .models import load_model as load_model
from .models import save_model as save_model
from .restoring import RestoreReport as RestoreReport
from .restoring import restore as restore
from .states import read_state as read_state
from .states import save_state as save_state
