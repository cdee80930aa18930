"""H5 files of every tf.keras, of Keras 3 and of scalekeeper: a whole model, or its weights alone."""

from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import dataclasses
import json
import os

import h5py
import numpy as np

from .. import _untrusted_hdf5
from .._keras_saving import take_record_in_config
from .._loaded_source import ModelPayload
from .._untrusted_hdf5 import H5, require_self_contained
from .._variables import owners_of, values_of
from ..keras._optimizer_config import inner_class
from ..keras._slots import owner_and_slot, scalar_name
from ..keras.profile import profiles, skipped_steps_of_keras
from ..training_state import (
    ADDED_OTHERS,
    ADDED_SLOTS,
    TrainingState,
    Value,
    Writer,
    fits_list,
    has_list,
    listed_among,
    not_listed,
    parse_record,
    record_of,
    take_configured_rate,
    take_listed,
    take_record,
)
from . import WholeModelFormat, _keras_weights_h5

RECORD = "scalekeeper"  # the attribute of the root that scalekeeper adds
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_RECORD_PIECE = 60000  # characters; an HDF5 attribute holds 64 kB
_MAX_ATTRIBUTE = 64000  # bytes

Named = Tuple[str, Any]  # a variable's name and its value


class H5Format(WholeModelFormat):
    """The codec of H5 files."""

    name = "h5"
    title = "H5 file"
    phrase = "an H5 file"
    label = "H5"
    endings = (".h5", ".hdf5")
    run_files = ("model.h5",)

    def matches(self, path: str) -> bool:
        return os.path.isfile(path) and not path.endswith(".index") and is_hdf5(path)

    def read(self, path: str, class_name: Optional[str] = None) -> TrainingState:
        return read(path)

    def require_self_contained(self, path: str) -> None:
        require_self_contained(H5.at(path))

    def describe(self, state: TrainingState) -> str:
        return self.title + (" with a model" if state.model_config else " with weights only")

    def add_state(self, path: str, state: TrainingState) -> None:
        values = optimizer_values(H5.at(path))
        state = dataclasses.replace(state, listed=state.listed if fits_list(state, values) else [])
        add_record(path, state)
        with h5py.File(path, "a") as file:
            add_slots(file, state)

    def write_model(self, path: str, payload: ModelPayload) -> None:
        write(path, payload)


CODEC = H5Format()


def is_hdf5(path: str) -> bool:
    """Return whether a file begins with the signature of HDF5."""
    with open(path, "rb") as stream:
        return stream.read(len(_SIGNATURE)) == _SIGNATURE


# Reading


def read(path: str) -> TrainingState:
    """Return what an H5 file holds. Arrays stay in the file until they are read."""
    source = H5.at(path)
    with source.opened() as file:
        version = _keras_version(file)
        training = _untrusted_hdf5.json_object(file, "training_config") or {}
        optimizer_config = training.pop("optimizer_config", None)
        state = TrainingState(
            Writer("h5", keras=version),
            model_config=_untrusted_hdf5.json_object(file, "model_config"),
            training_config=training or None,
            optimizer_config=optimizer_config,
            skipped_steps=skipped_steps_of_keras(version),
        )
        values: Dict[str, Value] = {}
        if _is_keras_weights_h5(file):
            _keras_weights_h5.take(state, source, file, None)
        else:
            _take_variables(state, source, file)
            values = _optimizer_values(source, file)
        record = parse_record(_untrusted_hdf5.text(file, RECORD), path)
        in_config = take_record_in_config(optimizer_config, len(values))
        record = in_config if record is None else record
        if not has_list(record):
            _take_optimizer(state, values)
        if record is not None:
            take_record(state, record)
        if state.listed:
            take_listed(state, list(values.values()), path)
        take_added_slots(state, source, file)
    take_configured_rate(state)
    return state


def optimizer_values(source: H5) -> List[Value]:
    """Return the variables of the optimizer, as Keras has written them."""
    with source.opened() as file:
        return list(_optimizer_values(source, file).values())


