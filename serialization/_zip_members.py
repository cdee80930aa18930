"""Members of a zip file, read where they lie: nothing is unpacked to a path, and nothing without a bound."""

from typing import IO, Any, Dict, Iterator, Optional

import contextlib
import io
import os
import struct
import tempfile
import zipfile
import zlib

from ..registry.errors import UnreadableFileError, shown
from ._decompression_limits import most_of
from ._json_text import LONGEST, parsed

# what zipfile raises where a file is broken: it does not hide what it is made of
_BROKEN = (
    *(zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError),
    *(KeyError, ValueError, NotImplementedError, RuntimeError, OverflowError),
)
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")


@contextlib.contextmanager
def readable(path: str, what: str = "a zip file") -> Iterator[None]:
    """What is wrong with a zip file becomes an error of ours."""
    try:
        yield
    except (UnreadableFileError, FileNotFoundError):
        raise
    except _BROKEN as error:
        raise UnreadableFileError(f"{path}: not {what} that can be read, or cut off: {error}") from error


def opened(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """A member as a stream. Keras and NumPy pack with deflate, or not at all; what else there is would cost more."""
    info = archive.getinfo(name)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} is packed in a way that is not known here")
    return archive.open(info)


def bound_of(info: zipfile.ZipInfo) -> int:
    """The most that a member may unpack to."""
    return most_of(info.compress_size)


def json_member(archive: zipfile.ZipFile, name: str, path: str) -> Optional[Dict[str, Any]]:
    """A member that holds a JSON object; None if there is none of that name."""
    if name not in archive.namelist():
        return None
    with opened(archive, name) as stream:
        data = stream.read(LONGEST + 1)  # whatever size the archive says it has
    if len(data) > LONGEST:
        raise UnreadableFileError(f"{path}: {name} has more than {LONGEST} bytes: that is no model's description")
    try:
        value = parsed(data.decode("utf-8"))
    except ValueError as error:
        raise UnreadableFileError(f"{path}: {name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UnreadableFileError(f"{path}: {name} holds {shown(value)}, not a JSON object")
    return value


def opened_member(path: str, name: str) -> Any:
    """A stream that can seek in a member of the zip file at a path."""
    with readable(path), zipfile.ZipFile(path) as archive:
        info = archive.getinfo(name)
        if info.compress_type != zipfile.ZIP_STORED:
            return _unpacked(archive, info, path)
    # Keras does not compress: so the member is a part of the file, and seeking in it costs nothing
    return io.BufferedReader(_Part(path, _start_of(path, info), info.file_size))


def _start_of(path: str, info: zipfile.ZipInfo) -> int:
    with open(path, "rb") as stream:
        stream.seek(info.header_offset)
        header = stream.read(_LOCAL_HEADER.size)
    if len(header) < _LOCAL_HEADER.size:
        raise UnreadableFileError(f"{path}: cut off")
    *_, name_length, extra_length = _LOCAL_HEADER.unpack(header)
    return info.header_offset + _LOCAL_HEADER.size + int(name_length) + int(extra_length)


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: str) -> Any:
    """A compressed member in a temporary file without a name."""
    bound = bound_of(info)
    stream = tempfile.TemporaryFile()  # noqa: SIM115
    try:
        with opened(archive, info.filename) as member:
            left = bound
            for data in iter(lambda: member.read(2**20), b""):
                left -= len(data)
                if left < 0:
                    raise UnreadableFileError(f"{path}: {info.filename} unpacks to over {bound} bytes: it is no model")
                stream.write(data)
    except BaseException:
        stream.close()
        raise
    stream.seek(0)
    return stream


class _Part(io.RawIOBase):
    """A part of a file, as a file of its own."""

    def __init__(self, path: str, start: int, size: int) -> None:
        super().__init__()
        self._stream = open(path, "rb")  # noqa: SIM115
        self._start = start
        self._size = max(0, min(size, os.fstat(self._stream.fileno()).st_size - start))
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        self._place = max(0, base + offset)
        return self._place

    def tell(self) -> int:
        return self._place

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        wanted = max(0, min(len(view), self._size - self._place))
        self._stream.seek(self._start + self._place)
        count = self._stream.readinto(view[:wanted])
        self._place += count
        return int(count)

    def close(self) -> None:
        self._stream.close()
        super().close()
