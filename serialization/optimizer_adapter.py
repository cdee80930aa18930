"""The interface between files and the optimizer: how serialization takes training state from it and gives it back.

``LossScaleOptimizer`` implements it. This package never imports the optimizer: functions that make one are given an
:class:`OptimizerFactory`.
"""

from typing import TYPE_CHECKING, Any, Callable, List, Mapping, NamedTuple, Optional, Sequence

from typing_extensions import Protocol

if TYPE_CHECKING:
    from ._optimizer_weight_lists import Expected
    from .training_state import TrainingState


class Transfer(NamedTuple):
    """What a restore did to an optimizer: names of variables, and sentences."""

    matched: List[str]
    missing: List[str]
    unused: List[str]
    notes: List[str]
    missing_slots: Sequence[str] = ()  # those of ``missing`` that are slots


class OptimizerAdapter(Protocol):
    """An optimizer that gives and takes training state."""

    def _give_state(self) -> "TrainingState":
        """Return everything that the optimizer needs to continue. Arrays are read on demand."""

    def _take_state(
        self,
        state: "TrainingState",
        variables: Sequence[Any],
        pairs: Mapping[str, str],
        check: Optional[Callable[[Transfer], None]] = None,
    ) -> Transfer:
        """Load a training state; nothing is changed if it does not fit.

        Args:
            state: The state.
            variables: The trained variables of the model.
            pairs: Owner in the model → owner in the state.
            check: Called with what will be done, before anything is changed; may raise.
        """

    def _expected_weights(self, variables: Optional[Sequence[Any]] = None) -> "Expected":
        """Return what a list of the optimizer's weights may hold."""


class OptimizerFactory(Protocol):
    """Makes a ``LossScaleOptimizer`` from a configuration of any Keras."""

    def __call__(self, config: Mapping[str, Any], custom_objects: Optional[Mapping[str, Any]]) -> Any: ...
