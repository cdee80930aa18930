"""The training state in a file, in terms that do not depend on who wrote it, and the JSON record of it.

Codecs read it, ``restore`` takes it. The record is everything of a training state but its arrays, which scalekeeper
adds to the files of Keras.
"""

from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import dataclasses
import functools

import numpy as np

from ..registry._compat import metadata
from ..registry._documents import ADVANCE, HOLD
from ..registry.errors import Problem, StateMismatchError, TranslationError, UnreadableFileError, shown
from ..registry.field_types import INT64_MAX
from ._connections import Connections
from ._file_resources import parse_json
from ._probe_record import PROBE, problems
from ._variable_order import Position
from .keras._optimizer_config import inner_config

_NUMERIC = ("int", "uint", "float", "bfloat16", "bool")  # how NumPy's names of numeric types begin

# the record
VERSION = 1
SLOTS, SCALARS = "slots", "scalars"
ADDED_SLOTS = "scalekeeper_slots"  # the group of an HDF5 file with the slots that Keras does not write
ADDED_OTHERS = "@others"  # in that group, in place of an owner: other arrays
_LARGEST = 2**1023  # an integer that a float can hold

# what a variable in Keras's list is: (SLOT, owner, slot), (SCALAR, name), (LOSS_SCALE, name), (ITERATIONS,), (RATE,);
# () for one that Keras does not use
LISTED = "optimizer_variables"  # the key of the record
SLOT, SCALAR, LOSS_SCALE, ITERATIONS, RATE = "slot", "scalar", "loss_scale", "iterations", "learning_rate"

# skipped steps
SKIPS = "skips"  # a key of the record, and a child of the optimizer in a checkpoint
SKIP_COUNTERS = TOTAL, IN_A_ROW, LAST = ("total", "in_a_row", "last")
OVERFLOWS = "overflows"  # variable → number of steps with a non-finite gradient; in the record only


class Value(NamedTuple):
    """An array in a file. Its shape and type are known; the array is read on demand."""

    shape: Tuple[int, ...]
    dtype: str
    read: Callable[[], Any]
    read_start: Optional[Callable[[], Any]] = None  # reads the first rows, where a file can

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
    """The software that wrote a file, as far as the file records it."""

    format: str  # the name of a format
    keras: Optional[str] = None  # version
    tensorflow: Optional[str] = None  # version
    scalekeeper: Optional[str] = None  # version; None: plain Keras wrote it


