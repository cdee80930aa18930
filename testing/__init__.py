"""Checks of the contract of a loss-scale policy, for its author. Imports neither TensorFlow nor pytest."""

from .. import lossscales as lossscales  # whole, before a part of it: docs/architecture.md, "Decisions worth knowing"
from .. import registry as registry  # likewise
from ._all_checks import CHECKS
from ._check_runner import check_loss_scale
from ._pytest_plugin import loss_scale_checks
from ._report import CheckReport, Outcome

__all__ = [
    "CHECKS",
    "CheckReport",
    "Outcome",
    "check_loss_scale",
    "loss_scale_checks",
]
