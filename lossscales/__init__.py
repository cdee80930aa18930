"""Loss-scale policies, one per module. Importing this package registers them."""

from .. import registry as registry  # whole, before a part of it: docs/architecture.md, "Decisions worth knowing"
from . import presets
from ._numpy_state import NumpyOps, advance
from ._tensorflow_import import when_tensorflow_is_loaded
from ._trackable import connect
from .adaptive_window import AdaptiveWindowLossScale
from .contract import LossScale, LossScaleParams
from .dynamic import DynamicLossScale
from .fixed import FixedLossScale
from .log_max import LogMaxLossScale
from .none import NoLossScale
from .report import Report
from .scheduled import ScheduledLossScale
from .tolerant import TolerantLossScale

__all__ = [
    "AdaptiveWindowLossScale",
    "DynamicLossScale",
    "FixedLossScale",
    "LogMaxLossScale",
    "LossScale",
    "LossScaleParams",
    "NoLossScale",
    "NumpyOps",
    "Report",
    "ScheduledLossScale",
    "TolerantLossScale",
    "advance",
    "presets",
]

when_tensorflow_is_loaded(connect)
