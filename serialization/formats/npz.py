"""A training state of our own: a mapping of plain values and NumPy arrays, the same as an .npz file, and a record.

The *record* is the mapping without its arrays: what is written into the files of Keras beside what Keras puts there.
"""

from typing import Any, Callable, Dict, Iterator, Mapping, Optional

import json
import os
import zipfile

import numpy as np

from ...registry._documents import ADVANCE, HOLD
from ...registry.errors import InvalidSpecError, Problem, UnreadableFileError, shown
from ...registry.field_types import INT64_MAX
from .. import _skip_record
from .._atomic import replacing
from .._json_text import parsed
from .._zip_members import readable
from ..training_state import Contents, Value, Writer
from ._npy_members import ENDING, value_of

VERSION = 1
_RECORD = "record"  # the entry of an .npz file that holds the record; the arrays have names with a bar in them
_SLOTS, _SCALARS = "slots", "scalars"
_LARGEST = 2**1023  # an integer that a float can hold


def record_of(contents: Contents) -> Dict[str, Any]:
    """Everything but the arrays, for JSON."""
    loss_scale = None
    if contents.loss_scale is not None or contents.loss_scale_state:
        policy = contents.loss_scale or {"class_name": "", "config": {}}  # a checkpoint has values, and no names
        loss_scale = {**policy, "state": dict(contents.loss_scale_state)}
    return {
        "version": VERSION,
        "written_by": {
            name: getattr(contents.writer, name)
            for name in ("scalekeeper", "tensorflow", "keras")
            if getattr(contents.writer, name) is not None
        },
        "optimizer": contents.optimizer_config,
        "iterations": contents.iterations,
        "learning_rate": contents.learning_rate,
        "loss_scale": loss_scale,
        "skipped_steps": contents.skipped_steps,
        _skip_record.NAME: contents.skips,
        "has_bare_momentum": contents.has_bare_momentum,
        _SCALARS: {name: value.read().item() for name, value in contents.scalars.items() if value.shape == ()},
        "owners": {owner: list(shape) for owner, shape in contents.owners.items()},
    }


def take_record(contents: Contents, record: Any) -> None:
    """Let a record say what it knows better than the rest of the file."""
    problems = list(_problems(record))
    if problems:
        raise InvalidSpecError(problems)
    loss_scale = record.get("loss_scale")
    contents.writer = contents.writer._replace(**(record.get("written_by") or {}))
    contents.skipped_steps = record.get("skipped_steps", contents.skipped_steps)
    contents.skips = _skip_record.whole(record.get(_skip_record.NAME, {}))
    contents.has_bare_momentum = bool(record.get("has_bare_momentum"))
    if contents.iterations is None:
        contents.iterations = record.get("iterations")
    if contents.learning_rate is None:
        contents.learning_rate = record.get("learning_rate")
    if contents.optimizer_config is None:
        contents.optimizer_config = record.get("optimizer")
    if loss_scale is not None:
        if loss_scale["class_name"]:
            contents.loss_scale = {"class_name": loss_scale["class_name"], "config": dict(loss_scale["config"])}
        contents.loss_scale_state = dict(loss_scale["state"])
    for name, value in (record.get(_SCALARS) or {}).items():
        contents.scalars.setdefault(name, Value.of(value))
    contents.owners = {owner: tuple(shape) for owner, shape in (record.get("owners") or {}).items()}


def _problems(record: Any) -> Iterator[Problem]:
    """What is wrong with a record, if anything is."""
    if not isinstance(record, Mapping):
        yield Problem((), f"{shown(record)} is not a training state", "type")
        return
    if record.get("version") != VERSION:
        message = f"{shown(record.get('version'))} is not {VERSION}: a newer scalekeeper wrote it; install that one"
        yield Problem(("version",), message, "version")
        return
    kinds: Dict[str, Callable[[Any], bool]] = {
        "written_by": _is_mapping,
        "optimizer": _is_mapping,
        "iterations": _is_count,
        "learning_rate": _is_number,
        "loss_scale": _is_mapping,
        "owners": _is_mapping,
        _SCALARS: _is_mapping,
    }
    for name, belongs in kinds.items():
        value = record.get(name)
        if value is not None and not belongs(value):
            yield Problem((name,), f"{shown(value)} does not belong here", "type")
    written_by = record.get("written_by")
    if isinstance(written_by, Mapping) and not _names_writers(written_by):
        yield Problem(("written_by",), f"{shown(dict(written_by))} does not belong here", "type")
    if record.get("skipped_steps") not in (None, ADVANCE, HOLD):
        yield Problem(("skipped_steps",), f"{shown(record['skipped_steps'])} is neither {ADVANCE} nor {HOLD}", "value")
    yield from _skip_record.problems(record.get(_skip_record.NAME, {}))
    loss_scale = record.get("loss_scale")
    if isinstance(loss_scale, Mapping):
        yield from _problems_of_loss_scale(loss_scale)
    scalars = record.get(_SCALARS)
    for name, value in scalars.items() if isinstance(scalars, Mapping) else ():
        if not _is_array(value):
            yield Problem((_SCALARS, name), f"{shown(value)} is neither a number nor an array", "type")
    owners = record.get("owners")
    if isinstance(owners, Mapping) and not all(map(_is_shape, owners.values())):
        yield Problem(("owners",), f"{shown(owners)} does not give shapes", "type")


