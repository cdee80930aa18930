"""Run checks, one or all."""

from typing import Any, Iterable, List, Optional, Tuple

import importlib
import inspect
import os
import sys
import traceback
import warnings

from ..registry.errors import InvalidSpecError, Problem, unknown
from ._all_checks import all_checks
from ._check import Check, CheckFailedError, NotRun
from ._replica_checks import IN_PROCESS
from ._report import FAILED, NOT_RUN, PASSED, CheckReport, Outcome
from ._subject import Subject


def check_loss_scale(cls_or_spec: Any, *, leave_out: Iterable[str] = ()) -> CheckReport:
    """Check whether a policy holds the contract: every check of :data:`CHECKS`, as far as it applies.

    ``cls_or_spec`` is a class, an object, a registered name or a mapping with a name; ``leave_out`` names checks.
    Returns a report, in which a check that was not run says why; raises :class:`scalekeeper.BrokenContractError`, which
    lists every check that failed, if any did.

    >>> from scalekeeper.testing import CHECKS, check_loss_scale
    >>> in_tensorflow = [check.name for check in CHECKS if check.needs_tensorflow]
    >>> report = check_loss_scale({"name": "dynamic", "increment_period": 3}, leave_out=in_tensorflow)
    >>> report.failed, len(report.passed)
    ([], 11)
    """
    if os.environ.get(IN_PROCESS):
        raise RuntimeError(
            "the process of the check replicas_agree imports this module, which calls check_loss_scale at once: put "
            "the call under `if __name__ == '__main__':`, or into a function"
        )
    report = report_of(cls_or_spec, leave_out)
    report.raise_if_failed()
    return report


def report_of(cls_or_spec: Any, leave_out: Iterable[str] = ()) -> CheckReport:
    """What all checks find, whether they fail or not."""
    left_out = known_checks(leave_out)
    subject = Subject(cls_or_spec)
    require_policy(subject)
    outcomes = [outcome_of(check, subject, check.name in left_out)[0] for check in all_checks()]
    return CheckReport(subject.label, outcomes)


def known_checks(names: Iterable[str]) -> List[str]:
    """The names, if each is a check's."""
    names = [names] if isinstance(names, str) else list(names)
    known = [check.name for check in all_checks()]
    problems = [Problem((), unknown("check", name, known), "unknown_name") for name in names if name not in known]
    if problems:
        raise InvalidSpecError(problems)
    return names


def require_policy(subject: Subject) -> None:
    """Refuse what is no policy yet, instead of failing every check."""
    cls = subject.cls
    from ..lossscales import LossScale as base  # noqa: N813

    if subject.is_pure and cls.next_state is base.next_state:
        message = f"{cls.__name__} has neither next_state (the pure step) nor update and __call__ of its own: write one"
        raise InvalidSpecError([Problem((), message, "no_step")])


def outcome_of(check: Check, subject: Subject, is_left_out: bool = False) -> Tuple[Outcome, Optional[BaseException]]:
    """What a check finds, and the error behind it."""
    reason = "left out by the caller" if is_left_out else _reason_not_to_run(check, subject)
    if reason:
        return Outcome(check.name, NOT_RUN, reason), None
    try:
        with warnings.catch_warnings():
            if check.needs_tensorflow:  # which warns of much that no policy can help
                warnings.simplefilter("ignore")
            check.function(subject)
    except NotRun as error:
        return Outcome(check.name, NOT_RUN, str(error)), None
    except CheckFailedError as error:
        return Outcome(check.name, FAILED, str(error)), error
    except Exception as error:
        return Outcome(check.name, FAILED, _said(check, subject, error)), error
    return Outcome(check.name, PASSED), None


def _reason_not_to_run(check: Check, subject: Subject) -> str:
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


def _said(check: Check, subject: Subject, error: Exception) -> str:
    """An error that the policy raised, and the line of its own from which it came."""
    own = getattr(sys.modules.get(subject.cls.__module__), "__file__", None) or inspect.getfile(Check)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == own]
    where = f" ({os.path.basename(own)}:{frames[-1].lineno}, in {frames[-1].name})" if frames else ""
    text = " ".join(str(error).split()) or "(no message)"
    return f"{type(error).__name__}: {text}{where}. What must hold: {check.sentence}"