@dataclasses.dataclass
class TrainingState:
    """Everything a file holds of a training run. An attribute is None or empty if the file lacks it.

    An *owner* is the name of a model variable without its output number: ``d1/kernel``. Slots have the names of
    TensorFlow 2.0's documentation (``m``, ``v``, ``momentum``, ``rms``, …), whatever the file calls them.
    """

    writer: Writer
    model_config: Optional[Dict[str, Any]] = None  # as written
    training_config: Optional[Dict[str, Any]] = None  # loss, metrics, …, as written
    optimizer_config: Optional[Dict[str, Any]] = None  # class_name and config, as written
    variables: Dict[str, Value] = dataclasses.field(default_factory=dict)  # by owner, in the order of the file
    layers: Dict[str, List[str]] = dataclasses.field(default_factory=dict)  # layer → owners, in H5 files
    is_ordered: bool = True  # whether variables are in the order of the model's layers; if not, only names match
    paths: Dict[str, str] = dataclasses.field(default_factory=dict)  # owner → the attributes that lead to it
    positions: Dict[str, Position] = dataclasses.field(default_factory=dict)  # by owner, in a .weights.h5
    numbered: FrozenSet[str] = frozenset()  # owners that have got the names of a rebuilt model, and had numbers
    # in a .weights.h5: with the names of layers, and of the attributes inside a layer
    names_by_attribute: Dict[str, str] = dataclasses.field(default_factory=dict)
    path_kind: str = ""  # of ``_object_paths``: how ``paths`` are spelled
    has_layer_names: bool = False  # whether a file with paths has the names of the layers, too
    connections: Optional[Connections] = None  # between the layers, if the file has them and no configuration
    # by scalekeeper's record: the model's variables under their names in the program that saved them, in layer order
    model_variables: Dict[str, Tuple[int, ...]] = dataclasses.field(default_factory=dict)  # shapes
    model_names: Dict[str, str] = dataclasses.field(default_factory=dict)  # whole names of those in nested models
    model_paths: Dict[str, str] = dataclasses.field(default_factory=dict)  # where they are, if the file names no layers
    model_attributes: Dict[str, str] = dataclasses.field(default_factory=dict)  # and what leads to them in the program
    owners: Dict[str, Tuple[int, ...]] = dataclasses.field(default_factory=dict)  # shapes of trained variables
    slots: Dict[str, Dict[str, Value]] = dataclasses.field(default_factory=dict)  # by owner and slot
    scalars: Dict[str, Value] = dataclasses.field(default_factory=dict)  # other optimizer variables, by name
    weight_list: List[Value] = dataclasses.field(default_factory=list)  # optimizer variables without names
    listed: List[Tuple[str, ...]] = dataclasses.field(default_factory=list)  # the variables that Keras writes, in order
    has_bare_momentum: bool = False  # momentum without the learning rate in it: RMSprop of 2.10's experimental ones
    iterations: Optional[int] = None
    learning_rate: Optional[float] = None  # the last one; None: not in the file, or a schedule
    loss_scale: Optional[Dict[str, Any]] = None  # class_name and config of the policy, where the file has them
    loss_scale_state: Dict[str, Any] = dataclasses.field(default_factory=dict)  # name → number
    skipped_steps: Optional[str] = None  # ADVANCE or HOLD, by the format or by scalekeeper's record
    skips: Dict[str, Any] = dataclasses.field(default_factory=dict)  # counters; empty: no step was skipped
    probe: Optional[Dict[str, Any]] = None  # what the model computed when it was saved, see probe.py
    notes: List[str] = dataclasses.field(default_factory=list)  # unexpected things, in sentences


@functools.lru_cache(maxsize=None)
def own_version() -> str:
    """Return the version of scalekeeper."""
    version: str = metadata.version("scalekeeper")
    return version


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


def rename_owners(state: TrainingState, names: Mapping[str, str]) -> None:
    """Give the trained variables of a state other names."""
    state.owners = {names.get(owner, owner): shape for owner, shape in state.owners.items()}
    state.slots = {names.get(owner, owner): slots for owner, slots in state.slots.items()}
    state.listed = [
        (SLOT, names.get(each[1], each[1]), each[2]) if each[:1] == (SLOT,) else each for each in state.listed
    ]


def slots_in_memory(slots: Mapping[str, Mapping[str, Any]]) -> Dict[str, Dict[str, Value]]:
    """Return slots given as arrays, by owner and slot, as values."""
    return {owner: {name: Value.of(array) for name, array in each.items()} for owner, each in slots.items()}


# The record


def record_of(state: TrainingState) -> Dict[str, Any]:
    """Return the record of a training state, ready for JSON."""
    loss_scale = None
    if state.loss_scale is not None or state.loss_scale_state:
        policy = state.loss_scale or {"class_name": "", "config": {}}  # a checkpoint has values without names
        loss_scale = {**policy, "state": dict(state.loss_scale_state)}
    return {
        "version": VERSION,
        "written_by": {
            name: getattr(state.writer, name)
            for name in ("scalekeeper", "tensorflow", "keras")
            if getattr(state.writer, name) is not None
        },
        "optimizer": state.optimizer_config,
        "iterations": state.iterations,
        "learning_rate": state.learning_rate,
        "loss_scale": loss_scale,
        "skipped_steps": state.skipped_steps,
        SKIPS: state.skips,
        "has_bare_momentum": state.has_bare_momentum,
        SCALARS: {name: value.read().item() for name, value in state.scalars.items() if value.shape == ()},
        "owners": _shapes(state.owners),
        **({"variables": _shapes(state.model_variables)} if state.model_variables else {}),
        **({"names": state.model_names} if state.model_names else {}),
        **({"paths": state.model_paths} if state.model_paths else {}),
        **({"attributes": state.model_attributes} if state.model_attributes else {}),
        **({LISTED: [list(each) for each in state.listed]} if state.listed else {}),
        **({} if state.probe is None else {PROBE: state.probe}),
    }


