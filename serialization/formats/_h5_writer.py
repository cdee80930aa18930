"""Write an H5 model as the Keras of a target writes it, which need not be the installed one."""

from typing import Any, Dict, Iterator, List, Sequence, Tuple

import json

import h5py
import numpy as np

from .._conversion.model_payload import Parcel
from .._variable_matching import owners_of
from ..keras._optimizer_config import KERAS_3, LEGACY
from ..keras._slot_names import words_of
from ..keras._slot_order import ordered
from ..models import add_record_to_h5

_LARGEST_ATTRIBUTE = 64000  # bytes; HDF5 has no room for more

Named = Tuple[str, Any]  # a variable's name, and its value


def write(path: str, parcel: Parcel) -> None:
    """Write a new file."""
    version = parcel.aim.keras
    training = {**parcel.training_config, "optimizer_config": _without_module(parcel.said.config)}
    with h5py.File(path, "w") as file:
        _set_text(file, "keras_version", version)
        _set_text(file, "backend", "tensorflow")
        _set_text(file, "model_config", json.dumps(parcel.model_config))
        _set_text(file, "training_config", json.dumps(training))
        weights = file.create_group("model_weights")
        _set_text(weights, "keras_version", version)
        _set_text(weights, "backend", "tensorflow")
        _set_texts(weights, "layer_names", [layer.name for layer in parcel.model.layers])
        for layer in parcel.model.layers:
            _write_variables(weights.create_group(layer.name), list(_of_layer(layer, parcel)))
        if parcel.has_state:
            _write_variables(file.create_group("optimizer_weights"), list(_of_optimizer(parcel)))
    if not parcel.aim.is_plain:
        add_record_to_h5(path, parcel.state)


def _without_module(config: Dict[str, Any]) -> Dict[str, Any]:
    return {name: value for name, value in config.items() if name not in ("module", "registered_name")}


def _of_layer(layer: Any, parcel: Parcel) -> Iterator[Named]:
    """Trainable ones first, as every Keras does."""
    variables = [*layer.trainable_weights, *layer.non_trainable_weights]
    for owner, variable in zip(owners_of(variables), variables):
        yield f"{owner}{_output(parcel)}", variable.numpy()


def _of_optimizer(parcel: Parcel) -> Iterator[Named]:
    """In the order in which the target's optimizer lists them."""
    state, class_name, family = parcel.state, parcel.class_name, parcel.said.family
    places = ordered(state.slots, class_name, family, list(state.owners))
    iterations = np.int64(state.iterations or 0)
    scalars = [(name, value.read()) for name, value in state.scalars.items()]
    if family == LEGACY:
        yield f"{class_name}/iter:0", iterations
        for name, value in scalars:
            yield f"{class_name}/{name}:0", value
        for owner, slot in places:
            yield f"{class_name}/{owner}/{slot}:0", state.slots[owner][slot].read()
    elif family == KERAS_3:
        yield from _of_keras_3(parcel, iterations, scalars, places)
    else:
        yield "iteration:0", iterations
        for owner, slot in places:
            yield f"{words_of(slot, class_name)[0]}/{owner}:0", state.slots[owner][slot].read()
        for name, value in scalars:
            yield f"{name}:0", value


def _of_keras_3(
    parcel: Parcel, iterations: Any, scalars: Sequence[Named], places: Sequence[Tuple[str, str]]
) -> Iterator[Named]:
    state, name, prefix = parcel.state, parcel.class_name.lower(), ""
    if parcel.said.has_wrapper:
        prefix = "loss_scale_optimizer/"
        yield prefix + "iteration", np.int64(0)
        yield prefix + "learning_rate", np.float32(0)
        yield prefix + "step_counter", np.int64(state.loss_scale_state.get("good_steps", 0))
        yield prefix + "dynamic_scale", np.float32(parcel.scale)
    yield f"{name}/iteration", iterations
    if parcel.learning_rate is not None:
        yield f"{name}/learning_rate", np.float32(parcel.learning_rate)
    for owner, slot in places:
        word = words_of(slot, parcel.class_name)[1]
        yield f"{prefix}{name}/{owner.replace('/', '_')}_{word}", state.slots[owner][slot].read()
    for scalar, value in scalars:
        yield f"{name}/{scalar}", value


def _output(parcel: Parcel) -> str:
    """Keras 2 has the number of an output after a variable's name."""
    return "" if parcel.aim.is_keras_3 else ":0"


def _write_variables(group: Any, variables: Sequence[Named]) -> None:
    _set_texts(group, "weight_names", [name for name, _ in variables])
    for name, value in variables:
        group[name] = value


def _set_text(group: Any, name: str, text: str) -> None:
    group.attrs[name] = text.encode("utf-8")  # of any length; what older versions decode


def _set_texts(group: Any, name: str, texts: Sequence[str]) -> None:
    """A list of strings; one that is too long for an attribute is cut into name0, name1, …"""
    data = [text.encode("utf-8") for text in texts]
    width = max(map(len, data), default=1)
    most = max(1, _LARGEST_ATTRIBUTE // width)
    pieces = [data[start : start + most] for start in range(0, len(data), most)] or [[]]
    named: Dict[str, List[bytes]] = (
        {name: pieces[0]} if len(pieces) == 1 else {f"{name}{number}": each for number, each in enumerate(pieces)}
    )
    for key, piece in named.items():
        group.attrs[key] = np.array(piece, dtype=f"S{width}")
