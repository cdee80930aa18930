"""Files and folders that are either the old ones or the new ones, whenever the process is killed."""

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

_PREFIX = ".scalekeeper-saving-"  # of folders beside a target, in which it is written
_LOCK = "lock"  # in such a folder: a file that its process has locked as long as it lives
_NEW = "new"  # in it as well: a folder, so that a target may have any name
_ASIDE = ".put-aside"  # the ending of an old folder that had to make room
_EXCHANGE = 2  # Linux's renameat2: swap two paths in one step
_AT_CURRENT_FOLDER = -100


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
    """A path beside this one, with the same ending, that takes its place when the block ends without an error.

    What is written there may be a file or a folder.
    """
    path = os.path.abspath(path)
    folder, name = os.path.split(path)
    with _folder_in(folder) as beside:
        temporary = os.path.join(beside, name)
        yield temporary
        _reach_the_disk(temporary)
        _replace(temporary, path)
        _reach_the_disk(folder, deep=False)


@contextlib.contextmanager
def replacing_checkpoint(prefix: str) -> Iterator[Tuple[str, int]]:
    """The same for a checkpoint, whose files begin with a prefix: the new prefix, and in how many pieces to write it.

    The index names the pieces: it is moved last, and their number differs from that of the old ones. So there are the
    old files whole, or the new ones.
    """
    prefix = os.path.abspath(prefix)
    folder, name = os.path.split(prefix)
    old = _pieces(prefix)
    with _folder_in(folder) as beside:
        temporary = os.path.join(beside, name)
        yield temporary, 2 if any(each.endswith("-of-00001") for each in old) else 1
        new = _pieces(temporary)
        for path in [*new, temporary + ".index"]:
            _reach_the_disk(path)
            os.replace(path, os.path.join(folder, os.path.basename(path)))
        _reach_the_disk(folder, deep=False)
        for path in old:
            os.remove(path)


@contextlib.contextmanager
def _folder_in(folder: str) -> Iterator[str]:
    """A new folder in this one, for a while. What killed processes have left of theirs is cleared away first."""
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
    """A new folder, and the lock that tells others that its process lives; None where there are no locks."""
    while True:
        beside = tempfile.mkdtemp(prefix=_PREFIX, dir=folder)
        lock = _lock(beside, wait=True)
        if os.path.exists(beside if lock is None else os.path.join(beside, _LOCK)):
            return beside, lock
        if lock is not None:  # another process found the folder before it was locked, and has cleared it away
            os.close(lock)


def _lock(beside: str, wait: bool) -> Optional[int]:
    """The lock of such a folder, held until it is closed; None if a living process has it, or if it can't be had."""
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


def _clear(folder: str, place: str) -> None:
    """Move to a place, and remove, what belongs to no living process: a lock ends with its process in any case."""
    for left in glob.glob(os.path.join(glob.escape(folder), _PREFIX + "*")):
        lock = _lock(left, wait=False)
        if lock is None:
            continue
        try:
            if not _holds_what_is_missing(left, folder):
                # moved first: should its process live after all, it fails, and does not find its files half gone
                os.rename(left, place)
                shutil.rmtree(place, ignore_errors=True)
        except OSError:  # another process was quicker
            pass
        finally:
            os.close(lock)


def _holds_what_is_missing(left: str, folder: str) -> bool:
    """Whether its process was killed between putting an old folder aside and putting the new one in its place."""
    new = os.path.join(left, _NEW)
    aside = [name for name in (os.listdir(new) if os.path.isdir(new) else ()) if name.endswith(_ASIDE)]
    return any(not os.path.lexists(os.path.join(folder, name[: -len(_ASIDE)])) for name in aside)


def _pieces(prefix: str) -> List[str]:
    return sorted(glob.glob(glob.escape(prefix) + ".data-?????-of-?????"))


def _replace(new: str, old: str) -> None:
    if not os.path.lexists(old) or not (os.path.isdir(new) or os.path.isdir(old)):
        os.replace(new, old)
    elif not _exchanged(new, old):  # no system call for it: for a moment, the old folder is only beside
        os.rename(old, new + _ASIDE)
        os.rename(new, old)


def _exchanged(one: str, other: str) -> bool:
    """Whether the two could be swapped in one step, which a folder that is not empty needs."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if os.name == "posix" else None
    if rename is None:
        return False
    paths = os.fsencode(one), os.fsencode(other)
    return bool(rename(_AT_CURRENT_FOLDER, paths[0], _AT_CURRENT_FOLDER, paths[1], _EXCHANGE) == 0)


def _reach_the_disk(path: str, deep: bool = True) -> None:
    """Have what was written reach the disk: a name that points at data which is not there yet helps nobody."""
    if os.path.isdir(path) and deep:
        for entry in os.listdir(path):
            _reach_the_disk(os.path.join(path, entry))
    if os.path.isdir(path) and os.name != "posix":
        return  # Windows can't open folders
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
