"""Whether a loss-scale policy holds the contract: checks for its author. Imports neither TensorFlow nor pytest."""

from .. import lossscales as lossscales  # whole, before a part of it: docs/architecture.md, "Decisions worth knowing"
from .. import registry as registry  # likewise
from .checking import check_loss_scale as check_loss_scale
from .every_check import CHECKS as CHECKS
from .parametrizing import loss_scale_checks as loss_scale_checks
from .results import CheckReport as CheckReport
from .results import Outcome as Outcome