def _problems_of_loss_scale(loss_scale: Mapping[str, Any]) -> Iterator[Problem]:
    for name, kind in {"class_name": str, "config": Mapping, "state": Mapping}.items():
        if not isinstance(loss_scale.get(name), kind):
            yield Problem(("loss_scale", name), f"{shown(loss_scale.get(name))} does not belong here", "type")
    state = loss_scale.get("state")
    for name, value in state.items() if isinstance(state, Mapping) else ():
        if not _is_number(value):
            yield Problem(("loss_scale", "state", name), f"{shown(value)} is not a number", "type")


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= INT64_MAX


def _is_number(value: Any) -> bool:
    """One that is a float, or can become one."""
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    return is_number and (not isinstance(value, int) or abs(value) <= _LARGEST)


def _is_array(value: Any) -> bool:
    try:
        return np.asarray(value).dtype.kind in "biufV"
    except ValueError:  # a list of lists of different lengths
        return False


def _is_shape(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(_is_count(number) for number in value)


def _names_writers(written_by: Mapping[str, Any]) -> bool:
    return written_by.keys() <= {"scalekeeper", "tensorflow", "keras"} and all(
        isinstance(version, str) for version in written_by.values()
    )


def state_dict_of(contents: Contents) -> Dict[str, Any]:
    """The record, with the slots beside; the optimizer's other variables are numbers, or arrays as well."""
    record = record_of(contents)
    arrays = {name: value.read() for name, value in contents.scalars.items() if value.shape != ()}
    return {
        **record,
        _SCALARS: {**record[_SCALARS], **arrays},
        _SLOTS: {
            owner: {name: value.read() for name, value in slots.items()} for owner, slots in contents.slots.items()
        },
    }


def contents_of_state_dict(state: Any) -> Contents:
    """What ``state_dict_of`` gave, checked."""
    contents = Contents(Writer("npz"))
    take_record(contents, state)
    for owner, slots in state.get(_SLOTS, {}).items():
        contents.slots[owner] = {name: Value.of(value) for name, value in slots.items()}
    return contents


def save_state(optimizer: Any, path: Any) -> None:
    """Write everything that a LossScaleOptimizer needs to go on to an .npz file, whole or not at all."""
    with replacing(str(path)) as temporary:
        write_state(temporary, optimizer.state_dict())


def write_state(path: str, state: Mapping[str, Any]) -> None:
    """Write a state to a new .npz file."""
    state = dict(state)
    slots, scalars = state.pop(_SLOTS), state.pop(_SCALARS)
    arrays = {f"{_SLOTS}|{owner}|{name}": value for owner, each in slots.items() for name, value in each.items()}
    arrays.update({f"{_SCALARS}|{name}": np.asarray(value) for name, value in scalars.items()})
    with open(path, "wb") as stream:  # to a name without its own ending NumPy would add it
        np.savez(stream, **{_RECORD: np.array(json.dumps(state)), **arrays})


def read_state(path: Any) -> Dict[str, Any]:
    """What ``save_state`` wrote, for ``load_state_dict``."""
    return state_dict_of(read(path))


def read(path: Any) -> Contents:
    """What one of our .npz files holds. Its arrays stay there until they are asked for."""
    path = os.fspath(path)
    with readable(path, "a training state of ours"), zipfile.ZipFile(path) as archive:
        names = [name[: -len(ENDING)] for name in archive.namelist() if name.endswith(ENDING)]
        if _RECORD not in names:
            raise ValueError("it is no training state")
        record = json_record(_text(value_of(path, archive, _RECORD)), path)
        values = {name: value_of(path, archive, name) for name in names if name != _RECORD}
    contents = Contents(Writer("npz"))
    take_record(contents, record)
    contents.scalars = {}  # those of the file, not of its record
    for name, value in values.items():
        kind, _, rest = name.partition("|")
        owner, _, slot = rest.rpartition("|")
        if kind == _SLOTS:
            contents.slots.setdefault(owner, {})[slot] = value
        else:
            contents.scalars[rest] = value
    return contents


def _text(value: Value) -> str:
    if value.shape != () or not value.dtype.startswith("str"):
        raise ValueError(f"its record is {value.dtype} of shape {value.shape}, not a text")
    return str(value.read())


def json_record(text: Optional[str], path: Any) -> Any:
    """A record from JSON."""
    try:
        return None if text is None else parsed(text)
    except ValueError as error:
        raise UnreadableFileError(f"{path}: the record of scalekeeper in it is broken: {error}") from error
