"""The outcomes of checks."""

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from ..registry.errors import BrokenContractError

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
REFUSED = "refused"  # by an error that names the reason; of inner optimizers only


class Outcome(NamedTuple):
    """The outcome of one check.

    Attributes:
        check: The name of the check.
        status: ``"passed"``, ``"failed"`` or ``"not run"``. A check of an inner optimizer may also be ``"refused"``: an
            error says that the state cannot be saved or copied.
        message: The reason, if the check did not pass.

    Example:
        >>> from scalekeeper.testing import Outcome
        >>> Outcome("pure step", "failed", "the state has changed").status
        'failed'
    """

    check: str
    status: str
    message: str = ""


class CheckReport:
    """The outcomes of all checks of one policy, or of one inner optimizer; printed as a table.

    Args:
        policy: The name of the policy, or of the inner optimizer.
        outcomes: One outcome for each check.

    Attributes:
        policy: The name of the policy, or of the inner optimizer.
        outcomes: One outcome for each check.

    Example:
        >>> from scalekeeper.testing import CheckReport, Outcome
        >>> report = CheckReport("mine", [Outcome("pure step", "passed"), Outcome("bounds", "failed", "3 is above 2")])
        >>> report
        mine: 1 passed, 1 failed, 0 not run
          pure step  passed
          bounds     failed   3 is above 2
    """

    def __init__(self, policy: str, outcomes: Sequence[Outcome]) -> None:
        self.policy = policy
        self.outcomes: Tuple[Outcome, ...] = tuple(outcomes)

    def _of(self, status: str) -> List[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.status == status]

    @property
    def passed(self) -> List[Outcome]:
        """The outcomes of the checks that passed."""
        return self._of(PASSED)

    @property
    def failed(self) -> List[Outcome]:
        """The outcomes of the checks that failed."""
        return self._of(FAILED)

    @property
    def not_run(self) -> List[Outcome]:
        """The outcomes of the checks that did not run."""
        return self._of(NOT_RUN)

    @property
    def refused(self) -> List[Outcome]:
        """The outcomes of the checks whose operation an error refused."""
        return self._of(REFUSED)

    def summary(self) -> str:
        """Return the counts in one line."""
        statuses = (PASSED, FAILED, NOT_RUN, *([REFUSED] if self.refused else []))
        counts = ", ".join(f"{len(self._of(status))} {status}" for status in statuses)
        return f"{self.policy}: {counts}"

    def raise_if_failed(self) -> None:
        """Raise an error if a check failed.

        Raises:
            BrokenContractError: A check failed; the error lists all that did.
        """
        if self.failed:
            failures = [(outcome.check, outcome.message) for outcome in self.failed]
            raise BrokenContractError(self.summary(), failures)

    def for_json(self) -> Dict[str, Any]:
        """Return the outcomes as plain values for JSON."""
        return {"policy": self.policy, "checks": [outcome._asdict() for outcome in self.outcomes]}

    def __repr__(self) -> str:
        width = max((len(outcome.check) for outcome in self.outcomes), default=0)
        rows = [f"  {each.check:{width}}  {each.status:7}  {each.message}".rstrip() for each in self.outcomes]
        return "\n".join([self.summary(), *rows])
