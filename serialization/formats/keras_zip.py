"""``.keras`` files of TF 2.12 to 2.15, tf_keras, Keras 3 and scalekeeper. Before 2.12, Keras writes H5 to that name."""

from typing import Any, List, Optional

import dataclasses
import datetime
import json
import os
import re
import shutil
import zipfile

import h5py

from ...registry.errors import TranslationError, UnreadableFileError
from .._keras_saving import by_scalekeeper, take_record_in_config
from .._loaded_source import ModelPayload
from .._untrusted_hdf5 import H5, require_self_contained
from .._zip_members import has_member, json_member, readable, seekable_member
from ..keras._slots import class_of_name
from ..keras.profile import skipped_steps_of_keras
from ..keras.target import ConversionTarget
from ..training_state import (
    ADDED_SLOTS,
    TrainingState,
    Value,
    Writer,
    fits_list,
    listed_among,
    record_of,
    take_configured_rate,
    take_listed,
    take_record,
)
from . import WholeModelFormat, _keras_weights_h5, h5

CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
RECORD = "scalekeeper"  # the key that scalekeeper adds to the metadata
_NOT_IN_MODEL = ("optimizer", "metrics", ADDED_SLOTS)
_ATTENTION = re.compile(r"_?(query|key|value|output)_dense")  # without the underscore from Keras 3 on


class KerasZipFormat(WholeModelFormat):
    """The codec of ``.keras`` files."""

    name = "keras"
    title = ".keras file"
    phrase = "a .keras file"
    label = ".keras"
    endings = (".keras",)
    run_files = ("model.keras",)
    names_modules = True

    def matches(self, path: str) -> bool:
        return has_member(path, CONFIG)

    def read(self, path: str, class_name: Optional[str] = None) -> TrainingState:
        return read(path)

    def require_self_contained(self, path: str) -> None:
        require_self_contained(h5_member(path, WEIGHTS))

    def add_state(self, path: str, state: TrainingState) -> None:
        add_state(path, state)

    def obstacle(self, target: ConversionTarget) -> Optional[str]:
        if not target.keras.reads_keras_zip:
            return f"{target.keras} does not read .keras files: choose .h5"
        return None

    def write_model(self, path: str, payload: ModelPayload) -> None:
        write(path, payload)

    def is_distinct(self, keras: Any) -> bool:
        return hasattr(keras.Model, "save_own_variables")  # up to TF 2.12, Keras writes H5 files with this ending


CODEC = KerasZipFormat()


# Reading


def read(path: str) -> TrainingState:
    """Return what a ``.keras`` file holds. Arrays stay in the file until they are read."""
    if h5.is_hdf5(path):
        return h5.read(path)
    with readable(path, "a .keras file"), zipfile.ZipFile(path) as archive:
        config = json_member(archive, CONFIG, path)
        metadata = json_member(archive, METADATA, path) or {}
        if config is None or WEIGHTS not in archive.namelist():
            raise UnreadableFileError(f"{path}: a zip file without {CONFIG} and {WEIGHTS}, so Keras did not write it")
        training = config.pop("compile_config", None)
        training = training if isinstance(training, dict) else {}
        optimizer = training.pop("optimizer", None)
        version = metadata.get("keras_version")
        version = version if isinstance(version, str) else None
        state = TrainingState(
            Writer("keras", keras=version),
            model_config=config,
            optimizer_config=optimizer if isinstance(optimizer, dict) else None,
            training_config=training or None,
            skipped_steps=skipped_steps_of_keras(version),
        )
    source = h5_member(path, WEIGHTS)
    with source.opened() as file:
        _keras_weights_h5.take(state, source, file, config)
        values = _keras_weights_h5.optimizer_values(source, file)
        record = metadata.get(RECORD, take_record_in_config(state.optimizer_config, len(values)))
        if record is not None:
            take_record(state, record)
        if state.listed:
            take_listed(state, values, path)
        h5.take_added_slots(state, source, file)
    if isinstance(optimizer, str) and state.optimizer_config is None:  # as it was given to ``compile``
        state.optimizer_config = {"class_name": class_of_name(optimizer), "config": {}}
    take_configured_rate(state)
    return state


