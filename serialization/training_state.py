"""What a file holds of a training run, in the same words whoever wrote it. Readers make it, ``restore`` takes it."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import dataclasses

import numpy as np

_NUMBERS = ("int", "uint", "float", "bfloat16", "bool")  # NumPy's names of types begin so


class Value(NamedTuple):
    """An array in a file: its shape and type are known, and it is read when it is asked for."""

    shape: Tuple[int, ...]
    dtype: str
    read: Callable[[], Any]

    @classmethod
    def of(cls, array: Any) -> "Value":
        """One that is in memory already."""
        array = np.asarray(array)
        return cls(array.shape, array.dtype.name, lambda: array)

    def number(self) -> Any:
        """The one number that it is. ValueError for anything else, before it is read: a file may declare any shape."""
        if self.shape != () or not self.dtype.startswith(_NUMBERS):
            raise ValueError(f"{self.dtype} of shape {self.shape} is not a number")
        return self.read().item()

    def whole_number(self) -> int:
        """The same, if it is a whole number."""
        number = self.number()
        if number != number or abs(number) == float("inf"):
            raise ValueError(f"{number} is not a whole number")
        return int(number)


class Writer(NamedTuple):
    """Who wrote a file, as far as it says so."""

    format: str  # "h5", "keras", "saved_model", "checkpoint", "npz" or "config"
    keras: Optional[str] = None  # version
    tensorflow: Optional[str] = None  # version
    scalekeeper: Optional[str] = None  # version; None: a plain Keras wrote it


@dataclasses.dataclass
class Contents:
    """What a file holds of a training run. What it does not hold is None, or empty.

    An *owner* is the name of a model's variable without the number of its output: ``d1/kernel``. Slots have the names
    of TensorFlow 2.0's documentation (``m``, ``v``, ``momentum``, ``rms``, …), whatever the file calls them.
    """

    writer: Writer
    model_config: Optional[Dict[str, Any]] = None  # as written
    training_config: Optional[Dict[str, Any]] = None  # loss, metrics, …, as written
    optimizer_config: Optional[Dict[str, Any]] = None  # class_name and config, as written
    variables: Dict[str, Value] = dataclasses.field(default_factory=dict)  # by owner, in the file's order
    is_ordered: bool = True  # whether variables stand in the order of the model's layers; if not, names alone count
    owners: Dict[str, Tuple[int, ...]] = dataclasses.field(default_factory=dict)  # shapes, where it has no variables
    slots: Dict[str, Dict[str, Value]] = dataclasses.field(default_factory=dict)  # by owner and slot
    scalars: Dict[str, Value] = dataclasses.field(default_factory=dict)  # the optimizer's other variables, by name
    weight_list: List[Value] = dataclasses.field(default_factory=list)  # the optimizer's variables, if without names
    has_bare_momentum: bool = False  # RMSprop of 2.10's experimental ones: the learning rate is not in its momentum
    iterations: Optional[int] = None
    learning_rate: Optional[float] = None  # as the optimizer had it last; None: not in the file, or a schedule
    loss_scale: Optional[Dict[str, Any]] = None  # class_name and config, where the file names a policy in our words
    loss_scale_state: Dict[str, Any] = dataclasses.field(default_factory=dict)  # name → number
    skipped_steps: Optional[str] = None  # ADVANCE or HOLD: a file's format, or a line of ours in it, tells
    skips: Dict[str, Any] = dataclasses.field(default_factory=dict)  # counters; empty: no step was skipped
    notes: List[str] = dataclasses.field(default_factory=list)  # what is not as one would expect, in sentences
