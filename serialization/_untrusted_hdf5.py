"""Untrusted HDF5 files: no link is followed, no other file is opened, and arrays are read on demand."""

from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

import contextlib
import functools
import operator
import os

import h5py
import numpy as np

from ..registry.errors import MissingFileError, UnreadableFileError, shown
from . import _file_resources
from .training_state import Value

# what h5py raises for a corrupt file
_CORRUPT = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError, MemoryError)

_START = 4096  # bytes of an array that are compared to see whether it was loaded

# Opens an HDF5 file. A value opens it again when it is read, so no file stays open in between.
Opener = Callable[[], Any]


class H5:
    """An HDF5 file, or an HDF5 member of another file. ``name`` is for messages."""

    def __init__(self, name: str, opener: Opener) -> None:
        self.name = name
        self._opener = opener

    @classmethod
    def at(cls, path: str) -> "H5":
        """Return the file at a path."""
        if not os.path.exists(path):
            raise MissingFileError(f"{path}: no such file")
        return cls(path, lambda: h5py.File(path, "r"))

    @contextlib.contextmanager
    def opened(self) -> Iterator[Any]:
        """Yield the open file; errors of h5py become UnreadableFileError."""
        try:
            _file_resources.start_reading()
            with _file_resources.open_file(self, self._opener) as file:
                yield file
        except UnreadableFileError:
            raise
        except _CORRUPT as error:
            raise self.corrupt(str(error) or type(error).__name__) from error
        finally:
            _file_resources.stop()

    def corrupt(self, reason: str) -> UnreadableFileError:
        """Return the error for a file that cannot be read."""
        return UnreadableFileError(f"{self.name}: not a readable HDF5 file, or truncated: {reason}")

    def value(self, dataset: Any) -> Value:
        """Return an array of the file, to be read on demand."""
        if not isinstance(dataset, h5py.Dataset):
            raise UnreadableFileError(f"{self.name}: expected {dataset.name} to be an array")
        self._require_own_data(dataset)
        address, is_bfloat16 = dataset.name, _is_bfloat16(dataset)

        def read(rows: Any = ()) -> Any:
            with self.opened() as file:
                found = member(file, address)
                _require_stored(found)
                _file_resources.stop()
                array = found[rows]
            return _from_bfloat16(array) if is_bfloat16 else array

        shape = tuple(dataset.shape)
        row = _size(dataset) // max(1, shape[0]) if shape else 0  # in bytes
        start = slice(0, max(1, _START // max(1, row)))
        dtype = "float32" if is_bfloat16 else dataset.dtype.name
        return Value(shape, dtype, read, (lambda: read(start)) if shape else None)

    def _require_own_data(self, dataset: Any) -> None:
        if dataset.external or getattr(dataset, "is_virtual", False):
            raise UnreadableFileError(f"{self.name}: {dataset.name} is stored in other files, which are not opened")


def _size(declared: Any) -> int:
    """Return the bytes of a dataset or an attribute as a Python int, which cannot overflow."""
    # np.prod of an empty shape fails up to NumPy 1.18
    return functools.reduce(operator.mul, declared.shape, int(declared.dtype.itemsize))


def _require_stored(dataset: Any) -> None:
    """Refuse an array that is declared but not stored: HDF5 would fill it with zeros, whatever its size."""
    size = _size(dataset)
    if size > _file_resources.max_unpacked_size(dataset.id.get_storage_size()):
        raise ValueError(f"{dataset.name} declares {size} bytes, which are not in the file")


def member(group: Any, path: str) -> Any:
    """Return the member of a group at a path, following no links."""
    for part in path.strip("/").split("/"):
        _file_resources.start_call()
        if not isinstance(group, h5py.Group) or not isinstance(group.get(part, getlink=True), h5py.HardLink):
            raise KeyError(f"{getattr(group, 'name', '?')} has no member {path}")
        group = group[part]
    return group


def subgroup(group: Any, path: str) -> Optional[Any]:
    """Return the group at a path, or None."""
    try:
        found = member(group, path)
    except KeyError:
        return None
    return found if isinstance(found, h5py.Group) else None


def datasets(group: Any) -> Iterator[Tuple[str, Any]]:
    """Yield the path and the dataset of each array below a group."""
    yield from _datasets(group, "", VisitedGroups())


class VisitedGroups:
    """The groups visited so far. In an untrusted file a group may contain itself, and may be nested at any depth."""

    def __init__(self) -> None:
        self._seen: Set[Any] = set()

    def add(self, group: Any) -> bool:
        """Return whether a group is visited for the first time."""
        if group.name.count("/") > _file_resources.MAX_GROUP_DEPTH:
            raise ValueError(f"groups are nested deeper than {_file_resources.MAX_GROUP_DEPTH} levels")
        _file_resources.start_call()
        address = h5py.h5o.get_info(group.id).addr
        is_new = address not in self._seen
        self._seen.add(address)
        return is_new


def _datasets(group: Any, path: str, visited: VisitedGroups) -> Iterator[Tuple[str, Any]]:
    if not visited.add(group):
        return
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            continue
        child = group[name]
        if isinstance(child, h5py.Group):
            yield from _datasets(child, f"{path}{name}/", visited)
        elif isinstance(child, h5py.Dataset):
            yield path + name, child


def text(group: Any, name: str) -> Optional[str]:
    """Return a string attribute, stored as bytes or text; a long one may be split into name0, name1, …"""
    _file_resources.start_call()
    if name in group.attrs:
        return _text(_attribute(group, name))
    pieces = list(_pieces(group, name))
    return "".join(_text(piece) for piece in pieces) if pieces else None


def texts(group: Any, name: str) -> Optional[List[str]]:
    """Return an attribute of strings; Keras splits a long list into name0, name1, …"""
    _file_resources.start_call()
    if name in group.attrs:
        return [_text(each) for each in _items(_attribute(group, name))]
    pieces = list(_pieces(group, name))
    return [_text(each) for piece in pieces for each in _items(piece)] if pieces else None


def json_object(group: Any, name: str) -> Optional[Dict[str, Any]]:
    """Return an attribute that holds a JSON object."""
    found = text(group, name)
    if found is None:
        return None
    value = _file_resources.parse_json(found)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"expected a JSON object in the attribute {name}, got {shown(value)}")
    return value


def _attribute(group: Any, name: str) -> Any:
    """Return an attribute; check its size first, because h5py allocates it before it checks that it is complete."""
    declared = h5py.h5a.open(group.id, name.encode("utf-8"))
    if _size(declared) > _file_resources.SMALL_SIZE:
        raise ValueError(f"the attribute {name} of {group.name} is too large")
    return group.attrs[name]


def _pieces(group: Any, name: str) -> Iterator[Any]:
    number = 0
    while f"{name}{number}" in group.attrs:
        yield _attribute(group, f"{name}{number}")
        number += 1


def _items(value: Any) -> List[Any]:
    return [] if isinstance(value, h5py.Empty) else list(np.asarray(value).reshape(-1))


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value.item()
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if not isinstance(value, str):
        raise ValueError(f"expected text, got {shown(value)}")
    return str(value)


def _is_bfloat16(dataset: Any) -> bool:
    """Return whether it holds bfloat16, which NumPy lacks: Keras writes two untyped bytes."""
    return dataset.dtype.kind == "V" and dataset.dtype.itemsize == 2 and dataset.dtype.names is None


def _from_bfloat16(array: Any) -> Any:
    bits = np.frombuffer(np.asarray(array).tobytes(), dtype=np.uint16).astype(np.uint32) << 16
    return bits.view(np.float32).reshape(np.shape(array))


def require_self_contained(source: H5) -> None:
    """Refuse an HDF5 file that refers to other files, before Keras opens it.

    Keras writes no links but follows them all. With links, an untrusted file could load bytes of any file on this disk,
    or the weights of another model.

    Raises:
        UnreadableFileError: The file has a link or an array that is stored in another file.
    """
    with source.opened() as file:
        seen: Set[Any] = set()
        groups = [file]
        while groups:
            group = groups.pop()
            address = h5py.h5o.get_info(group.id).addr
            if address in seen:  # a group may contain itself
                continue
            seen.add(address)
            for name in group:
                if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                    raise UnreadableFileError(
                        f"{source.name}: {name} in {group.name} is a link, which Keras never writes"
                    )
                child = group[name]
                if isinstance(child, h5py.Group):
                    groups.append(child)
                elif isinstance(child, h5py.Dataset):
                    source.value(child)
