"""Functions that run one check or all of them."""

from typing import Any, Iterable, List, Optional, Tuple

import importlib
import inspect
import os
import sys
import traceback
import warnings

from ..lossscales.contract import LossScale
from ..registry.errors import InvalidSpecError, Problem, UnsupportedOperationError, unknown
from ._all_checks import all_checks
from ._check import Check, CheckFailedError, NotRun, Refused
from ._replica_checks import IN_PROCESS
from ._report import FAILED, NOT_RUN, PASSED, REFUSED, CheckReport, Outcome
from ._subject import Subject


def check_loss_scale(cls_or_spec: Any, *, leave_out: Iterable[str] = ()) -> CheckReport:
    """Check the contract of a policy: run every check of :data:`CHECKS` that applies.

    Args:
        cls_or_spec: A class, an object, a registered name, or a mapping with a name.
        leave_out: The names of checks to skip.

    Returns:
        A report with the outcome of every check. A check that was not run has a reason.

    Raises:
        BrokenContractError: A check failed; the error lists all that did.
        InvalidSpecError: The policy or a name in ``leave_out`` is not valid.
        UnsupportedOperationError: The module calls this function at import, in the process of a check.

    Example:
        >>> from scalekeeper.testing import CHECKS, check_loss_scale
        >>> in_tensorflow = [check.name for check in CHECKS if check.needs_tensorflow]
        >>> report = check_loss_scale({"name": "dynamic", "increment_period": 3}, leave_out=in_tensorflow)
        >>> report.failed, len(report.passed)
        ([], 10)
    """
    if os.environ.get(IN_PROCESS):
        raise UnsupportedOperationError(
            "the process of the check replicas_agree imports this module, which calls check_loss_scale at once: put "
            "the call under `if __name__ == '__main__':`, or into a function"
        )
    report = report_of(cls_or_spec, leave_out)
    report.raise_if_failed()
    return report


def report_of(cls_or_spec: Any, leave_out: Iterable[str] = ()) -> CheckReport:
    """Return the outcomes of all checks, including those that fail."""
    left_out = known_checks(leave_out)
    subject = Subject(cls_or_spec)
    require_policy(subject)
    outcomes = [outcome_of(check, subject, check.name in left_out)[0] for check in all_checks()]
    return CheckReport(subject.label, outcomes)


def known_checks(names: Iterable[str], checks: Optional[Iterable[Check]] = None) -> List[str]:
    """Return the names, or raise an error if one is not the name of a check: of a policy, or of those given."""
    names = [names] if isinstance(names, str) else list(names)
    known = [check.name for check in (all_checks() if checks is None else checks)]
    problems = [Problem((), unknown("check", name, known), "unknown_name") for name in names if name not in known]
    if problems:
        raise InvalidSpecError(problems)
    return names


def require_policy(subject: Subject) -> None:
    """Raise an error for a class without a step, which would fail every check."""
    cls = subject.cls
    if subject.is_pure and cls.next_state is LossScale.next_state:
        message = f"{cls.__name__} has neither next_state (the pure step) nor update and __call__ of its own: write one"
        raise InvalidSpecError([Problem((), message, "no_step")])


def outcome_of(check: Check, subject: Any, is_left_out: bool = False) -> Tuple[Outcome, Optional[BaseException]]:
    """Run a check; return its outcome and the error behind it."""
    reason = "left out by the caller" if is_left_out else _reason_not_to_run(check, subject)
    if reason:
        return Outcome(check.name, NOT_RUN, reason), None
    try:
        with warnings.catch_warnings():
            if check.needs_tensorflow:  # whose warnings are not about the policy
                warnings.simplefilter("ignore")
            check.function(subject)
    except NotRun as error:
        return Outcome(check.name, NOT_RUN, str(error)), None
    except Refused as error:
        return Outcome(check.name, REFUSED, str(error)), None
    except CheckFailedError as error:
        return Outcome(check.name, FAILED, str(error)), error
    except Exception as error:
        return Outcome(check.name, FAILED, _message(check, subject, error)), error
    return Outcome(check.name, PASSED), None


def _reason_not_to_run(check: Check, subject: Any) -> str:
    if check.needs_pure_step and not subject.is_pure:
        return "needs the pure step (next_state), which a class in TensorFlow's own style does not have"
    if check.needs_tensorflow:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module("tensorflow")
        except ImportError as error:
            return f"needs TensorFlow, which can't be imported: {error}"
    return ""


def _message(check: Check, subject: Any, error: Exception) -> str:
    """Return the message of an error that the policy or optimizer raised, with its line that raised it."""
    own = getattr(sys.modules.get(subject.cls.__module__), "__file__", None) or inspect.getfile(Check)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == own]
    where = f" ({os.path.basename(own)}:{frames[-1].lineno}, in {frames[-1].name})" if frames else ""
    text = " ".join(str(error).split()) or "(no message)"
    return f"{type(error).__name__}: {text}{where}. What must hold: {check.sentence}"
