"""Loss-scale policies, one per file. Importing this registers the built-in ones."""

from .. import registry as registry  # whole, before a part of it: docs/architecture.md, "Decisions worth knowing"
from . import presets as presets
from ._numpy_state import NumpyOps as NumpyOps
from ._numpy_state import advance as advance
from .adaptive_window import AdaptiveWindowLossScale as AdaptiveWindowLossScale
from .contract import LossScale as LossScale
from .contract import LossScaleParams as LossScaleParams
from .dynamic import DynamicLossScale as DynamicLossScale
from .fixed import FixedLossScale as FixedLossScale
from .log_max import LogMaxLossScale as LogMaxLossScale
from .none import NoLossScale as NoLossScale
from .report import Report as Report
from .scheduled import ScheduledLossScale as ScheduledLossScale
from .tolerant import TolerantLossScale as TolerantLossScale
