"""A training state of our own: a mapping of plain values and NumPy arrays, the same as an .npz file, and a record.

The *record* is the mapping without its arrays: what is written into the files of Keras beside what Keras puts there.
"""

from typing import Any, Dict, Mapping, Optional

import json
import zipfile

import numpy as np

from ..registry.documents import ADVANCE, HOLD
from ..registry.errors import InvalidSpecError, Problem, UnreadableFileError, shown
from . import skips
from .atomic import replacing
from .contents import Contents, Value, Writer

VERSION = 1
_RECORD = "record"  # the entry of an .npz file that holds the record; the arrays have names with a bar in them
_SLOTS, _SCALARS = "slots", "scalars"


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
        skips.NAME: contents.skips,
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
    contents.writer = contents.writer._replace(**record.get("written_by", {}))
    contents.skipped_steps = record.get("skipped_steps", contents.skipped_steps)
    contents.skips = dict(record.get(skips.NAME, {}))
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
    for name, value in record.get(_SCALARS, {}).items():
        contents.scalars.setdefault(name, Value.of(value))
    contents.owners = {owner: tuple(shape) for owner, shape in record.get("owners", {}).items()}


def _problems(record: Any) -> Any:
    """What is wrong with a record, if anything is."""
    if not isinstance(record, Mapping):
        yield Problem((), f"{shown(record)} is not a training state", "type")
        return
    if record.get("version") != VERSION:
        message = f"{shown(record.get('version'))} is not {VERSION}: a newer scalekeeper wrote it; install that one"
        yield Problem(("version",), message, "version")
        return
    kinds: Dict[str, Any] = {
        "written_by": Mapping,
        "optimizer": Mapping,
        "iterations": int,
        "learning_rate": (int, float),
        "loss_scale": Mapping,
        "owners": Mapping,
        _SCALARS: Mapping,
    }
    for name, kind in kinds.items():
        value = record.get(name)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            yield Problem((name,), f"{shown(value)} does not belong here", "type")
    written_by = record.get("written_by")
    if isinstance(written_by, Mapping) and not written_by.keys() <= {"scalekeeper", "tensorflow", "keras"}:
        yield Problem(("written_by",), f"{shown(dict(written_by))} does not belong here", "type")
    if record.get("skipped_steps") not in (None, ADVANCE, HOLD):
        yield Problem(("skipped_steps",), f"{shown(record['skipped_steps'])} is neither {ADVANCE} nor {HOLD}", "value")
    yield from skips.problems(record.get(skips.NAME, {}))
    loss_scale = record.get("loss_scale")
    if isinstance(loss_scale, Mapping):
        for name, kind in {"class_name": str, "config": Mapping, "state": Mapping}.items():
            if not isinstance(loss_scale.get(name), kind):
                yield Problem(("loss_scale", name), f"{shown(loss_scale.get(name))} does not belong here", "type")
    owners = record.get("owners")
    if isinstance(owners, Mapping) and not all(isinstance(shape, (list, tuple)) for shape in owners.values()):
        yield Problem(("owners",), f"{shown(owners)} does not give shapes", "type")


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
    """What one of our .npz files holds."""
    try:
        with open(path, "rb") as stream:
            with zipfile.ZipFile(stream):  # NumPy stumbles over one that is cut off, or leaves it open
                stream.seek(0)
            with np.load(stream, allow_pickle=False) as file:
                if _RECORD not in file.files:
                    raise ValueError("it is no training state")
                state: Dict[str, Any] = json.loads(str(file[_RECORD]))
                arrays = {name: file[name] for name in file.files if name != _RECORD}
    except FileNotFoundError:
        raise
    except Exception as error:  # NumPy and zipfile have many
        raise UnreadableFileError(f"{path}: not a training state of ours: {error}") from error
    slots: Dict[str, Dict[str, Any]] = {}
    scalars: Dict[str, Any] = {}
    for name, array in arrays.items():
        kind, _, rest = name.partition("|")
        owner, _, slot = rest.rpartition("|")
        if kind == _SLOTS:
            slots.setdefault(owner, {})[slot] = array
        else:
            scalars[rest] = array
    return contents_of_state_dict({**state, _SLOTS: slots, _SCALARS: scalars})  # of the file, not of its record


def json_record(text: Optional[str], path: Any) -> Any:
    """A record from JSON."""
    try:
        return None if text is None else json.loads(text)
    except ValueError as error:
        raise UnreadableFileError(f"{path}: the record of scalekeeper in it is broken: {error}") from error
