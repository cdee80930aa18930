"""Which kind of file a path is, and what it holds."""

from typing import Any, Dict, Optional

import importlib
import os
import zipfile

from ...registry.errors import UnreadableFileError
from .._zip_members import readable
from ..training_state import Contents
from .config_json import config_in

DOCUMENT = "document"
_HDF5 = b"\x89HDF\r\n\x1a\n"
# format → the module that reads it
_READERS = {
    "h5": "h5",
    "keras": "keras_zip",
    "npz": "npz",
    "saved_model": "saved_model",
    "checkpoint": "checkpoint",
    "config": "config_json",
}


def read(path: Any, class_name: Optional[str] = None) -> Contents:
    """What a file holds, whoever wrote it. A checkpoint does not say the inner optimizer's class: the caller may."""
    kind = format_of(path)
    if kind == DOCUMENT:
        raise UnreadableFileError(
            f"{path}: neither HDF5 nor a .keras file nor an .npz file nor a configuration: nothing of it is known"
        )
    reader: Any = importlib.import_module("." + _READERS[kind], __package__).read
    contents: Contents = reader(os.fspath(path), class_name) if kind == "checkpoint" else reader(os.fspath(path))
    return contents


def format_of(path: Any) -> str:
    """``h5``, ``keras``, ``npz``, ``saved_model``, ``checkpoint``, ``config``: by what is there, not by its name.

    Any other text may be a ``document``.
    """
    path = os.fspath(path)
    if os.path.isdir(path):
        if os.path.exists(os.path.join(path, "saved_model.pb")):
            return "saved_model"
        return "checkpoint"
    if os.path.isfile(path) and not path.endswith(".index"):
        if is_h5(path):
            return "h5"
        if zipfile.is_zipfile(path):
            return _kind_of_zip(path)
        if _is_text(path):
            return DOCUMENT if config_in(path) is None else "config"
        raise UnreadableFileError(f"{path}: neither HDF5 nor a .keras file nor an .npz file: nothing of it is known")
    if os.path.exists(path + ".index") or path.endswith(".index"):
        return "checkpoint"
    raise FileNotFoundError(f"{path}: no such file, SavedModel or checkpoint")


def is_h5(path: str) -> bool:
    """Whether a file begins as HDF5 does."""
    with open(path, "rb") as stream:
        return stream.read(len(_HDF5)) == _HDF5


def _is_text(path: str) -> bool:
    with open(path, "rb") as stream:
        return b"\0" not in stream.read(4096)


def _kind_of_zip(path: str) -> str:
    with readable(path), zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
    kinds: Dict[str, str] = {"config.json": "keras", "record.npy": "npz"}
    for name, kind in kinds.items():
        if name in names:
            return kind
    raise UnreadableFileError(f"{path}: a zip file without a config.json of Keras or a record of scalekeeper")
