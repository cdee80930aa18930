"""Write a ``.keras`` file as the Keras of a target writes it, which need not be the installed one."""

from typing import Any, Iterator, List

import datetime
import json
import re
import shutil
import zipfile

import h5py
import numpy as np

from ...registry.errors import TranslationError
from .._conversion.model_payload import Parcel
from .._conversion.target import Aim
from ..keras._optimizer_config import KERAS_3, LEGACY
from ..keras._slot_order import ordered
from ..models import add_slots
from .keras_zip import METADATA, RECORD, WEIGHTS
from .npz import record_of

FIRST_VERSION = (2, 13)  # before, Keras writes HDF5 under that name
_FIRST_WITH_LAYERS = (2, 15)
_LAYERS, _DEPENDENCIES = "layers", "_layer_checkpoint_dependencies"  # where a model has its layers
_NOT_THE_MODELS = ("optimizer", "metrics", "scalekeeper_slots")
_OF_ATTENTION = re.compile(r"_?(query|key|value|output)_dense")  # without the dash from Keras 3 on


def write(path: str, parcel: Parcel) -> None:
    """Write a new file. The model's own weights are laid out by the installed Keras, and moved to where they belong."""
    weights = path + ".weights.h5"
    _extract(parcel.model, path + ".installed.keras", weights)
    with h5py.File(weights, "a") as file:
        for name in _NOT_THE_MODELS:
            file.pop(name, None)
        _rename(file, parcel.aim)
        if parcel.has_state:
            _write_optimizer(file, parcel)
    configuration = {
        **parcel.model_config,
        "compile_config": {**parcel.training_config, "optimizer": parcel.said.config},
    }
    about = {
        "keras_version": parcel.aim.keras,
        "date_saved": datetime.datetime.now().strftime("%Y-%m-%d@%H:%M:%S"),
        **({} if parcel.aim.is_plain else {RECORD: record_of(parcel.state)}),
    }
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(METADATA, json.dumps(about))
        archive.writestr("config.json", json.dumps(configuration))
        archive.write(weights, WEIGHTS)


def _extract(model: Any, path: str, weights: str) -> None:
    model.save(path)
    if not zipfile.is_zipfile(path):
        raise TranslationError(
            "the installed TensorFlow writes no .keras files, which it takes to write one for another: run this with "
            "TensorFlow 2.13 or newer, or choose .h5"
        )
    with zipfile.ZipFile(path) as archive, archive.open(WEIGHTS) as member, open(weights, "wb") as stream:
        shutil.copyfileobj(member, stream)


def _rename(group: Any, aim: Aim) -> None:
    """What one Keras calls otherwise than another, at any depth."""
    for name in list(group):
        if not isinstance(group[name], h5py.Group):
            continue
        _rename(group[name], aim)
        new = _name(name, aim)
        if new != name:
            group.move(name, new)


def _name(name: str, aim: Aim) -> str:
    attention = _OF_ATTENTION.fullmatch(name)
    if attention:
        return f"{'' if aim.is_keras_3 else '_'}{attention.group(1)}_dense"
    if name in (_LAYERS, _DEPENDENCIES):
        return _LAYERS if aim.target.version >= _FIRST_WITH_LAYERS else _DEPENDENCIES
    return name


def _write_optimizer(file: Any, parcel: Parcel) -> None:
    """Numbered variables; of legacy optimizers Keras writes none."""
    if parcel.said.family == LEGACY:
        if not parcel.aim.is_plain:
            add_slots(file, parcel.state)
        return
    inner = list(_inner(parcel))
    outer: List[Any] = []
    if parcel.said.has_wrapper:
        _write_list(file, "optimizer/inner_optimizer/vars", inner)
        if parcel.said.family == KERAS_3:
            steps = parcel.state.loss_scale_state.get("good_steps", 0)
            outer = [np.int64(0), np.float32(0), np.int64(steps), np.float32(parcel.scale)]
    _write_list(file, "optimizer/vars", [*outer, *inner])


def _inner(parcel: Parcel) -> Iterator[Any]:
    state = parcel.state
    yield np.int64(state.iterations or 0)
    is_keras_3 = parcel.said.family == KERAS_3
    if is_keras_3 and parcel.learning_rate is not None:
        yield np.float32(parcel.learning_rate)
    for owner, slot in ordered(state.slots, parcel.class_name, parcel.said.family, list(state.owners)):
        yield state.slots[owner][slot].read()
    if is_keras_3:  # Keras 2 does not list them
        for value in state.scalars.values():
            yield value.read()


def _write_list(file: Any, path: str, values: List[Any]) -> None:
    group = file.create_group(path)
    for number, value in enumerate(values):
        group[str(number)] = value