def _shapes(owners: Mapping[str, Tuple[int, ...]]) -> Dict[str, List[int]]:
    return {owner: list(shape) for owner, shape in owners.items()}


def take_record(state: TrainingState, record: Any) -> None:
    """Update a training state from a record.

    Raises:
        StateMismatchError: The record is malformed; ``problems`` lists everything that is wrong.
    """
    problems = list(_problems(record))
    if problems:
        raise StateMismatchError(problems)
    loss_scale = record.get("loss_scale")
    state.writer = state.writer._replace(**(record.get("written_by") or {}))
    state.skipped_steps = record.get("skipped_steps") or state.skipped_steps
    state.skips = complete_skips(record.get(SKIPS, {}))
    state.has_bare_momentum = bool(record.get("has_bare_momentum"))
    if state.iterations is None:
        state.iterations = record.get("iterations")
    if state.learning_rate is None:
        state.learning_rate = record.get("learning_rate")
    if state.optimizer_config is None:
        state.optimizer_config = record.get("optimizer")
    if loss_scale is not None:
        if loss_scale["class_name"]:
            state.loss_scale = {"class_name": loss_scale["class_name"], "config": dict(loss_scale["config"])}
        state.loss_scale_state = dict(loss_scale["state"])
    for name, value in (record.get(SCALARS) or {}).items():
        state.scalars.setdefault(name, Value.of(value))
    state.owners = {owner: tuple(shape) for owner, shape in (record.get("owners") or {}).items()}
    state.model_variables = {owner: tuple(shape) for owner, shape in (record.get("variables") or {}).items()}
    state.model_names = dict(record.get("names") or {})
    state.model_paths = dict(record.get("paths") or {})
    state.model_attributes = dict(record.get("attributes") or {})
    state.listed = [tuple(each) for each in record.get(LISTED) or ()]
    state.probe = record.get(PROBE)


def take_configured_rate(state: TrainingState) -> None:
    """Take the learning rate from the configuration, where Keras 2 writes its last value; a schedule is none."""
    config = inner_config(state.optimizer_config)
    arguments = config.get("config") if isinstance(config, Mapping) else None
    rate: Any = arguments.get("learning_rate", arguments.get("lr")) if isinstance(arguments, Mapping) else None
    if state.learning_rate is None and state.iterations is not None and _is_number(rate):
        state.learning_rate = float(rate)


def has_list(record: Any) -> bool:
    """Return whether a record names the variables in Keras's list."""
    return isinstance(record, Mapping) and bool(record.get(LISTED))


def take_listed(state: TrainingState, values: Sequence[Value], path: Any) -> None:
    """Name the variables in Keras's list by the record; slots that were added to the file stay.

    Raises:
        UnreadableFileError: The list is not the one that the record describes.
    """
    if len(values) != len(state.listed):
        raise UnreadableFileError(
            f"{path}: its record describes {len(state.listed)} variables of the optimizer, and it holds {len(values)}: "
            "another program has changed the file; restore another copy of it"
        )
    state.weight_list = []
    for meaning, value in zip(state.listed, values):
        if meaning[:1] == (SLOT,):
            state.slots.setdefault(meaning[1], {})[meaning[2]] = value
        elif meaning[:1] == (SCALAR,):
            state.scalars[meaning[1]] = value


def fits_list(state: TrainingState, values: Sequence[Value]) -> bool:
    """Return whether Keras has written the variables that a state lists."""
    return len(values) == len(state.listed) > 0 and all(
        value.shape == _shape_of(state, meaning) for meaning, value in zip(state.listed, values) if meaning
    )


