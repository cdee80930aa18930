"""Loss-scale policies, one per file. Importing this registers the built-in ones."""

from .contract import LossScale as LossScale
from .contract import LossScaleParams as LossScaleParams
from .dynamic import DynamicLossScale as DynamicLossScale
from .fixed import FixedLossScale as FixedLossScale
from .numpy_state import NumpyOps as NumpyOps
from .numpy_state import advance as advance
from .report import Report as Report
