"""``.keras`` files: of 2.12 to 2.15, tf_keras, Keras 3, and ours. Before 2.12, Keras writes H5 under that name."""

from typing import Any

import zipfile

import h5py

from ...registry.errors import UnreadableFileError
from .._untrusted_hdf5 import H5
from .._zip_members import json_member, opened_member, readable
from ..keras import _native_skip_behavior
from ..training_state import Contents, Writer
from . import _keras_weights_h5, h5
from .detection import is_h5
from .npz import take_record

METADATA, WEIGHTS = "metadata.json", "model.weights.h5"
RECORD = "scalekeeper"  # what ours adds to the metadata; slots, if need be, are added to the weights


def read(path: str) -> Contents:
    """What a ``.keras`` file holds. Its arrays stay there until they are asked for."""
    if is_h5(path):
        return h5.read(path)
    with readable(path, "a .keras file"), zipfile.ZipFile(path) as archive:
        config = json_member(archive, "config.json", path)
        metadata = json_member(archive, METADATA, path) or {}
        members = set(archive.namelist())
        if config is None or WEIGHTS not in members:
            raise UnreadableFileError(f"{path}: a zip file without config.json and {WEIGHTS}: Keras did not write it")
        training = config.pop("compile_config", None)
        training = training if isinstance(training, dict) else {}
        version = metadata.get("keras_version")
        version = version if isinstance(version, str) else None
        contents = Contents(
            Writer("keras", keras=version),
            model_config=config,
            optimizer_config=training.pop("optimizer", None),
            training_config=training or None,
            skipped_steps=_native_skip_behavior.of_keras(version),
        )
    source = h5_member(path, WEIGHTS)
    with source.opened() as file:
        _keras_weights_h5.take(contents, source, file, config)
        h5.take_added_slots(contents, source, file)
    if RECORD in metadata:
        take_record(contents, metadata[RECORD])
    return contents


def h5_member(path: str, name: str) -> H5:
    """An HDF5 file that is a member of the zip file at a path."""
    return H5(f"{path}: {name}", lambda: _H5Stream(opened_member(path, name)))


class _H5Stream(h5py.File):  # type: ignore[misc]
    """An HDF5 file in a stream, which is closed with it."""

    def __init__(self, stream: Any) -> None:
        self._own_stream = stream
        try:
            super().__init__(stream, "r")
        except BaseException:
            stream.close()
            raise

    def close(self) -> None:
        super().close()
        self._own_stream.close()
