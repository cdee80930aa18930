"""The outcomes of checks."""

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from ..registry.errors import BrokenContractError

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"


class Outcome(NamedTuple):
    """The outcome of one check: ``status`` is "passed", "failed" or "not run", and ``message`` has the reason."""

    check: str
    status: str
    message: str = ""


class CheckReport:
    """The outcomes of all checks of one policy; printed as a table.

    Attributes:
        policy: The name of the policy.
        outcomes: One row for each check.
        passed: The outcomes of the checks that passed; likewise ``failed`` and ``not_run``.
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

    def summary(self) -> str:
        """Return the counts in one line."""
        counts = ", ".join(f"{len(self._of(status))} {status}" for status in (PASSED, FAILED, NOT_RUN))
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
