"""The layout of ``model.weights.h5`` in ``.keras`` files, and of ``.weights.h5`` files.

Each object has a group, with its variables numbered in ``vars``. A layer's group is named after its class, with a
number; the layer's name is in the model's configuration and, from Keras 3 on, in ``vars`` too. An optimizer's variables
have no names.
"""

from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import re

import h5py

from .. import _untrusted_hdf5
from .._keras_introspection import all_layers, has_layer_names, is_model
from .._object_paths import KERAS, owners_in_keras_file
from .._untrusted_hdf5 import H5
from .._variable_order import OWN, Position, Step
from ..keras._optimizer_config import inner_config
from ..keras.profile import lists_learning_rate, profiles
from ..training_state import ADDED_SLOTS, TrainingState, Value, Writer

# where models keep their layers: from TF 2.13 on, and in 2.12
LAYER_GROUPS = ("layers", "_layer_checkpoint_dependencies")
_OPTIMIZER = "optimizer"
_NOT_LAYERS = frozenset({"vars", _OPTIMIZER, ADDED_SLOTS}).union(
    f"{underscore}{name}"
    for name in ("metrics", "compiled_metrics", "compile_metrics", "compiled_loss", "compile_loss", "loss_tracker")
    for underscore in ("", "_")
)
# the layers inside Keras's own layers, in the order of the outer layer's variables
_ATTRIBUTES = (
    *("forward_layer", "backward_layer"),
    *("query_dense", "key_dense", "value_dense", "output_dense"),
    *("_query_dense", "_key_dense", "_value_dense", "_output_dense"),
)


def has_layout(file: Any) -> bool:
    """Return whether an HDF5 file has this layout."""
    return any(name in file for name in (*LAYER_GROUPS, _OPTIMIZER, "vars"))


def take(state: TrainingState, source: H5, file: Any, model_config: Optional[Mapping[str, Any]]) -> None:
    """Take the variables of model and optimizer; the names of layers come from the model's configuration."""
    has_names = bool(_layer_configs(model_config))
    others = _Walk(TrainingState(state.writer), source, has_names=False).of_object(file, model_config, ())
    for owner, path, position, value in _Walk(state, source).of_object(file, model_config, ()):
        name = _unique(owner, state.variables)
        state.names_by_attribute[name] = next(others)[0]
        state.variables[name] = value
        state.positions[name] = position
        if not has_names:
            state.paths[name], state.path_kind = path, KERAS
    _take_optimizer(state, source, file)


def owners_of_model(model: Any) -> Dict[str, str]:
    """Return owner → the owner of a functional model's variable in files of this layout without names of layers."""

    def read(file: Any) -> Dict[str, Any]:
        state = TrainingState(Writer("keras"))
        take(state, H5(file.name, lambda: h5py.File(file.filename, "r")), file, {"config": model.get_config()})
        return {owner: value.read() for owner, value in state.variables.items()}

    has_inside = has_layer_names(model) and any(
        all_layers(each)[1:] for each in all_layers(model) if not is_model(each)
    )
    return owners_in_keras_file(model, read) if has_inside else {}


_Found = Tuple[str, str, Position, Value]


class _Walk:
    """A walk through all groups, in the order of the model's layers as far as it is known."""

    def __init__(self, state: TrainingState, source: H5, has_names: bool = True) -> None:
        self._state = state
        self._has_names = has_names  # whether to take names instead of attributes where the file has both
        self._source = source
        self._visited = _untrusted_hdf5.VisitedGroups()

    def of_object(
        self,
        group: Any,
        config: Optional[Mapping[str, Any]],
        path: Tuple[str, ...],
        position: Position = (),
        is_list: bool = False,
    ) -> Iterator[_Found]:
        """Yield owner, path, position and value of the variables of an object, then those of the layers in it."""
        if not self._visited.add(group):
            raise ValueError(f"{group.name} has several names")
        for index, (name, value) in enumerate(_numbered(self._source, _untrusted_hdf5.subgroup(group, "vars"))):
            yield "/".join((*path, name)), f"{group.name}/vars/{name}".lstrip("/"), (*position, Step(OWN, index)), value
        children = sorted((name for name in _subgroups(group) if name not in _NOT_LAYERS), key=_attribute_order)
        self._require_order([name for name in children if name not in _ATTRIBUTES and _has_arrays(group, name)])
        for child in children:
            inside = _untrusted_hdf5.subgroup(group, child)
            if child in LAYER_GROUPS:
                yield from self._of_container(inside, config, path, position)
            else:
                holds_layers = _untrusted_hdf5.subgroup(inside, "vars") is None  # which have their own names
                layer = self._name(inside)
                step = Step(*_class_and_number(child)) if is_list else _step_of_attribute(child, layer)
                around = path if holds_layers else (*path, layer or child)
                yield from self.of_object(inside, None, around, (*position, step), holds_layers)

    def _of_container(
        self, group: Any, config: Optional[Mapping[str, Any]], path: Tuple[str, ...], position: Position
    ) -> Iterator[_Found]:
        """Yield the same for a model's layers."""
        configs = _layer_configs(config)
        groups = _groups_of_layers(group, configs)
        if groups is None:
            if configs:
                note = f"{group.name} of the weights has not one group for each layer; its own names are used"
                self._state.notes.append(note)
            names = sorted(_subgroups(group), key=_class_and_number)
            self._require_order([name for name in names if _has_arrays(group, name)])
            groups = [(name, None) for name in names]
        for index, (child, layer) in enumerate(groups):
            inside = _untrusted_hdf5.subgroup(group, child)
            name = _layer_name(layer) or self._name(inside) or child
            step = Step(*_class_and_number(child)) if layer is None else Step("", index)
            yield from self.of_object(inside, layer, (*path, name), (*position, step))

    def _name(self, group: Any) -> Optional[str]:
        name = _name_in_file(group) if self._has_names else None
        self._state.has_layer_names |= name is not None
        return name

    def _require_order(self, unsorted: List[str]) -> None:
        """Mark the order as unknown if there is more than one: HDF5 sorts names by the alphabet."""
        if len(unsorted) > 1:
            self._state.is_ordered = False


