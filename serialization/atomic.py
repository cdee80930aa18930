"""Files and folders that are either the old ones or the new ones, whenever the process is killed."""

from typing import Iterator, List, Tuple

import contextlib
import ctypes
import glob
import os
import shutil
import tempfile

_EXCHANGE = 2  # Linux's renameat2: swap two paths in one step
_AT_CURRENT_FOLDER = -100


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
    """A path beside this one, with the same ending, that takes its place when the block ends without an error.

    What is written there may be a file or a folder.
    """
    path = os.path.abspath(path)
    folder, name = os.path.split(path)
    os.makedirs(folder, exist_ok=True)
    beside = tempfile.mkdtemp(prefix=".saving-", dir=folder)
    try:
        temporary = os.path.join(beside, name)
        yield temporary
        _reach_the_disk(temporary)
        _replace(temporary, path)
        _reach_the_disk(folder, deep=False)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


@contextlib.contextmanager
def replacing_checkpoint(prefix: str) -> Iterator[Tuple[str, int]]:
    """The same for a checkpoint, whose files begin with a prefix: the new prefix, and in how many pieces to write it.

    The index names the pieces: it is moved last, and their number differs from that of the old ones. So there are the
    old files whole, or the new ones.
    """
    prefix = os.path.abspath(prefix)
    folder, name = os.path.split(prefix)
    os.makedirs(folder, exist_ok=True)
    beside = tempfile.mkdtemp(prefix=".saving-", dir=folder)
    old = _pieces(prefix)
    try:
        temporary = os.path.join(beside, name)
        yield temporary, 2 if any(each.endswith("-of-00001") for each in old) else 1
        new = _pieces(temporary)
        for path in [*new, temporary + ".index"]:
            _reach_the_disk(path)
            os.replace(path, os.path.join(folder, os.path.basename(path)))
        _reach_the_disk(folder, deep=False)
        for path in old:
            os.remove(path)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _pieces(prefix: str) -> List[str]:
    return sorted(glob.glob(glob.escape(prefix) + ".data-?????-of-?????"))


def _replace(new: str, old: str) -> None:
    if not os.path.lexists(old) or not (os.path.isdir(new) or os.path.isdir(old)):
        os.replace(new, old)
    elif not _exchanged(new, old):  # no system call for it: for a moment, the old folder is only beside
        aside = new + ".old"
        os.rename(old, aside)
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