def _shape_of(state: TrainingState, meaning: Tuple[str, ...]) -> Tuple[int, ...]:
    if meaning[0] == SLOT:
        return state.slots[meaning[1]][meaning[2]].shape
    return state.scalars[meaning[1]].shape if meaning[0] == SCALAR else ()


def listed_among(state: TrainingState, values: Sequence[Any]) -> List[Tuple[str, ...]]:
    """Return what each of these values is in a state, by identity."""
    meanings = {id(value): (SCALAR, name) for name, value in state.scalars.items()}
    known: Dict[int, Tuple[str, ...]] = {**meanings}
    for owner, slots in state.slots.items():
        known.update({id(value): (SLOT, owner, name) for name, value in slots.items()})
    return [known.get(id(value), ()) for value in values]


def not_listed(state: TrainingState) -> Tuple[Dict[str, Dict[str, Value]], Dict[str, Value]]:
    """Return the slots that Keras does not write, and the other arrays; single numbers are in the record."""
    listed = set(state.listed)
    slots = {
        owner: {name: value for name, value in each.items() if (SLOT, owner, name) not in listed}
        for owner, each in state.slots.items()
    }
    others = {
        name: value for name, value in state.scalars.items() if value.shape != () and (SCALAR, name) not in listed
    }
    return {owner: each for owner, each in slots.items() if each}, others


def parse_record(text: Optional[str], path: Any) -> Any:
    """Return the record in a JSON text; None if there is none.

    Raises:
        UnreadableFileError: The text is not JSON.
    """
    try:
        return None if text is None else parse_json(text)
    except ValueError as error:
        raise UnreadableFileError(f"{path}: its scalekeeper record is corrupt: {error}") from error


