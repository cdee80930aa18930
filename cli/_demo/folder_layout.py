"""The folder that a demo leaves: what is where in it, and how one is found that nothing is overwritten in."""

import itertools
import os

PICTURE = "loss_scale.png"
UNINTERRUPTED = "uninterrupted"
DEFAULT = "scalekeeper-demo"
BUNDLED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "document.yaml")


def saved_in(folder: str) -> str:
    """Where the files of all formats are."""
    return os.path.join(folder, "saved")


def record_at(folder: str, run: str) -> str:
    """What a run has come to: that of a format, or the uninterrupted one."""
    return os.path.join(folder, "compared", run + ".npz")


def log_at(folder: str, run: str) -> str:
    """What the process of a format said, if it failed."""
    return os.path.join(folder, "compared", run + ".log")


def new_folder() -> str:
    """The name of a folder in the current one that did not exist."""
    for number in itertools.count(1):
        name = DEFAULT if number == 1 else f"{DEFAULT}-{number}"
        try:
            os.mkdir(name)
            return name
        except FileExistsError:
            continue
    raise AssertionError  # numbers do not end


def is_free(folder: str) -> bool:
    """Whether a folder does not exist, or is empty."""
    return not os.path.lexists(folder) or (os.path.isdir(folder) and not os.listdir(folder))


def prepare(folder: str) -> None:
    """Make the places in it."""
    for place in (saved_in(folder), os.path.dirname(record_at(folder, UNINTERRUPTED))):
        os.makedirs(place, exist_ok=True)
