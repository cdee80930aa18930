"""Reading HDF5 without trusting it: no link is followed, no other file is opened, and no array is read unasked."""

from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

import contextlib
import functools
import operator
import os

import h5py
import numpy as np

from ..registry.errors import UnreadableFileError, shown
from . import _file_cache, _resource_limits
from ._decompression_limits import ALWAYS_FINE, most_of
from ._json_text import parsed
from .training_state import Value

_DEEPEST = 100  # levels of groups: a model in a model in a model has two for each

# what h5py raises where a file is broken
_BROKEN = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError, MemoryError)

# gives an open HDF5 file: a value opens it again when it is read, so that nothing keeps a file open in between
Opener = Callable[[], Any]


class H5:
    """An HDF5 file, or a part of another file that is one. ``name`` is for messages."""

    def __init__(self, name: str, opener: Opener) -> None:
        self.name = name
        self._opener = opener

    @classmethod
    def at(cls, path: str) -> "H5":
        """The file at a path."""
        if not os.path.exists(path):
            raise FileNotFoundError(f"{path}: no such file")
        return cls(path, lambda: h5py.File(path, "r"))

    @contextlib.contextmanager
    def opened(self) -> Iterator[Any]:
        """The open file; what h5py finds wrong with it becomes an error of ours."""
        try:
            _resource_limits.begin()
            with _file_cache.opened(self, self._opener) as file:
                yield file
        except UnreadableFileError:
            raise
        except _BROKEN as error:
            raise self.broken(str(error) or type(error).__name__) from error
        finally:
            _resource_limits.rest()

    def broken(self, reason: str) -> UnreadableFileError:
        return UnreadableFileError(f"{self.name}: not an HDF5 file that can be read, or cut off: {reason}")

    def value(self, dataset: Any) -> Value:
        """An array that is read when it is asked for."""
        if not isinstance(dataset, h5py.Dataset):
            raise UnreadableFileError(f"{self.name}: {dataset.name} is not an array")
        self._require_own_data(dataset)
        address, is_bfloat16 = dataset.name, _is_bfloat16(dataset)

        def read() -> Any:
            with self.opened() as file:
                found = member(file, address)
                _require_size(found)
                _resource_limits.rest()
                array = found[()]
            return _from_bfloat16(array) if is_bfloat16 else array

        return Value(tuple(dataset.shape), "float32" if is_bfloat16 else dataset.dtype.name, read)

    def _require_own_data(self, dataset: Any) -> None:
        if dataset.external or getattr(dataset, "is_virtual", False):
            raise UnreadableFileError(f"{self.name}: {dataset.name} is kept in other files, which are not opened")


def _size(declared: Any) -> int:
    """The bytes of a dataset or an attribute, in Python's numbers, which have no limit."""
    # NumPy's own product of them fails up to 1.18 where there are none
    return functools.reduce(operator.mul, declared.shape, int(declared.dtype.itemsize))


def _require_size(dataset: Any) -> None:
    """What is declared and not there would be filled with zeros, however much it is."""
    size = _size(dataset)
    if size > most_of(dataset.id.get_storage_size()):
        raise ValueError(f"{dataset.name} would be {size} bytes, which are not in the file")


def member(group: Any, path: str) -> Any:
    """What a group holds under a path; a link on the way leads nowhere."""
    for part in path.strip("/").split("/"):
        _resource_limits.look()
        if not isinstance(group, h5py.Group) or not isinstance(group.get(part, getlink=True), h5py.HardLink):
            raise KeyError(f"there is no {path} in {getattr(group, 'name', '?')}")
        group = group[part]
    return group


def subgroup(group: Any, path: str) -> Optional[Any]:
    """The group under a path, or None."""
    try:
        found = member(group, path)
    except KeyError:
        return None
    return found if isinstance(found, h5py.Group) else None


def datasets(group: Any) -> Iterator[Tuple[str, Any]]:
    """All arrays under a group, each with its path from there."""
    yield from _datasets(group, "", Way())


class Way:
    """The groups that one has been to. A group may hold itself, and may be nested as deep as it likes."""

    def __init__(self) -> None:
        self._seen: Set[Any] = set()

    def is_new(self, group: Any) -> bool:
        """Whether it is the first time; ValueError at a depth that no model has."""
        if group.name.count("/") > _DEEPEST:
            raise ValueError(f"groups are nested deeper than {_DEEPEST} levels")
        _resource_limits.look()
        address = h5py.h5o.get_info(group.id).addr
        is_new = address not in self._seen
        self._seen.add(address)
        return is_new


def _datasets(group: Any, path: str, way: Way) -> Iterator[Tuple[str, Any]]:
    if not way.is_new(group):
        return
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            continue
        child = group[name]
        if isinstance(child, h5py.Group):
            yield from _datasets(child, f"{path}{name}/", way)
        elif isinstance(child, h5py.Dataset):
            yield path + name, child


def text(group: Any, name: str) -> Optional[str]:
    """A string attribute, which Keras has written as bytes or as text; a long one may be cut into name0, name1, …"""
    _resource_limits.look()
    if name in group.attrs:
        return _text(_attribute(group, name))
    pieces = list(_pieces(group, name))
    return "".join(_text(piece) for piece in pieces) if pieces else None


def texts(group: Any, name: str) -> Optional[List[str]]:
    """An attribute that holds strings; Keras cuts a long list into name0, name1, …"""
    _resource_limits.look()
    if name in group.attrs:
        return [_text(each) for each in _items(_attribute(group, name))]
    pieces = list(_pieces(group, name))
    return [_text(each) for piece in pieces for each in _items(piece)] if pieces else None


def json_object(group: Any, name: str) -> Optional[Dict[str, Any]]:
    """An attribute that holds a JSON object."""
    found = text(group, name)
    if found is None:
        return None
    value = parsed(found)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"the attribute {name} is {shown(value)}, not a JSON object")
    return value


def _attribute(group: Any, name: str) -> Any:
    """One of a group's attributes, which h5py makes room for before it looks whether it is all there."""
    declared = h5py.h5a.open(group.id, name.encode("utf-8"))
    if _size(declared) > ALWAYS_FINE:
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
        raise ValueError(f"{shown(value)} is not text")
    return str(value)


def _is_bfloat16(dataset: Any) -> bool:
    """NumPy alone has no such type: Keras writes two bytes of no type, and from Keras 3 on says what they are."""
    return dataset.dtype.kind == "V" and dataset.dtype.itemsize == 2 and dataset.dtype.names is None


def _from_bfloat16(array: Any) -> Any:
    bits = np.frombuffer(np.asarray(array).tobytes(), dtype=np.uint16).astype(np.uint32) << 16
    return bits.view(np.float32).reshape(np.shape(array))
