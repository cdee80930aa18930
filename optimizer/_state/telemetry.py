"""What a LossScaleOptimizer knows of its run, read when it is asked for."""

from typing import Dict, List, NamedTuple, Optional


class Telemetry(NamedTuple):
    """A snapshot; steps are numbered from 1."""

    steps: int  # taken, applied or skipped
    skipped: int
    skipped_in_a_row: int  # up to the last step; 0 if that one was applied
    last_skipped_step: Optional[int]
    loss_scale: float
    overflows: Dict[str, int]  # variable → steps at which its gradient was not finite, if that is asked for
    last_overflows: List[str]  # the variables that made the last skipped step one, likewise
    largest_magnitude: Optional[float]  # of the last step's gradients, if watched
    zero_share: Optional[float]  # of the last step's gradients, if watched

    @property
    def skip_rate(self) -> float:
        """The share of all steps that were skipped."""
        return self.skipped / self.steps if self.steps else 0.0
