"""Checks of a loss-scale policy or an inner optimizer, for its author. Imports neither TensorFlow nor pytest."""

from .. import lossscales as lossscales  # whole, before a part of it: docs/architecture.md, "Decisions worth knowing"
from .. import registry as registry  # likewise
from ._all_checks import CHECKS
from ._check_inner_optimizer import INNER_OPTIMIZER_CHECKS, check_inner_optimizer
from ._check_runner import check_loss_scale
from ._pytest_plugin import inner_optimizer_checks, loss_scale_checks
from ._report import CheckReport, Outcome

__all__ = [
    "CHECKS",
    "INNER_OPTIMIZER_CHECKS",
    "CheckReport",
    "Outcome",
    "check_inner_optimizer",
    "check_loss_scale",
    "inner_optimizer_checks",
    "loss_scale_checks",
]
