"""The outcomes of checks."""

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from ..registry.errors import BrokenContractError

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
REFUSED = "refused"  # by an error that names the reason; of inner optimizers only


class Outcome(NamedTuple):
    """The outcome of one check: ``status`` is "passed", "failed" or "not run", and ``message`` has the reason.

    A check of an inner optimizer may also be "refused": an error says that the state cannot be saved or copied.
    """

    check: str
    status: str
    message: str = ""


class CheckReport:
    """The outcomes of all checks of one policy, or of one inner optimizer; printed as a table.

    Attributes:
        policy: The name of the policy, or of the inner optimizer.
        outcomes: One row for each check.
        passed: The outcomes of the checks that passed; likewise ``failed``, ``not_run`` and ``refused``.
    """

    def __init__(self, policy: str, outcomes: Sequence[Outcome]) -> None:
        self.policy = policy
        self.outcomes: Tuple[Outcome, ...] = tuple(outcomes)

    def _of(self, status: str) -> List[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.status == status]

    @property
    def passed(self) -> List[Outcome]:
        return self._of(PASSED)

    @property
    def failed(self) -> List[Outcome]:
        return self._of(FAILED)

    @property
    def not_run(self) -> List[Outcome]:
        return self._of(NOT_RUN)

    @property
    def refused(self) -> List[Outcome]:
        return self._of(REFUSED)

    def summary(self) -> str:
        """Return the counts in one line."""
        statuses = (PASSED, FAILED, NOT_RUN, *([REFUSED] if self.refused else []))
        counts = ", ".join(f"{len(self._of(status))} {status}" for status in statuses)
        return f"{self.policy}: {counts}"

    def raise_if_failed(self) -> None:
        """Raise :class:`BrokenContractError` with every check that failed."""
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
