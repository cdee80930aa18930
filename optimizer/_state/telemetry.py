"""The telemetry of a LossScaleOptimizer: steps, skipped steps and figures of the gradients."""

from typing import Dict, List, NamedTuple, Optional


class Telemetry(NamedTuple):
    """A snapshot of a run. Steps are numbered from 1.

    Attributes:
        steps: The steps taken, applied or skipped.
        skipped: The skipped steps.
        skipped_in_a_row: The skipped steps up to the last step; 0 if the last step was applied.
        last_skipped_step: The number of the last skipped step; None if no step was skipped.
        loss_scale: The current loss scale.
        overflows: Variable name → steps at which its gradient was non-finite, with ``attribute_overflows=True``.
        last_overflows: The variables whose gradients were non-finite at the last skipped step, if they are recorded.
        largest_magnitude: The largest magnitude among the gradients of the last step, if watched.
        zero_share: The share of zeros among the gradients of the last step, if watched.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))
        >>> telemetry = optimizer.telemetry
        >>> telemetry.steps, telemetry.skip_rate, telemetry.loss_scale
        (0, 0.0, 32768.0)
    """

    steps: int
    skipped: int
    skipped_in_a_row: int
    last_skipped_step: Optional[int]
    loss_scale: float
    overflows: Dict[str, int]
    last_overflows: List[str]
    largest_magnitude: Optional[float]
    zero_share: Optional[float]

    @property
    def skip_rate(self) -> float:
        """The share of all steps that were skipped."""
        return self.skipped / self.steps if self.steps else 0.0
