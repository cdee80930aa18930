"""H5 files: those of every tf.keras, of Keras 3, and ours; a whole model, or its weights alone."""

from typing import Any, Dict, Iterator, List, Mapping, Optional, Set, Tuple

from .. import _untrusted_hdf5
from .._untrusted_hdf5 import H5
from ..keras import _native_skip_behavior
from ..keras._slot_names import KERAS_3_STATE, inner_class, owner_and_slot, scalar_named
from ..training_state import Contents, Value, Writer
from . import _keras_weights_h5
from .npz import json_record, take_record

RECORD = "scalekeeper"  # what ours adds: an attribute of the root


def read(path: str) -> Contents:
    """What an H5 file holds. Its arrays stay there until they are asked for."""
    source = H5.at(path)
    with source.opened() as file:
        version = _version(file)
        training = _untrusted_hdf5.json_object(file, "training_config") or {}
        optimizer_config = training.pop("optimizer_config", None)
        contents = Contents(
            Writer("h5", keras=version),
            model_config=_untrusted_hdf5.json_object(file, "model_config"),
            training_config=training or None,
            optimizer_config=optimizer_config,
            skipped_steps=_native_skip_behavior.of_keras(version),
        )
        if _is_weight_store(file):
            _keras_weights_h5.take(contents, source, file, None)
        else:
            contents.variables = dict(_variables(source, file))
            _take_optimizer(contents, source, file)
        take_added_slots(contents, source, file)
        record = json_record(_untrusted_hdf5.text(file, RECORD), path)
    if record is not None:
        take_record(contents, record)
    return contents


def take_added_slots(contents: Contents, source: H5, file: Any) -> None:
    """The slots that ours has written where Keras writes none."""
    group = _untrusted_hdf5.subgroup(file, _keras_weights_h5.ADDED_SLOTS)
    for name, dataset in _untrusted_hdf5.datasets(group) if group is not None else ():
        owner, _, slot = name.rpartition("/")
        contents.slots.setdefault(owner, {})[slot] = source.value(dataset)


def _version(file: Any) -> Optional[str]:
    """In a file of weights alone it stands with them; and some versions have it in both places."""
    for group in (file, _untrusted_hdf5.subgroup(file, "model_weights")):
        if group is not None and "keras_version" in group.attrs:
            return _untrusted_hdf5.text(group, "keras_version")
    return None


def _is_weight_store(file: Any) -> bool:
    """Whether it is a ``.weights.h5`` as it lies in a ``.keras`` file, with another layout."""
    is_known = "model_config" in file.attrs or "model_weights" in file or _untrusted_hdf5.texts(file, "layer_names")
    return not is_known and _keras_weights_h5.is_one(file)


def _variables(source: H5, file: Any) -> Iterator[Tuple[str, Value]]:
    """Owner and value, in the order of the model's layers."""
    group = _untrusted_hdf5.subgroup(file, "model_weights")
    group = file if group is None else group
    layers = _untrusted_hdf5.texts(group, "layer_names")
    if layers is None:
        raise source.broken("it holds no layers, so Keras did not write it as a model or its weights")
    taken: Set[str] = set()
    for layer in dict.fromkeys([*layers, "top_level_model_weights"]):
        of_layer = _untrusted_hdf5.subgroup(group, layer)
        for name in _untrusted_hdf5.texts(of_layer, "weight_names") or () if of_layer is not None else ():
            owner = _without_output(name)
            owner = owner if owner not in taken else f"{owner}#{len(taken)}"  # layers may all call theirs "kernel"
            taken.add(owner)
            yield owner, source.value(_untrusted_hdf5.member(of_layer, name))


def _take_optimizer(contents: Contents, source: H5, file: Any) -> None:
    """Tell the optimizer's variables apart by their names."""
    group = _untrusted_hdf5.subgroup(file, "optimizer_weights")
    names = _untrusted_hdf5.texts(group, "weight_names") if group is not None else None
    values = {_without_output(name): source.value(_untrusted_hdf5.member(group, name)) for name in names or ()}
    class_name = inner_class(contents.optimizer_config)
    others: Dict[str, Value] = {}
    for name, value in values.items():
        found = owner_and_slot(name, class_name, contents.variables)
        if found is None:
            others[name] = value
        else:
            contents.slots.setdefault(found[0], {})[found[1]] = value
    _take_scalars(contents, others, class_name)


def _take_scalars(contents: Contents, values: Mapping[str, Value], class_name: Optional[str]) -> None:
    """Iterations, learning rate, loss scale. In Keras 3, a LossScaleOptimizer's own come before the inner one's."""
    counters = [name for name in values if name.split("/")[-1] in ("iter", "iteration")]
    scopes = [_scope(name) for name in counters]
    if counters:
        contents.iterations = values[counters[-1]].whole_number()
        rate = values.get(f"{scopes[-1]}learning_rate")
        contents.learning_rate = None if rate is None else float(rate.number())
    known: List[str] = [*counters, *(f"{scope}learning_rate" for scope in scopes)]
    for name, value in values.items():
        if name in known:
            continue
        if len(scopes) > 1 and _scope(name) == scopes[0] and value.shape == ():
            last = name.split("/")[-1]
            contents.loss_scale_state[KERAS_3_STATE.get(last, last)] = value.number()
        else:
            contents.scalars[scalar_named(name, class_name)] = value


def _scope(name: str) -> str:
    return name[: len(name) - len(name.split("/")[-1])]


def _without_output(name: str) -> str:
    return name.split(":")[0]
