"""The training state in a file, in terms that do not depend on who wrote it. Codecs read it, ``restore`` takes it."""

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

import dataclasses

import numpy as np

from ..registry.errors import TranslationError

_NUMERIC = ("int", "uint", "float", "bfloat16", "bool")  # how NumPy's names of numeric types begin


class Value(NamedTuple):
    """An array in a file. Its shape and type are known; the array is read on demand."""

    shape: Tuple[int, ...]
    dtype: str
    read: Callable[[], Any]

    @classmethod
    def of(cls, array: Any) -> "Value":
        """Return the value of an array in memory."""
        array = np.asarray(array)
        return cls(array.shape, array.dtype.name, lambda: array)

    def number(self) -> Any:
        """Return the value as a Python number.

        Raises:
            ValueError: It is not a single number. This is checked before reading: a file may declare any shape.
        """
        if self.shape != () or not self.dtype.startswith(_NUMERIC):
            raise ValueError(f"{self.dtype} of shape {self.shape} is not a number")
        return self.read().item()

    def whole_number(self) -> int:
        """Return the value as an int."""
        number = self.number()
        if number != number or abs(number) == float("inf"):
            raise ValueError(f"{number} is not a whole number")
        return int(number)


class Writer(NamedTuple):
    """The software that wrote a file, as far as the file tells."""

    format: str  # the name of a format
    keras: Optional[str] = None  # version
    tensorflow: Optional[str] = None  # version
    scalekeeper: Optional[str] = None  # version; None: plain Keras wrote it


@dataclasses.dataclass
class TrainingState:
    """Everything a file holds of a training run. What it does not hold is None or empty.

    An *owner* is the name of a model variable without its output number: ``d1/kernel``. Slots have the names of
    TensorFlow 2.0's documentation (``m``, ``v``, ``momentum``, ``rms``, …), whatever the file calls them.
    """

    writer: Writer
    model_config: Optional[Dict[str, Any]] = None  # as written
    training_config: Optional[Dict[str, Any]] = None  # loss, metrics, …, as written
    optimizer_config: Optional[Dict[str, Any]] = None  # class_name and config, as written
    variables: Dict[str, Value] = dataclasses.field(default_factory=dict)  # by owner, in the order of the file
    is_ordered: bool = True  # whether variables are in the order of the model's layers; if not, only names match
    owners: Dict[str, Tuple[int, ...]] = dataclasses.field(default_factory=dict)  # shapes of trained variables
    slots: Dict[str, Dict[str, Value]] = dataclasses.field(default_factory=dict)  # by owner and slot
    scalars: Dict[str, Value] = dataclasses.field(default_factory=dict)  # other optimizer variables, by name
    weight_list: List[Value] = dataclasses.field(default_factory=list)  # optimizer variables without names
    has_bare_momentum: bool = False  # momentum without the learning rate in it: RMSprop of 2.10's experimental ones
    iterations: Optional[int] = None
    learning_rate: Optional[float] = None  # the last one; None: not in the file, or a schedule
    loss_scale: Optional[Dict[str, Any]] = None  # class_name and config of the policy, where the file has them
    loss_scale_state: Dict[str, Any] = dataclasses.field(default_factory=dict)  # name → number
    skipped_steps: Optional[str] = None  # ADVANCE or HOLD, by the format or by scalekeeper's record
    skips: Dict[str, Any] = dataclasses.field(default_factory=dict)  # counters; empty: no step was skipped
    notes: List[str] = dataclasses.field(default_factory=list)  # unexpected things, in sentences


def scaled_momentum(value: Value, rate: float, *, divide: bool = False) -> Value:
    """Return a momentum with the learning rate multiplied into it, or divided out of it.

    RMSprop of TF 2.10's experimental optimizers keeps its momentum without the learning rate; all others include it.
    The product is computed in float64, so that a round trip is exact to the bit.
    """

    def read() -> Any:
        exact = np.asarray(value.read(), np.float64)
        return exact / np.float32(rate) if divide else exact * np.float32(rate)

    return value._replace(read=read)


def with_rate_in_momentum(state: TrainingState) -> TrainingState:
    """Return the state with momenta that include the learning rate, as all but TF 2.10's experimental RMSprop do.

    Raises:
        TranslationError: The learning rate is a schedule, so the momentum cannot be converted.
    """
    if not state.has_bare_momentum:
        return state
    rate = state.learning_rate
    if rate is None:
        raise TranslationError(
            "the momentum of TF 2.10's experimental RMSprop cannot be converted with a learning-rate schedule, because "
            "other optimizers include the learning rate in it; use scalekeeper.restore(model, path) instead"
        )
    slots = {
        owner: {name: _with_rate(value, rate) if name == "momentum" else value for name, value in each.items()}
        for owner, each in state.slots.items()
    }
    return dataclasses.replace(state, slots=slots, has_bare_momentum=False)


def _with_rate(value: Value, rate: float) -> Value:
    product = scaled_momentum(value, rate)
    return value._replace(read=lambda: product.read().astype(value.dtype))


def slots_in_memory(slots: Mapping[str, Mapping[str, Any]]) -> Dict[str, Dict[str, Value]]:
    """Return slots given as arrays, by owner and slot, as values."""
    return {owner: {name: Value.of(array) for name, array in each.items()} for owner, each in slots.items()}
