"""The checks as tests of pytest, one for each check and policy."""

from typing import Any, Callable, Iterable

import importlib

from ..registry.errors import BrokenContractError
from ._all_checks import all_checks
from ._check import Check
from ._check_runner import known_checks, outcome_of, require_policy
from ._report import FAILED, NOT_RUN
from ._subject import Subject


class CheckOfPolicy:
    """What a test gets: a check of a policy, to be called."""

    def __init__(self, check: Check, subject: Subject, is_left_out: bool) -> None:
        self.check, self.subject, self._is_left_out = check, subject, is_left_out

    def __call__(self) -> None:
        """Raise :class:`scalekeeper.BrokenContractError` if it fails; skip the test if it can't be run."""
        __tracebackhide__ = True  # of pytest: the message says it all
        require_policy(self.subject)
        outcome, error = outcome_of(self.check, self.subject, self._is_left_out)
        if outcome.status == NOT_RUN:
            importlib.import_module("pytest").skip(outcome.message)
        if outcome.status == FAILED:
            failures = [(outcome.check, outcome.message)]
            raise BrokenContractError(f"{self.subject.label}: {self.check.sentence}", failures) from error

    def __repr__(self) -> str:
        return f"{self.subject.label}-{self.check.name}"


def loss_scale_checks(*classes_or_specs: Any, leave_out: Iterable[str] = ()) -> Callable[[Any], Any]:
    """A decorator that has pytest call a test once for each check of each policy.

    .. code:: python

        @loss_scale_checks(PatientLossScale, {"name": "patient", "start": 8})
        def test_contract(check):
            check()

    A check that can't be run here, such as one that needs TensorFlow, is a test that is skipped, with the reason.
    """
    pytest = importlib.import_module("pytest")
    left_out = known_checks(leave_out)
    subjects = [Subject(each) for each in classes_or_specs]
    for subject in subjects:
        subject.companions = subjects
    cases = [CheckOfPolicy(check, subject, check.name in left_out) for subject in subjects for check in all_checks()]
    return pytest.mark.parametrize("check", cases, ids=repr)  # type: ignore[no-any-return]