def _groups_of_layers(group: Any, configs: List[Any]) -> Optional[List[Tuple[str, Any]]]:
    """Return group and configuration of each layer; None if their numbers differ."""
    by_class: Dict[str, List[str]] = {}
    for name in sorted(_subgroups(group), key=_class_and_number):
        by_class.setdefault(_class_and_number(name)[0], []).append(name)
    found = []
    for layer in configs:
        class_name = _class_of_layer(layer)
        if by_class.get(class_name):
            found.append((by_class[class_name].pop(0), layer))
        elif class_name != "inputlayer":  # in the configuration of a Sequential, but not among its layers
            return None
    return None if any(by_class.values()) else found


def _step_of_attribute(name: str, layer: Optional[str]) -> Step:
    return Step("", _ATTRIBUTES.index(name)) if name in _ATTRIBUTES else Step(name, 0, layer or "")


def _attribute_order(name: str) -> Tuple[int, str]:
    return (_ATTRIBUTES.index(name) if name in _ATTRIBUTES else len(_ATTRIBUTES), name)


def _has_arrays(group: Any, name: str) -> bool:
    return next(_untrusted_hdf5.datasets(_untrusted_hdf5.member(group, name)), None) is not None


def _class_and_number(group: str) -> Tuple[str, int]:
    """Split the name of a layer's group: ``conv2d_transpose_1`` is the second layer of its class."""
    found = re.match(r"(.*?)(?:_([0-9]{1,9}))?$", group)
    name, number = found.groups() if found else (group, None)
    return name.replace("_", ""), int(number or 0)


def _class_of_layer(layer: Any) -> str:
    class_name = layer.get("class_name") if isinstance(layer, Mapping) else None
    return class_name.split(">")[-1].replace("_", "").lower() if isinstance(class_name, str) else ""


def _layer_configs(config: Optional[Mapping[str, Any]]) -> List[Any]:
    inside = config.get("config") if isinstance(config, Mapping) else None
    layers = inside.get("layers") if isinstance(inside, Mapping) else None
    return layers if isinstance(layers, list) else []


def _layer_name(layer: Any) -> Optional[str]:
    inside = layer.get("config") if isinstance(layer, Mapping) else None
    name = inside.get("name") if isinstance(inside, Mapping) else None
    return name if isinstance(name, str) else None


def _name_in_file(group: Any) -> Optional[str]:
    own = _untrusted_hdf5.subgroup(group, "vars")
    return _untrusted_hdf5.text(own, "name") if own is not None and "name" in own.attrs else None


def _numbered(source: H5, group: Any) -> Iterator[Tuple[str, Value]]:
    """Yield the variables in a group, in the order of their numbers."""
    arrays = [name for name in group if _is_array(group, name)] if group is not None else []
    for name in sorted(arrays, key=_number_and_name):
        yield name, source.value(_untrusted_hdf5.member(group, name))


def _number_and_name(name: str) -> Tuple[bool, int, str]:
    is_number = re.fullmatch("[0-9]{1,9}", name) is not None
    return not is_number, int(name) if is_number else 0, name


def _is_array(group: Any, name: str) -> bool:
    is_here = isinstance(group.get(name, getlink=True), h5py.HardLink)
    return is_here and issubclass(group.get(name, getclass=True), h5py.Dataset)


def _subgroups(group: Any) -> List[str]:
    return [name for name in group if _untrusted_hdf5.subgroup(group, name) is not None]


def _unique(owner: str, taken: Mapping[str, Any]) -> str:
    number = 1
    name = owner
    while name in taken:
        name = f"{owner}#{number}"
        number += 1
    return name


def optimizer_values(source: H5, file: Any, path: str = _OPTIMIZER) -> List[Value]:
    """Return the variables that an optimizer lists, in order."""
    return [value for _, value in _numbered(source, _untrusted_hdf5.subgroup(file, f"{path}/vars"))]


def _take_optimizer(state: TrainingState, source: H5, file: Any) -> None:
    whole, inner = (optimizer_values(source, file, path) for path in (_OPTIMIZER, f"{_OPTIMIZER}/inner_optimizer"))
    # a LossScaleOptimizer lists the inner variables after its own, and the inner optimizer lists them again
    own = state.weight_list = inner or whole
    outer = whole[: len(whole) - len(inner)] if inner else []
    for names in (list(profile.state_names.values()) for profile in profiles() if profile.state_names):
        # its own iterations and learning rate come first
        if len(outer) == 2 + len(names) and all(value.shape == () for value in outer):
            state.loss_scale_state = {name: value.number() for name, value in zip(names, outer[2:])}
    if own and own[0].shape == () and own[0].dtype.startswith(("int", "uint")):
        state.iterations = own[0].whole_number()
        if _has_rate(state, own):
            state.learning_rate = float(own[1].number())


def _has_rate(state: TrainingState, own: List[Value]) -> bool:
    """Return whether the learning rate is among the variables; a schedule never is."""
    config = inner_config(state.optimizer_config)
    inside = config.get("config") if isinstance(config, Mapping) else None
    rate = inside.get("learning_rate") if isinstance(inside, Mapping) else None
    return (
        lists_learning_rate(state.writer.keras)
        and isinstance(rate, (int, float))
        and len(own) > 1
        and own[1].shape == ()
    )
