"""Members of an untrusted zip file: none is extracted to a path, and none is unpacked without a limit."""

from typing import IO, Any, Dict, Iterator, Optional

import contextlib
import io
import os
import struct
import tempfile
import zipfile
import zlib

from ..registry.errors import UnreadableFileError, shown
from ._file_resources import MAX_JSON_LENGTH, max_unpacked_size, parse_json

# what zipfile raises for a corrupt file
_CORRUPT = (
    *(zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError),
    *(KeyError, ValueError, NotImplementedError, RuntimeError, OverflowError),
)
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")


@contextlib.contextmanager
def readable(path: str, what: str = "a zip file") -> Iterator[None]:
    """Turn errors of zipfile into UnreadableFileError."""
    try:
        yield
    except (UnreadableFileError, FileNotFoundError):
        raise
    except _CORRUPT as error:
        raise UnreadableFileError(f"{path}: not {what}, or truncated: {error}") from error


def has_member(path: str, name: str) -> bool:
    """Return whether a path is a zip file with a member of a name."""
    if not os.path.isfile(path) or path.endswith(".index") or not zipfile.is_zipfile(path):
        return False
    with readable(path), zipfile.ZipFile(path) as archive:
        return name in archive.namelist()


def open_member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """Return a member as a stream. Only the compressions that Keras and NumPy use are allowed; others cost more."""
    info = archive.getinfo(name)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} has an unsupported compression")
    return archive.open(info)


def json_member(archive: zipfile.ZipFile, name: str, path: str) -> Optional[Dict[str, Any]]:
    """Return a member that holds a JSON object; None if there is no such member."""
    if name not in archive.namelist():
        return None
    with open_member(archive, name) as stream:
        data = stream.read(MAX_JSON_LENGTH + 1)  # the archive may declare any size
    if len(data) > MAX_JSON_LENGTH:
        raise UnreadableFileError(
            f"{path}: {name} has more than {MAX_JSON_LENGTH} bytes, too large for a configuration"
        )
    try:
        value = parse_json(data.decode("utf-8"))
    except ValueError as error:
        raise UnreadableFileError(f"{path}: {name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UnreadableFileError(f"{path}: expected a JSON object in {name}, got {shown(value)}")
    return value


def seekable_member(path: str, name: str) -> Any:
    """Return a seekable stream of a member of the zip file at a path."""
    with readable(path), zipfile.ZipFile(path) as archive:
        info = archive.getinfo(name)
        if info.compress_type != zipfile.ZIP_STORED:
            return _unpacked(archive, info, path)
    # Keras does not compress, so the member is a section of the file
    return io.BufferedReader(_Section(path, _start_of(path, info), info.file_size))


def _start_of(path: str, info: zipfile.ZipInfo) -> int:
    with open(path, "rb") as stream:
        stream.seek(info.header_offset)
        header = stream.read(_LOCAL_HEADER.size)
    if len(header) < _LOCAL_HEADER.size:
        raise UnreadableFileError(f"{path}: truncated")
    *_, name_length, extra_length = _LOCAL_HEADER.unpack(header)
    return info.header_offset + _LOCAL_HEADER.size + int(name_length) + int(extra_length)


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: str) -> Any:
    """Return a compressed member, unpacked to an unnamed temporary file."""
    limit = max_unpacked_size(info.compress_size)
    stream = tempfile.TemporaryFile()  # noqa: SIM115
    try:
        with open_member(archive, info.filename) as member:
            left = limit
            for data in iter(lambda: member.read(2**20), b""):
                left -= len(data)
                if left < 0:
                    raise UnreadableFileError(f"{path}: {info.filename} unpacks to more than {limit} bytes")
                stream.write(data)
    except BaseException:
        stream.close()
        raise
    stream.seek(0)
    return stream


class _Section(io.RawIOBase):
    """A section of a file, as a stream."""

    def __init__(self, path: str, start: int, size: int) -> None:
        super().__init__()
        self._stream = open(path, "rb")  # noqa: SIM115
        self._start = start
        self._size = max(0, min(size, os.fstat(self._stream.fileno()).st_size - start))
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        wanted = max(0, min(len(view), self._size - self._position))
        self._stream.seek(self._start + self._position)
        count = self._stream.readinto(view[:wanted])
        self._position += count
        return int(count)

    def close(self) -> None:
        self._stream.close()
        super().close()
