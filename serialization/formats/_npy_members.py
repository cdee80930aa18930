"""Arrays in a zip file, as NumPy writes them: looked at before any memory is taken. NumPy's own reader trusts them."""

from typing import IO, Any, Tuple

import re
import zipfile

import numpy as np

from .. import _file_cache
from .._zip_members import bound_of, opened, readable
from ..training_state import Value

ENDING = ".npy"
_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '([<>|=][a-zA-Z][0-9]{0,9})', 'fortran_order': (True|False), 'shape': \(([0-9, ]{0,999})\), *\} *\n"
)


def value_of(path: str, archive: zipfile.ZipFile, name: str) -> Value:
    """The array that a member holds; it is read when it is asked for. ValueError if it is none."""
    with opened(archive, name + ENDING) as member:
        kind, shape, _ = _header(member)

    def read() -> Any:
        with readable(path), _file_cache.opened((__name__, path), lambda: zipfile.ZipFile(path)) as again:
            return _array(again, name + ENDING)

    return Value(shape, kind.name, read)


def _header(member: IO[bytes]) -> Tuple[Any, Tuple[int, ...], bool]:
    """Type, shape, and whether the first dimension is the one whose elements lie side by side."""
    start = member.read(10)
    match = _HEADER.fullmatch(member.read(int.from_bytes(start[8:10], "little")))
    if start[:8] != _MAGIC or match is None:
        raise ValueError(f"{member.name} is not an array as NumPy writes it")
    kind, is_fortran, numbers = match.groups()
    dtype = np.dtype(kind.decode("ascii"))
    if dtype.hasobject:
        raise ValueError(f"{member.name} holds objects, which would be code")
    return dtype, tuple(int(number) for number in numbers.split(b",") if number.strip()), is_fortran == b"True"


def _array(archive: zipfile.ZipFile, name: str) -> Any:
    bound = bound_of(archive.getinfo(name))
    with opened(archive, name) as member:
        dtype, shape, is_fortran = _header(member)
        size = dtype.itemsize
        for number in shape:
            size *= number
        if size > bound:
            raise ValueError(f"{name} unpacks to {size} bytes: it is no state")
        data = member.read(size + 1)
    if len(data) != size:
        raise ValueError(f"{name} promises {size} bytes, which are not what is there")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if is_fortran else "C").copy()
