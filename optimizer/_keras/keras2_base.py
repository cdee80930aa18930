"""The code that the adapters for Keras 2 share: TensorFlow 2.4 to 2.15, and tf_keras."""

from typing import Any, Optional

from ..loss_scale_optimizer import LossScaleOptimizer


class Keras2(LossScaleOptimizer):
    """A LossScaleOptimizer whose base class in Keras keeps the inner optimizer in ``_optimizer``."""

    _optimizer: Any

    def _wrap(self, optimizer: Any, name: Optional[str]) -> None:
        # With a fixed scale, Keras's own class creates no variables.
        super(LossScaleOptimizer, self).__init__(optimizer, dynamic=False, initial_scale=1.0)  # type: ignore[call-arg]

    @property
    def inner_optimizer(self) -> Any:
        """The wrapped optimizer."""
        return self._optimizer
