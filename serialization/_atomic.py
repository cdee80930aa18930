"""Atomic replacement of files and folders: a killed process leaves the old version or the new one."""

from typing import Iterator, List, Optional, Tuple

import contextlib
import ctypes
import glob
import os
import shutil
import tempfile

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

_PREFIX = ".scalekeeper-saving-"  # of temporary folders, which are created beside the destination
_LOCK = "lock"  # in a temporary folder: a file that its process locks as long as it lives
_NEW = "new"  # in a temporary folder: a folder for the new version, so that it may have any name
_ASIDE = ".put-aside"  # the ending of an old folder that was renamed before it is deleted
_EXCHANGE = 2  # flag of Linux's renameat2: swap two paths
_AT_CURRENT_FOLDER = -100


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
    """Yield a temporary path of the same name; it replaces the file or folder if the block ends without an error."""
    path = os.path.abspath(path)
    folder, name = os.path.split(path)
    with _folder_in(folder) as beside:
        temporary = os.path.join(beside, name)
        yield temporary
        _flush(temporary)
        _replace(temporary, path)
        _flush(folder, deep=False)


@contextlib.contextmanager
def replacing_checkpoint(prefix: str) -> Iterator[Tuple[str, int]]:
    """Yield a temporary prefix for a checkpoint, and the number of data files to write.

    The index names the data files. It is moved last, and the number of new data files differs from that of the old
    ones, so either the old checkpoint is complete or the new one.
    """
    prefix = os.path.abspath(prefix)
    folder, name = os.path.split(prefix)
    old = _pieces(prefix)
    with _folder_in(folder) as beside:
        temporary = os.path.join(beside, name)
        yield temporary, 2 if any(each.endswith("-of-00001") for each in old) else 1
        new = _pieces(temporary)
        for path in [*new, temporary + ".index"]:
            _flush(path)
            os.replace(path, os.path.join(folder, os.path.basename(path)))
        _flush(folder, deep=False)
        for path in old:
            os.remove(path)


@contextlib.contextmanager
def _folder_in(folder: str) -> Iterator[str]:
    """Yield a new temporary folder inside a folder. Temporary folders of killed processes are removed first."""
    os.makedirs(folder, exist_ok=True)
    beside, lock = _locked_folder(folder)
    try:
        _clear(folder, os.path.join(beside, "cleared"))
        new = os.path.join(beside, _NEW)
        os.mkdir(new)
        yield new
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _locked_folder(folder: str) -> Tuple[str, Optional[int]]:
    """Return a new temporary folder and its lock, which proves that its process lives; None if there are no locks."""
    while True:
        beside = tempfile.mkdtemp(prefix=_PREFIX, dir=folder)
        lock = _lock(beside, wait=True)
        if os.path.exists(beside if lock is None else os.path.join(beside, _LOCK)):
            return beside, lock
        if lock is not None:  # another process found the folder before it was locked, and removed it
            os.close(lock)


def _lock(beside: str, wait: bool) -> Optional[int]:
    """Return the lock of a temporary folder, held until it is closed; None if a living process holds it."""
    if fcntl is None:
        return None
    try:
        descriptor = os.open(os.path.join(beside, _LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _clear(folder: str, trash: str) -> None:
    """Remove the temporary folders of killed processes: a lock always ends with its process."""
    for left in glob.glob(os.path.join(glob.escape(folder), _PREFIX + "*")):
        lock = _lock(left, wait=False)
        if lock is None:
            continue
        try:
            if not _holds_what_is_missing(left, folder):
                # moved first: if its process lives after all, it fails instead of finding some of its files gone
                os.rename(left, trash)
                shutil.rmtree(trash, ignore_errors=True)
        except OSError:  # another process was faster
            pass
        finally:
            os.close(lock)


def _holds_what_is_missing(left: str, folder: str) -> bool:
    """Return whether a process was killed after it moved the old folder away and before it moved the new one in."""
    new = os.path.join(left, _NEW)
    aside = [name for name in (os.listdir(new) if os.path.isdir(new) else ()) if name.endswith(_ASIDE)]
    return any(not os.path.lexists(os.path.join(folder, name[: -len(_ASIDE)])) for name in aside)


def _pieces(prefix: str) -> List[str]:
    return sorted(glob.glob(glob.escape(prefix) + ".data-?????-of-?????"))


def _replace(new: str, old: str) -> None:
    if not os.path.lexists(old) or not (os.path.isdir(new) or os.path.isdir(old)):
        os.replace(new, old)
    elif not _exchanged(new, old):  # without the system call, there is no folder for a moment
        os.rename(old, new + _ASIDE)
        os.rename(new, old)


def _exchanged(one: str, other: str) -> bool:
    """Swap two paths in one step, which replacing a non-empty folder needs; return whether it was possible."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if os.name == "posix" else None
    if rename is None:
        return False
    paths = os.fsencode(one), os.fsencode(other)
    return bool(rename(_AT_CURRENT_FOLDER, paths[0], _AT_CURRENT_FOLDER, paths[1], _EXCHANGE) == 0)


def _flush(path: str, deep: bool = True) -> None:
    """Flush a file or folder to the disk, before its name is moved."""
    if os.path.isdir(path) and deep:
        for entry in os.listdir(path):
            _flush(os.path.join(path, entry))
    if os.path.isdir(path) and os.name != "posix":
        return  # Windows cannot open folders
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