def _optimizer_values(source: H5, file: Any) -> Dict[str, Value]:
    group = _untrusted_hdf5.subgroup(file, "optimizer_weights")
    names = _untrusted_hdf5.texts(group, "weight_names") if group is not None else None
    return {_without_output(name): source.value(_untrusted_hdf5.member(group, name)) for name in names or ()}


def _keras_version(file: Any) -> Optional[str]:
    """Return Keras's version, which is in the root or, in a file of weights, beside the weights."""
    for group in (file, _untrusted_hdf5.subgroup(file, "model_weights")):
        if group is not None and "keras_version" in group.attrs:
            return _untrusted_hdf5.text(group, "keras_version")
    return None


def _is_keras_weights_h5(file: Any) -> bool:
    """Return whether it is a ``.weights.h5`` file with the layout that ``.keras`` files contain."""
    is_model = "model_config" in file.attrs or "model_weights" in file or _untrusted_hdf5.texts(file, "layer_names")
    return not is_model and _keras_weights_h5.has_layout(file)


def _take_variables(state: TrainingState, source: H5, file: Any) -> None:
    """Take the variables, in the order of the model's layers."""
    group = _untrusted_hdf5.subgroup(file, "model_weights")
    group = file if group is None else group
    layers = _untrusted_hdf5.texts(group, "layer_names")
    if layers is None:
        raise source.corrupt("it has no layers, so Keras did not write it as a model or its weights")
    for layer in dict.fromkeys([*layers, "top_level_model_weights"]):
        of_layer = _untrusted_hdf5.subgroup(group, layer)
        for name in _untrusted_hdf5.texts(of_layer, "weight_names") or () if of_layer is not None else ():
            owner = _without_output(name)
            if owner in state.variables:  # layers may all use the name "kernel"
                owner = f"{owner}#{len(state.variables)}"
            state.variables[owner] = source.value(_untrusted_hdf5.member(of_layer, name))
            state.layers.setdefault(layer, []).append(owner)


def _take_optimizer(state: TrainingState, values: Mapping[str, Value]) -> None:
    """Sort the optimizer's variables by their names."""
    class_name = inner_class(state.optimizer_config)
    others: Dict[str, Value] = {}
    for name, value in values.items():
        found = owner_and_slot(name, class_name, state.variables)
        if found is None:
            others[name] = value
        else:
            state.slots.setdefault(found[0], {})[found[1]] = value
    _take_scalars(state, others, class_name)


def _take_scalars(state: TrainingState, values: Mapping[str, Value], class_name: Optional[str]) -> None:
    """Take iterations, learning rate and loss scale. In Keras 3 those of the wrapper come before the inner ones."""
    counters = [name for name in values if name.split("/")[-1] in ("iter", "iteration")]
    scopes = [_scope(name) for name in counters]
    if counters:
        state.iterations = values[counters[-1]].whole_number()
        rate = values.get(f"{scopes[-1]}learning_rate")
        state.learning_rate = None if rate is None else float(rate.number())
    state_names = {name: own for profile in profiles() for name, own in profile.state_names.items()}
    known: List[str] = [*counters, *(f"{scope}learning_rate" for scope in scopes)]
    for name, value in values.items():
        if name in known:
            continue
        if len(scopes) > 1 and _scope(name) == scopes[0] and value.shape == ():
            last = name.split("/")[-1]
            state.loss_scale_state[state_names.get(last, last)] = value.number()
        else:
            state.scalars[scalar_name(name, class_name)] = value


def take_added_slots(state: TrainingState, source: H5, file: Any) -> None:
    """Take the slots that :func:`add_slots` has added."""
    group = _untrusted_hdf5.subgroup(file, ADDED_SLOTS)
    for name, dataset in _untrusted_hdf5.datasets(group) if group is not None else ():
        owner, _, slot = name.rpartition("/")
        if owner == ADDED_OTHERS:
            state.scalars[slot] = source.value(dataset)
        else:
            state.slots.setdefault(owner, {})[slot] = source.value(dataset)