def h5_member(path: str, name: str) -> H5:
    """Return the HDF5 file that is a member of the zip file at a path."""
    return H5(f"{path}: {name}", lambda: _H5Stream(seekable_member(path, name)))


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


# Writing


def add_state(path: str, state: TrainingState) -> None:
    """Add record and slots to existing members: some versions cannot read weights beside an unknown member."""
    source = h5_member(path, WEIGHTS)
    with source.opened() as opened:
        values = _keras_weights_h5.optimizer_values(source, opened)
    state = dataclasses.replace(state, listed=state.listed if fits_list(state, values) else [])
    weights, copy = path + ".weights", path + ".copy"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(copy, "w") as new:
        for name in old.namelist():
            with old.open(name) as stream:
                if name == METADATA:
                    new.writestr(name, json.dumps({**json.load(stream), RECORD: record_of(state)}))
                    continue
                with open(weights, "wb") as file:
                    shutil.copyfileobj(stream, file)
            if name == WEIGHTS:
                with h5py.File(weights, "a") as store:
                    h5.add_slots(store, state)
            new.write(weights, name)
    os.remove(weights)
    os.replace(copy, path)


def write(path: str, payload: ModelPayload) -> None:
    """Write a model as the Keras of a target writes it.

    The installed Keras writes the model's weights; they are renamed where the target has other names.
    """
    weights = path + ".weights.h5"
    state = dataclasses.replace(payload.state, listed=[])
    _write_weights(payload.model, path + ".installed.keras", weights)
    with h5py.File(weights, "a") as file:
        for name in _NOT_IN_MODEL:
            file.pop(name, None)
        _rename(file, payload.target)
        if payload.has_state:
            values = _write_optimizer(file, payload)
            state.listed = listed_among(state, values)
            if not payload.target.is_plain:
                h5.add_slots(file, state)
    config = {
        **payload.model_config,
        "compile_config": {**payload.training_config, "optimizer": payload.encoded.config},
    }
    metadata = {
        "keras_version": payload.target.keras.version,
        "date_saved": datetime.datetime.now().strftime("%Y-%m-%d@%H:%M:%S"),
        **({} if payload.target.is_plain else {RECORD: record_of(state)}),
    }
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(METADATA, json.dumps(metadata))
        archive.writestr(CONFIG, json.dumps(config))
        archive.write(weights, WEIGHTS)


def _write_weights(model: Any, path: str, weights: str) -> None:
    with by_scalekeeper():
        model.save(path)
    if not zipfile.is_zipfile(path):
        raise TranslationError(
            "the installed TensorFlow does not write .keras files, which is needed to write one for another: use "
            "TensorFlow 2.13 or newer, or choose .h5"
        )
    with zipfile.ZipFile(path) as archive, archive.open(WEIGHTS) as member, open(weights, "wb") as stream:
        shutil.copyfileobj(member, stream)


def _rename(group: Any, target: ConversionTarget) -> None:
    """Rename, at any depth, what the target names differently."""
    for name in list(group):
        if not isinstance(group[name], h5py.Group):
            continue
        _rename(group[name], target)
        new = _name_on(target, name)
        if new != name:
            group.move(name, new)


def _name_on(target: ConversionTarget, name: str) -> str:
    attention = _ATTENTION.fullmatch(name)
    if attention:
        return f"{target.keras.profile.attention_prefix}{attention.group(1)}_dense"
    if name in _keras_weights_h5.LAYER_GROUPS:
        return target.keras.keras_zip_layers_group
    return name


def _write_optimizer(file: Any, payload: ModelPayload) -> List[Any]:
    """Write numbered variables, and return them; Keras writes none of a legacy optimizer."""
    variables = payload.profile.keras_zip_variables(payload.variables)
    if variables is None:
        return []
    outer, inner = variables
    if payload.encoded.has_wrapper:
        _write_list(file, "optimizer/inner_optimizer/vars", inner)
    _write_list(file, "optimizer/vars", [*outer, *inner])
    return [*outer, *inner]


def _write_list(file: Any, path: str, values: List[Any]) -> None:
    group = file.create_group(path)
    for number, value in enumerate(values):
        group[str(number)] = value.read() if isinstance(value, Value) else value
