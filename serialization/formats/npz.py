"""``.npz`` files of scalekeeper: the training state of an optimizer, as a JSON record and NumPy arrays."""

from typing import IO, Any, Dict, Iterator, Mapping, Optional, Tuple

import inspect
import io
import json
import os
import zipfile

import numpy as np

from ...registry._argument_checks import is_model, path_of, unexpected
from ...registry.errors import MissingFileError
from .. import _file_resources
from .._atomic import replacing
from .._file_resources import max_unpacked_size
from .._loaded_source import LoadedSource
from .._zip_members import has_member, open_member, readable
from ..training_state import SCALARS, SLOTS, TrainingState, Value, Writer, parse_record, state_dict_of, take_record
from . import Format, ResumeContext

_RECORD = "record"  # the member that holds the record; the names of the others contain a bar
_NPY = ".npy"
_MAX_HEADER = 2048  # bytes


class NpzFormat(Format):
    """The codec of training states. They hold no model."""

    name = "npz"
    title = "training state of scalekeeper"
    phrase = "an .npz file"
    label = "state"
    endings = (".npz",)
    holds_weights = False
    written_by = "save_state"
    loaded_by = "restore, load_weights"
    run_files = ("state.npz", "model.weights.h5")

    def matches(self, path: str) -> bool:
        return has_member(path, _RECORD + _NPY)

    def read(self, path: str, class_name: Optional[str] = None) -> TrainingState:
        return read(path)

    def dropped(self, source: LoadedSource) -> Iterator[str]:
        if source.state.variables:
            yield "the model, its layers and its weights: a training state is that of the optimizer"

    def write(self, path: str, state: TrainingState) -> None:
        write_state(path, state_dict_of(state))

    @property
    def run_name(self) -> str:
        return "state"

    def save_run(self, model: Any, folder: str) -> None:
        state, weights = (os.path.join(folder, name) for name in self.run_files)
        model.save_weights(weights)
        save_state(model.optimizer, state)

    def resume_run(self, folder: str, context: ResumeContext) -> Any:
        # the state first: Keras 2.15 cannot load weights into a model whose optimizer has no variables yet
        model = super().resume_run(folder, context)
        model.load_weights(os.path.join(folder, self.run_files[1]))
        return model


CODEC = NpzFormat()


# Writing


def save_state(optimizer: Any, path: Any) -> None:
    """Write the training state of a :class:`LossScaleOptimizer` to an ``.npz`` file, atomically.

    Args:
        optimizer: The optimizer; its ``state_dict`` is written.
        path: The file.

    Raises:
        ArgumentTypeError: ``optimizer`` is not a LossScaleOptimizer, or ``path`` is not a path.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1), 64)
        >>> scalekeeper.save_state(optimizer, "state.npz")
        >>> scalekeeper.inspect("state.npz").loss_scale.parameters
        {'loss_scale_value': 64.0}
    """
    call = "save_state(optimizer, path)"
    if inspect.isclass(optimizer) or not callable(getattr(optimizer, "state_dict", None)):
        instead = "; save_model(model, path) saves a model with its optimizer" if is_model(optimizer) else ""
        raise unexpected(call, "a scalekeeper.LossScaleOptimizer", optimizer, instead)
    with replacing(path_of(path, call)) as temporary:
        write_state(temporary, optimizer.state_dict())


def write_state(path: str, state_dict: Mapping[str, Any]) -> None:
    """Write a ``state_dict`` to a new file."""
    record = dict(state_dict)
    slots, scalars = record.pop(SLOTS), record.pop(SCALARS)
    arrays = {f"{SLOTS}|{owner}|{name}": value for owner, each in slots.items() for name, value in each.items()}
    arrays.update({f"{SCALARS}|{name}": np.asarray(value) for name, value in scalars.items()})
    _savez(path, {_RECORD: np.array(json.dumps(record)), **arrays})


def save_arrays(path: str, arrays: Mapping[str, Any]) -> None:
    """Write arrays to an ``.npz`` file, atomically."""
    with replacing(path) as temporary:
        _savez(temporary, arrays)


