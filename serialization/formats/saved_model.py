"""SavedModels: a folder with ``saved_model.pb``, variables as a checkpoint, and from TF 2.5 on Keras's metadata."""

from typing import Any, Dict, Mapping, NamedTuple, Optional

import dataclasses
import json
import os

import numpy as np

from ...registry.errors import UnreadableFileError
from .._file_resources import parse_json
from .._keras_introspection import keeps_policies
from ..keras._optimizer_config import inner_class
from ..keras.profile import profile_of_package, skipped_steps_of_keras
from ..keras.target import ConversionTarget, conversion_target
from ..training_state import TrainingState, Value, Writer, parse_record, record_of, state_dict_of, take_record
from . import ConversionRequest, WholeModelFormat, WritePlan, checkpoint, npz
from ._wire_format import all_of, fields, last_of, text

RECORD = os.path.join("assets.extra", "scalekeeper.json")  # the file that scalekeeper adds
_ARRAYS = os.path.join("assets.extra", "scalekeeper.npz")  # another one, if the variables do not hold the whole state
_GRAPH, _METADATA = "saved_model.pb", "keras_metadata.pb"


class SavedModelFormat(WholeModelFormat):
    """The codec of SavedModels."""

    name = "saved_model"
    title = "SavedModel"
    phrase = "a SavedModel"
    label = "SavedModel"
    is_folder = True
    run_files = ("model",)

    def matches(self, path: str) -> bool:
        return os.path.isdir(path) and os.path.exists(os.path.join(path, _GRAPH))

    def read(self, path: str, class_name: Optional[str] = None) -> TrainingState:
        return read(path)

    def checkpoint_prefix(self, path: str) -> Optional[str]:
        return os.path.join(path, "variables", "variables")

    def describe(self, state: TrainingState) -> str:
        return self.title + (" that was exported, not saved by Keras" if state.model_config is None else "")

    def add_state(self, path: str, state: TrainingState) -> None:
        record = os.path.join(path, RECORD)
        os.makedirs(os.path.dirname(record), exist_ok=True)
        with open(record, "w", encoding="utf-8") as stream:
            json.dump(record_of(dataclasses.replace(state, listed=[])), stream)
        if not _holds(read(path), state):
            npz.write_state(os.path.join(path, _ARRAYS), state_dict_of(state))

    def obstacle(self, target: ConversionTarget) -> Optional[str]:
        if not target.keras.profile.saves_trainable_saved_models:
            return f"{target.keras} writes no SavedModels that can be trained further: choose .keras"
        if target.target != conversion_target().target:
            return (
                "a SavedModel contains graphs, which only the TensorFlow that it is for can make: install "
                f"{target.keras}, or choose .h5 or a checkpoint"
            )
        return None

    def plan(self, request: ConversionRequest) -> WritePlan:
        dropped = request.dropped_by_plain_keras(self._not_read_by_plain_keras(request))
        return WritePlan(dropped, lambda path: self._write(path, request))

    def _write(self, path: str, request: ConversionRequest) -> None:
        from ..models import compile_with_state, save_model

        source = request.source
        state = source.codec.read(source.path)
        compile_with_state(source.model, source.path, state, request.make_optimizer, request.custom_objects)
        if request.target.is_plain:
            source.model.save(path)
        else:
            save_model(source.model, path)

    def can_save(self, keras: Any, *, mixed_precision: bool = False) -> bool:
        # Keras 3 exports SavedModels that cannot be trained, and TF 2.0 cannot write layers that compute in float16
        can_save = profile_of_package(keras).saves_trainable_saved_models
        return can_save and (not mixed_precision or keeps_policies(keras))


CODEC = SavedModelFormat()