def complete_skips(skips: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the counters of skipped steps with all keys; empty if there are none."""
    return {**dict.fromkeys(SKIP_COUNTERS, 0), **skips} if skips else {}


def state_dict_of(state: TrainingState) -> Dict[str, Any]:
    """Return what ``LossScaleOptimizer.state_dict`` returns: the record with arrays for slots and other variables."""
    record = record_of(state)
    arrays = {name: value.read() for name, value in state.scalars.items() if value.shape != ()}
    slots = {owner: {name: value.read() for name, value in each.items()} for owner, each in state.slots.items()}
    return {**record, SCALARS: {**record[SCALARS], **arrays}, SLOTS: slots}


def state_of_dict(state_dict: Any) -> TrainingState:
    """Return the training state in a ``state_dict``.

    Raises:
        StateMismatchError: It is malformed; ``problems`` lists everything that is wrong.
    """
    state = TrainingState(Writer("npz"))
    take_record(state, state_dict)
    state.slots = slots_in_memory(state_dict.get(SLOTS, {}))
    return state


# Validation of a record


def _problems(record: Any) -> Iterator[Problem]:
    if not isinstance(record, Mapping):
        yield Problem((), f"expected what state_dict() or read_state(path) returned, got {shown(record)}", "type")
        return
    given = record.get("version")
    if given is None:
        message = "expected what state_dict() or read_state(path) returned"
        yield Problem((), f"{message}, got {shown(record)}, which has no 'version'", "missing")
        return
    if given != VERSION:
        is_newer = isinstance(given, (int, float)) and given > VERSION
        remedy = "a newer scalekeeper wrote it; install that one" if is_newer else f"expected the number {VERSION}"
        yield Problem(("version",), f"{shown(given)} is not {VERSION}: {remedy}", "version")
        return
    for name, (expected, accepts) in _FIELDS.items():
        value = record.get(name)
        if value is not None and not accepts(value):
            yield Problem((name,), f"expected {expected}, got {shown(value)}", "type")
    if record.get("skipped_steps") not in (None, ADVANCE, HOLD):
        message = f"expected {ADVANCE} or {HOLD}, got {shown(record['skipped_steps'])}"
        yield Problem(("skipped_steps",), message, "value")
    yield from _skip_problems(record.get(SKIPS, {}))
    yield from problems(record.get(PROBE))
    if isinstance(record.get("loss_scale"), Mapping):
        yield from _loss_scale_problems(record["loss_scale"])
    scalars = record.get(SCALARS)
    for name, value in scalars.items() if isinstance(scalars, Mapping) else ():
        if not _is_array(value):
            yield Problem((SCALARS, name), f"expected a number or an array, got {shown(value)}", "type")


def _skip_problems(skips: Any) -> Iterator[Problem]:
    if not isinstance(skips, Mapping):
        yield Problem((SKIPS,), f"expected a mapping, got {shown(skips)}", "type")
        return
    overflows = skips.get(OVERFLOWS, {})
    if not isinstance(overflows, Mapping):
        yield Problem((SKIPS, OVERFLOWS), f"expected a mapping, got {shown(overflows)}", "type")
        return
    counts: List[Tuple[Any, Any]] = [((SKIPS, name), skips.get(name, 0)) for name in SKIP_COUNTERS]
    counts += [((SKIPS, OVERFLOWS, name), count) for name, count in overflows.items()]
    for path, count in counts:
        if not _is_integer(count) or count < 0:
            yield Problem(path, f"expected a count, got {shown(count)}", "value")


def _loss_scale_problems(loss_scale: Mapping[str, Any]) -> Iterator[Problem]:
    for name, (expected, cls) in {
        "class_name": ("a string", str),
        "config": ("a mapping", Mapping),
        "state": ("a mapping", Mapping),
    }.items():
        if not isinstance(loss_scale.get(name), cls):
            message = f"expected {expected}, got {shown(loss_scale.get(name))}"
            yield Problem(("loss_scale", name), message, "type")
    state = loss_scale.get("state")
    for name, value in state.items() if isinstance(state, Mapping) else ():
        if not _is_number(value):
            yield Problem(("loss_scale", "state", name), f"expected a number, got {shown(value)}", "type")


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= INT64_MAX


def _is_number(value: Any) -> bool:
    """Return whether it is a float or can become one."""
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    return is_number and (not isinstance(value, int) or abs(value) <= _LARGEST)


def _is_array(value: Any) -> bool:
    try:
        return np.asarray(value).dtype.kind in "biufV"
    except ValueError:  # lists of different lengths
        return False


def _are_shapes(owners: Any) -> bool:
    return isinstance(owners, Mapping) and all(
        isinstance(shape, (list, tuple)) and all(map(_is_integer, shape)) for shape in owners.values()
    )


def _are_texts(texts: Any) -> bool:
    return isinstance(texts, Mapping) and all(isinstance(text, str) for text in texts.values())


def _are_versions(written_by: Any) -> bool:
    return (
        isinstance(written_by, Mapping)
        and written_by.keys() <= {"scalekeeper", "tensorflow", "keras"}
        and all(isinstance(version, str) for version in written_by.values())
    )


def _are_meanings(listed: Any) -> bool:
    lengths = {SLOT: 3, SCALAR: 2, LOSS_SCALE: 2, ITERATIONS: 1, RATE: 1}
    return isinstance(listed, (list, tuple)) and all(
        isinstance(each, (list, tuple))
        and all(isinstance(part, str) for part in each)
        and (not each or lengths.get(each[0]) == len(each))
        for each in listed
    )


# key → what is expected, and the function that checks it
_FIELDS: Dict[str, Tuple[str, Callable[[Any], bool]]] = {
    "written_by": ("versions of scalekeeper, tensorflow and keras", _are_versions),
    "optimizer": ("a mapping", _is_mapping),
    "iterations": ("an integer", _is_integer),
    "learning_rate": ("a number", _is_number),
    "loss_scale": ("a mapping", _is_mapping),
    "owners": ("a mapping of shapes", _are_shapes),
    "variables": ("a mapping of shapes", _are_shapes),
    "names": ("a mapping of strings", _are_texts),
    "paths": ("a mapping of strings", _are_texts),
    "attributes": ("a mapping of strings", _are_texts),
    SCALARS: ("a mapping", _is_mapping),
    LISTED: ("a list of what each variable is", _are_meanings),
}