def _savez(path: str, arrays: Mapping[str, Any]) -> None:
    with open(path, "wb") as stream:  # NumPy appends .npz to a path without that ending
        np.savez(stream, **arrays)


# Reading


def read_state(path: Any) -> Dict[str, Any]:
    """Return what :func:`save_state` wrote, for ``LossScaleOptimizer.load_state_dict``.

    Args:
        path: The file.

    Returns:
        The ``state_dict``.

    Raises:
        UnreadableFileError: The file is corrupt, or not a training state.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))
        >>> scalekeeper.save_state(optimizer, "state.npz")
        >>> optimizer.load_state_dict(scalekeeper.read_state("state.npz"), variables=[])
    """
    return state_dict_of(read(path))


def read_arrays(path: str) -> Dict[str, Any]:
    """Return the arrays that :func:`save_arrays` wrote."""
    with np.load(path, allow_pickle=False) as found:
        return {name: found[name] for name in found.files}


def read(path: Any) -> TrainingState:
    """Return what a training state in a file holds. Arrays stay in the file until they are read."""
    path = path_of(path, "read_state(path)")
    if not os.path.isfile(path):
        raise MissingFileError(f"{path}: no such file")
    with readable(path, "a training state of scalekeeper"), zipfile.ZipFile(path) as archive:
        names = [name[: -len(_NPY)] for name in archive.namelist() if name.endswith(_NPY)]
        if _RECORD not in names:
            raise ValueError("it has no record")
        record = _text(_value(path, archive, _RECORD))
        values = {name: _value(path, archive, name) for name in names if name != _RECORD}
    state = TrainingState(Writer("npz"))
    take_record(state, parse_record(record, path))
    state.scalars = {}  # those of the file have their types, those of the record have not
    for name, value in values.items():
        group, _, rest = name.partition("|")
        owner, _, slot = rest.rpartition("|")
        if group == SLOTS:
            state.slots.setdefault(owner, {})[slot] = value
        else:
            state.scalars[rest] = value
    return state


def _text(value: Value) -> str:
    if value.shape != () or not value.dtype.startswith("str"):
        raise ValueError(f"expected text for its record, got {value.dtype} of shape {value.shape}")
    return str(value.read())


# Arrays in an untrusted file: NumPy's own reader allocates whatever a header declares


def _value(path: str, archive: zipfile.ZipFile, name: str) -> Value:
    """Return the array in a member, to be read on demand."""
    with open_member(archive, name + _NPY) as member:
        dtype, shape, _ = _header(member, name)

    def read() -> Any:
        with readable(path), _file_resources.open_file((__name__, path), lambda: zipfile.ZipFile(path)) as again:
            return _array(again, name)

    return Value(shape, dtype.name, read)


def _header(member: IO[bytes], name: str) -> Tuple[Any, Tuple[int, ...], bool]:
    """Return type, shape, and whether the array is in Fortran order."""
    start = member.read(10)  # magic string, version, length of the header
    length = int.from_bytes(start[8:], "little")
    try:
        if length > _MAX_HEADER:
            raise ValueError(f"its header has {length} bytes")
        stream = io.BytesIO(start + member.read(length))
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):
            raise ValueError(f"its version is {version}")
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    except Exception as error:  # the header is parsed as Python literals, which fail in many ways
        raise ValueError(f"{name} is not an array as NumPy writes it: {error}") from error
    if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None:
        raise ValueError(f"{name} holds {dtype}, expected numbers or text")
    if any(number < 0 for number in shape):
        raise ValueError(f"{name} has the shape {shape}")
    return dtype, tuple(map(int, shape)), is_fortran


def _array(archive: zipfile.ZipFile, name: str) -> Any:
    limit = max_unpacked_size(archive.getinfo(name + _NPY).compress_size)
    with open_member(archive, name + _NPY) as member:
        dtype, shape, is_fortran = _header(member, name)
        size = int(dtype.itemsize)
        for number in shape:
            size *= number
        if size > limit:
            raise ValueError(f"{name} declares {size} bytes, which is more than the file can hold")
        data = member.read(size + 1)
    if len(data) != size:
        raise ValueError(f"{name} declares {size} bytes, but holds {'more' if len(data) > size else len(data)}")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if is_fortran else "C").copy()
