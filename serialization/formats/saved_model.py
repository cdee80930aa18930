"""SavedModels: a folder with ``saved_model.pb``, variables as a checkpoint, and from 2.5 on Keras's own metadata."""

from typing import Any, Dict, Mapping, NamedTuple, Optional

import os

from ...registry.errors import UnreadableFileError
from .._json_text import parsed
from ..keras import _native_skip_behavior
from ..keras._slot_names import inner_class
from ..training_state import Contents, Writer
from . import checkpoint
from ._wire_format import all_of, fields, last_of, text
from .npz import json_record, take_record

RECORD = os.path.join("assets.extra", "scalekeeper.json")  # the file that ours adds


def read(path: str) -> Contents:
    """What a SavedModel holds. Its arrays stay there until they are asked for."""
    described = _described(path)
    training = described.metadata.get("training_config")
    training = dict(training) if isinstance(training, Mapping) else {}
    optimizer_config = training.pop("optimizer_config", None)
    prefix = os.path.join(path, "variables", "variables")
    if os.path.exists(prefix + ".index"):
        contents = checkpoint.read(prefix, inner_class(optimizer_config))
    else:
        contents = Contents(Writer("saved_model"))
    version = described.metadata.get("keras_version")
    contents.writer = Writer("saved_model", keras=version, tensorflow=described.tensorflow)
    contents.model_config = _model_config(described.metadata)
    contents.training_config = training or None
    contents.optimizer_config = optimizer_config
    if contents.skipped_steps is None:
        contents.skipped_steps = _native_skip_behavior.of_keras(version)
    if not described.metadata:
        contents.notes.append("Keras has left no description of the model: it was exported, not saved.")
    record = _record(path)
    if record is not None:
        take_record(contents, record)
    return contents


class _Described(NamedTuple):
    metadata: Dict[str, Any]  # what Keras says of the model; empty if it says nothing
    tensorflow: Optional[str]


def _described(path: str) -> _Described:
    """What the two files say that describe a model."""
    graph = _bytes(os.path.join(path, "saved_model.pb"))
    apart = os.path.join(path, "keras_metadata.pb")
    try:
        meta_graph = last_of(graph, 2, b"")
        if not len(meta_graph):
            raise ValueError("no graph is in it")
        version = text(last_of(last_of(meta_graph, 1, b""), 5, b"")) or None
        found = _metadata_apart(_bytes(apart)) if os.path.exists(apart) else _metadata_in_graph(meta_graph)
        metadata = parsed(found) if found else {}
    except (ValueError, TypeError) as error:
        raise UnreadableFileError(f"{path}: not a SavedModel that can be read, or cut off: {error}") from error
    return _Described(metadata if isinstance(metadata, dict) else {}, version)


def _metadata_apart(data: bytes) -> str:
    """Of the root, in a message ``SavedMetadata``."""
    for node in all_of(data, 1):
        inside = dict(fields(node))
        if text(inside.get(3, b"")) == "root":
            return text(inside.get(5, b""))
    return ""


def _metadata_in_graph(meta_graph: Any) -> str:
    """Of the root, in the ``object_graph_def`` of a ``MetaGraphDef``: up to 2.4."""
    nodes = all_of(last_of(meta_graph, 7, b""), 1)
    user_object = last_of(nodes[0], 4, b"") if nodes else b""
    return text(last_of(user_object, 3, b""))


def _model_config(metadata: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
    """Class and configuration; of a model that is a class of one's own, Keras knows no more than the class."""
    config = metadata.get("model_config")
    if isinstance(config, dict):
        return config
    if isinstance(metadata.get("config"), dict) and "class_name" in metadata:
        return {"class_name": metadata["class_name"], "config": metadata["config"]}
    return None


def _record(path: str) -> Any:
    place = os.path.join(path, RECORD)
    return json_record(_bytes(place).decode("utf-8", "replace"), place) if os.path.exists(place) else None


def _bytes(path: str) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()
