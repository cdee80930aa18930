"""What Keras 2 has in common from TensorFlow 2.4 on, and in tf_keras, whatever the kind of optimizer."""

from typing import Any, Optional

from ..loss_scale_optimizer import LossScaleOptimizer


class Keras2(LossScaleOptimizer):
    """Keras's own class keeps the inner optimizer in ``_optimizer``."""

    _optimizer: Any

    def _wrap(self, optimizer: Any, name: Optional[str]) -> None:
        # Keras's own class makes no variables for a fixed scale; ours takes its place
        super(LossScaleOptimizer, self).__init__(optimizer, dynamic=False, initial_scale=1.0)  # type: ignore[call-arg]

    @property
    def inner_optimizer(self) -> Any:
        """The wrapped optimizer."""
        return self._optimizer
