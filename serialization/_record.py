"""The scalekeeper record: everything of a training state but its arrays, as JSON beside what Keras writes."""

from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from ..registry._documents import ADVANCE, HOLD
from ..registry.errors import Problem, StateMismatchError, UnreadableFileError, shown
from ..registry.field_types import INT64_MAX
from ._resource_limits import parse_json
from .training_state import TrainingState, Value, Writer, slots_in_memory

VERSION = 1
SLOTS, SCALARS = "slots", "scalars"
ADDED_SLOTS = "scalekeeper_slots"  # the group of an HDF5 file that scalekeeper adds if Keras writes no slots
_LARGEST = 2**1023  # an integer that a float can hold

# skipped steps
SKIPS = "skips"  # a key of the record, and a child of the optimizer in a checkpoint
SKIP_COUNTERS = TOTAL, IN_A_ROW, LAST = ("total", "in_a_row", "last")
OVERFLOWS = "overflows"  # variable → number of steps with a non-finite gradient; in the record only


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
        "owners": {owner: list(shape) for owner, shape in state.owners.items()},
    }


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
    state.skipped_steps = record.get("skipped_steps", state.skipped_steps)
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


# Validation


def _problems(record: Any) -> Iterator[Problem]:
    if not isinstance(record, Mapping):
        yield Problem((), f"expected a training state, got {shown(record)}", "type")
        return
    if record.get("version") != VERSION:
        message = f"{shown(record.get('version'))} is not {VERSION}: a newer scalekeeper wrote it; install that one"
        yield Problem(("version",), message, "version")
        return
    for name, (expected, accepts) in _FIELDS.items():
        value = record.get(name)
        if value is not None and not accepts(value):
            yield Problem((name,), f"expected {expected}, got {shown(value)}", "type")
    if record.get("skipped_steps") not in (None, ADVANCE, HOLD):
        message = f"expected {ADVANCE} or {HOLD}, got {shown(record['skipped_steps'])}"
        yield Problem(("skipped_steps",), message, "value")
    yield from _skip_problems(record.get(SKIPS, {}))
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


def _are_versions(written_by: Any) -> bool:
    return (
        isinstance(written_by, Mapping)
        and written_by.keys() <= {"scalekeeper", "tensorflow", "keras"}
        and all(isinstance(version, str) for version in written_by.values())
    )


# key → what is expected, and the function that checks it
_FIELDS: Dict[str, Tuple[str, Callable[[Any], bool]]] = {
    "written_by": ("versions of scalekeeper, tensorflow and keras", _are_versions),
    "optimizer": ("a mapping", _is_mapping),
    "iterations": ("an integer", _is_integer),
    "learning_rate": ("a number", _is_number),
    "loss_scale": ("a mapping", _is_mapping),
    "owners": ("a mapping of shapes", _are_shapes),
    SCALARS: ("a mapping", _is_mapping),
}
