"""The checks as parametrized pytest tests."""

from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

import importlib

from ..registry.errors import BrokenContractError
from ._all_checks import all_checks
from ._check import Check
from ._check_inner_optimizer import inner_optimizer_checks_in_order
from ._check_runner import known_checks, outcome_of, require_policy
from ._inner_optimizer import InnerOptimizer
from ._report import FAILED, NOT_RUN, REFUSED
from ._subject import Subject


class CheckOfSubject:
    """A check of a policy or an inner optimizer, which a test calls."""

    def __init__(self, check: Check, subject: Any, is_left_out: bool) -> None:
        self.check, self.subject, self._is_left_out = check, subject, is_left_out

    def __call__(self) -> None:
        """Raise :class:`scalekeeper.BrokenContractError` if it fails; skip the test if it can't be run."""
        __tracebackhide__ = True  # of pytest: show the message only
        if isinstance(self.subject, Subject):
            require_policy(self.subject)
        outcome, error = outcome_of(self.check, self.subject, self._is_left_out)
        if outcome.status in (NOT_RUN, REFUSED):
            importlib.import_module("pytest").skip(_reason(outcome))
        if outcome.status == FAILED:
            failures = [(outcome.check, outcome.message)]
            raise BrokenContractError(f"{self.subject.label}: {self.check.sentence}", failures) from error

    def __repr__(self) -> str:
        return f"{self.subject.label}-{self.check.name}"


def loss_scale_checks(*classes_or_specs: Any, leave_out: Iterable[str] = ()) -> Callable[[Any], Any]:
    """Return a decorator that makes pytest call a test once for each check of each policy.

    A check that can't run, such as one that needs TensorFlow, skips its test with the reason.

    Args:
        *classes_or_specs: Policies, as for :func:`check_loss_scale`.
        leave_out: The names of checks to skip.

    Returns:
        The decorator. The test gets a ``check`` and calls it.

    Raises:
        InvalidSpecError: A policy or a name in ``leave_out`` is not valid.

    Example:
        >>> from scalekeeper.testing import loss_scale_checks
        >>> @loss_scale_checks("dynamic", {"name": "fixed", "loss_scale_value": 8.0})
        ... def test_contract(check):
        ...     check()
    """
    pytest = importlib.import_module("pytest")
    left_out = known_checks(leave_out)
    subjects = [Subject(each) for each in classes_or_specs]
    for subject in subjects:
        subject.companions = subjects
    cases = [CheckOfSubject(check, subject, check.name in left_out) for subject in subjects for check in all_checks()]
    return pytest.mark.parametrize("check", cases, ids=repr)  # type: ignore[no-any-return]


def inner_optimizer_checks(
    *make_optimizers: Callable[..., Any],
    leave_out: Iterable[str] = (),
    custom_objects: Optional[Mapping[str, Any]] = None,
    **named: Callable[..., Any],
) -> Callable[[Any], Any]:
    """Return a decorator that makes pytest call a test once for each check of each inner optimizer.

    Args:
        *make_optimizers: Functions, as for :func:`check_inner_optimizer`.
        leave_out: The names of checks to skip.
        custom_objects: Classes by name, which a configuration may refer to.
        **named: More functions; the names are those of the tests.

    Returns:
        The decorator. The test gets a ``check`` and calls it. A check that can't run, or is refused, skips its test
        with the reason.

    Raises:
        InvalidSpecError: An argument is not a function, or a name in ``leave_out`` is not that of a check.

    Example:
        >>> from scalekeeper.testing import inner_optimizer_checks
        >>> def make_optimizer():
        ...     import tensorflow as tf
        ...     return tf.keras.optimizers.SGD(0.1)
        >>> @inner_optimizer_checks(sgd=make_optimizer)
        ... def test_contract(check):
        ...     check()
    """
    pytest = importlib.import_module("pytest")
    checks: Sequence[Check] = inner_optimizer_checks_in_order()
    left_out = known_checks(leave_out, checks)
    subjects = [InnerOptimizer(each, custom_objects=custom_objects) for each in make_optimizers]
    subjects += [InnerOptimizer(each, name, custom_objects=custom_objects) for name, each in named.items()]
    cases = [CheckOfSubject(check, subject, check.name in left_out) for subject in subjects for check in checks]
    return pytest.mark.parametrize("check", cases, ids=repr)  # type: ignore[no-any-return]


def _reason(outcome: Any) -> str:
    return f"refused by {outcome.message}" if outcome.status == REFUSED else str(outcome.message)