def _scope(name: str) -> str:
    return name[: len(name) - len(name.split("/")[-1])]


def _without_output(name: str) -> str:
    return name.split(":")[0]


# Writing


def add_record(path: str, state: TrainingState) -> None:
    """Add the scalekeeper record as attributes of the root, which Keras ignores."""
    text = json.dumps(record_of(state))
    with h5py.File(path, "a") as file:
        pieces = [text[start : start + _RECORD_PIECE] for start in range(0, len(text), _RECORD_PIECE)]
        for number, piece in enumerate(pieces):
            file.attrs[RECORD if len(pieces) == 1 else f"{RECORD}{number}"] = piece


def add_slots(file: Any, state: TrainingState) -> None:
    """Add the slots and other arrays of a training state that Keras has not written to an open file."""
    slots, others = not_listed(state)
    for owner, each in {**slots, **({ADDED_OTHERS: others} if others else {})}.items():
        for name, value in each.items():
            file[f"{ADDED_SLOTS}/{owner}/{name}"] = value.read()


def write(path: str, payload: ModelPayload) -> None:
    """Write a model as the Keras of a target writes it, which need not be installed."""
    version = payload.target.keras.version
    variables = list(payload.profile.h5_variables(payload.variables)) if payload.has_state else []
    training = {**payload.training_config, "optimizer_config": _without_module(payload.encoded.config)}
    with h5py.File(path, "w") as file:
        _set_text(file, "keras_version", version)
        _set_text(file, "backend", "tensorflow")
        _set_text(file, "model_config", json.dumps(payload.model_config))
        _set_text(file, "training_config", json.dumps(training))
        weights = file.create_group("model_weights")
        _set_text(weights, "keras_version", version)
        _set_text(weights, "backend", "tensorflow")
        _set_texts(weights, "layer_names", [layer.name for layer in payload.model.layers])
        for layer in payload.model.layers:
            _write_variables(weights.create_group(layer.name), list(_layer_variables(layer, payload)))
        if payload.has_state:
            _write_variables(file.create_group("optimizer_weights"), variables)
    if not payload.target.is_plain:
        listed = listed_among(payload.state, [value for _, value in variables])
        add_record(path, dataclasses.replace(payload.state, listed=listed))


def _without_module(config: Dict[str, Any]) -> Dict[str, Any]:
    return {name: value for name, value in config.items() if name not in ("module", "registered_name")}


def _layer_variables(layer: Any, payload: ModelPayload) -> Iterator[Named]:
    """Yield trainable variables first, as every Keras does."""
    variables = [*layer.trainable_weights, *layer.non_trainable_weights]
    suffix = payload.target.keras.profile.variable_suffix
    for owner, value in zip(owners_of(variables), values_of(variables)):
        yield f"{owner}{suffix}", value


def _write_variables(group: Any, variables: Sequence[Named]) -> None:
    _set_texts(group, "weight_names", [name for name, _ in variables])
    for name, value in variables:
        group[name] = value.read() if isinstance(value, Value) else value


def _set_text(group: Any, name: str, text: str) -> None:
    group.attrs[name] = text.encode("utf-8")  # bytes have no length limit, and older versions decode them


def _set_texts(group: Any, name: str, texts: Sequence[str]) -> None:
    """Set a list of strings; one that is too long for an attribute is split into name0, name1, …"""
    data = [text.encode("utf-8") for text in texts]
    width = max(map(len, data), default=1)
    most = max(1, _MAX_ATTRIBUTE // width)
    pieces = [data[start : start + most] for start in range(0, len(data), most)] or [[]]
    named: Dict[str, List[bytes]] = (
        {name: pieces[0]} if len(pieces) == 1 else {f"{name}{number}": each for number, each in enumerate(pieces)}
    )
    for key, piece in named.items():
        group.attrs[key] = np.array(piece, dtype=f"S{width}")
