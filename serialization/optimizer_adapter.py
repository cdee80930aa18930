"""The interface between files and the optimizer: how serialization takes training state from it and gives it back.

``LossScaleOptimizer`` implements it; for other optimizers, the optimizer's package provides an adapter. This package
never imports the optimizer: functions that make one are given an :class:`OptimizerFactory`.
"""

from typing import TYPE_CHECKING, Any, Callable, List, Mapping, NamedTuple, Optional, Sequence

from typing_extensions import Protocol

if TYPE_CHECKING:
    from ._optimizer_weight_lists import Expected
    from .training_state import TrainingState


class Transfer(NamedTuple):
    """The result of restoring an optimizer: names of variables, and sentences."""

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

    def _known_variables(self) -> List[Any]:
        """Return the variables that the optimizer has slots for, in its order."""

    def _expected_weights(self, variables: Optional[Sequence[Any]] = None) -> "Expected":
        """Return what a list of the optimizer's weights may hold."""

    @property
    def inner_optimizer(self) -> Any:
        """The Keras optimizer with the slots."""


class OptimizerFactory(Protocol):
    """Makes an optimizer from a configuration of any Keras: a ``LossScaleOptimizer`` if that has a loss scale."""

    def __call__(self, config: Mapping[str, Any], custom_objects: Optional[Mapping[str, Any]]) -> Any: ...


AdapterFactory = Callable[[Any], Optional[OptimizerAdapter]]  # takes a model
_factories: List[AdapterFactory] = []


def provide_adapters(factory: AdapterFactory) -> None:
    """Set how to make the adapter for a model whose optimizer is not a ``LossScaleOptimizer``."""
    _factories[:] = [factory]


def adapter_of_model(model: Any) -> Optional[OptimizerAdapter]:
    """Return what gives and takes the training state of a model's optimizer; None if it has no Keras optimizer."""
    optimizer: Any = getattr(model, "optimizer", None)
    if optimizer is None or hasattr(optimizer, "_take_state"):
        return optimizer  # type: ignore[no-any-return]
    return _factories[0](model) if _factories else None