def read(path: str) -> TrainingState:
    """Return what a SavedModel holds. Arrays stay in its files until they are read."""
    description = _description(path)
    training = description.metadata.get("training_config")
    training = dict(training) if isinstance(training, Mapping) else {}
    optimizer_config = training.pop("optimizer_config", None)
    prefix = os.path.join(path, "variables", "variables")
    if os.path.exists(prefix + ".index"):
        state = checkpoint.read(prefix, inner_class(optimizer_config))
    else:
        state = TrainingState(Writer("saved_model"))
    version = description.metadata.get("keras_version")
    state.writer = Writer("saved_model", keras=version, tensorflow=description.tensorflow)
    state.model_config = _model_config(description.metadata)
    state.training_config = training or None
    state.optimizer_config = optimizer_config
    if state.skipped_steps is None:
        state.skipped_steps = skipped_steps_of_keras(version)
    if not description.metadata:
        state.notes.append("The model was exported, not saved: Keras has left no description of it.")
    added = os.path.join(path, RECORD)
    record = parse_record(_bytes(added).decode("utf-8", "replace"), added) if os.path.exists(added) else None
    if record is not None:
        take_record(state, record)
    arrays = os.path.join(path, _ARRAYS)
    if os.path.exists(arrays):
        added_state = npz.read(arrays)
        state.slots, state.scalars, state.owners = added_state.slots, added_state.scalars, added_state.owners
    return state


def _holds(found: TrainingState, state: TrainingState) -> bool:
    """Return whether all arrays of a state were found, each under its name."""
    slots = {(owner, name): value for owner, each in state.slots.items() for name, value in each.items()}
    arrays = {name: value for name, value in state.scalars.items() if value.shape != ()}
    return (
        {(owner, name) for owner, each in found.slots.items() for name in each} == slots.keys()
        and arrays.keys() <= found.scalars.keys()
        and all(_is_equal(found.slots[owner][name], value) for (owner, name), value in slots.items())
        and all(_is_equal(found.scalars[name], value) for name, value in arrays.items())
    )


def _is_equal(one: Value, other: Value) -> bool:
    return one.shape == other.shape and np.asarray(one.read()).tobytes() == np.asarray(other.read()).tobytes()


class _Description(NamedTuple):
    metadata: Dict[str, Any]  # Keras's description of the model; empty if there is none
    tensorflow: Optional[str]


def _description(path: str) -> _Description:
    graph = _bytes(os.path.join(path, _GRAPH))
    separate = os.path.join(path, _METADATA)
    try:
        meta_graph = last_of(graph, 2, b"")
        if not len(meta_graph):
            raise ValueError("it has no graph")
        version = text(last_of(last_of(meta_graph, 1, b""), 5, b"")) or None
        found = _separate_metadata(_bytes(separate)) if os.path.exists(separate) else _metadata_in_graph(meta_graph)
        metadata = parse_json(found) if found else {}
    except (ValueError, TypeError) as error:
        raise UnreadableFileError(f"{path}: not a readable SavedModel, or truncated: {error}") from error
    return _Description(metadata if isinstance(metadata, dict) else {}, version)


def _separate_metadata(data: bytes) -> str:
    """Return the metadata of the root in a ``SavedMetadata`` message."""
    for node in all_of(data, 1):
        inside = dict(fields(node))
        if text(inside.get(3, b"")) == "root":
            return text(inside.get(5, b""))
    return ""


def _metadata_in_graph(meta_graph: Any) -> str:
    """Return the metadata of the root in the ``object_graph_def`` of a ``MetaGraphDef``, up to TF 2.4."""
    nodes = all_of(last_of(meta_graph, 7, b""), 1)
    user_object = last_of(nodes[0], 4, b"") if nodes else b""
    return text(last_of(user_object, 3, b""))


def _model_config(metadata: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
    """Return class and configuration of the model; of a subclassed model, Keras may store the class only."""
    config = metadata.get("model_config")
    if isinstance(config, dict):
        return config
    if isinstance(metadata.get("config"), dict) and "class_name" in metadata:
        return {"class_name": metadata["class_name"], "config": metadata["config"]}
    return None


def _bytes(path: str) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()
