"""The layout of ``model.weights.h5``, which lies in a ``.keras`` file, and of ``.weights.h5`` files.

Each object has a folder, and its variables are numbered in ``vars`` there. A layer's folder is called after its class,
with a number: what the layer is called stands in the model's configuration, and from Keras 3 on in ``vars`` as well.
An optimizer's variables have no names.
"""

from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import re

import h5py

from .. import _untrusted_hdf5
from .._untrusted_hdf5 import H5
from ..keras._slot_names import KERAS_3_STATE, inner_config
from ..training_state import Contents, Value

# where models keep their layers: in 2.12, and after that
_CONTAINERS = ("layers", "_layer_checkpoint_dependencies")
_OPTIMIZER = "optimizer"
ADDED_SLOTS = "scalekeeper_slots"  # what ours adds where Keras writes none
_NOT_THE_MODELS = frozenset({"vars", _OPTIMIZER, ADDED_SLOTS}).union(
    f"{underscore}{name}"
    for name in ("metrics", "compiled_metrics", "compile_metrics", "compiled_loss", "compile_loss", "loss_tracker")
    for underscore in ("", "_")
)
# the layers inside of Keras's own layers, in the order in which the outer one lists their variables
_ATTRIBUTES = (
    *("forward_layer", "backward_layer"),
    *("query_dense", "key_dense", "value_dense", "output_dense"),
    *("_query_dense", "_key_dense", "_value_dense", "_output_dense"),
)
# what Keras's own class has before the inner optimizer's variables, from Keras 3 on
_OUTER = ("iterations", "learning_rate", *KERAS_3_STATE.values())


def is_one(file: Any) -> bool:
    """Whether an HDF5 file has this layout."""
    return any(name in file for name in (*_CONTAINERS, _OPTIMIZER, "vars"))


def take(contents: Contents, source: H5, file: Any, model_config: Optional[Mapping[str, Any]]) -> None:
    """Put the variables of model and optimizer into contents; the model's configuration has the names of its layers."""
    for owner, value in _Walk(contents, source).of_object(file, model_config, ()):
        contents.variables[_unique(owner, contents.variables)] = value
    _take_optimizer(contents, source, file)


class _Walk:
    """From the root through all folders, in the order of the model's layers as far as it can be known."""

    def __init__(self, contents: Contents, source: H5) -> None:
        self._contents = contents
        self._source = source
        self._way = _untrusted_hdf5.Way()

    def of_object(
        self, group: Any, config: Optional[Mapping[str, Any]], path: Tuple[str, ...]
    ) -> Iterator[Tuple[str, Value]]:
        """A layer's or a model's own variables, then those of the layers in it."""
        if not self._way.is_new(group):
            raise ValueError(f"{group.name} is there under several names")
        for name, value in _numbered(self._source, _untrusted_hdf5.subgroup(group, "vars")):
            yield "/".join((*path, name)), value
        children = sorted((name for name in _subgroups(group) if name not in _NOT_THE_MODELS), key=_place_of_attribute)
        self._require_order([name for name in children if name not in _ATTRIBUTES and _has_arrays(group, name)])
        for child in children:
            inside = _untrusted_hdf5.subgroup(group, child)
            if child in _CONTAINERS:
                yield from self._of_container(inside, config, path)
            else:
                is_list = _untrusted_hdf5.subgroup(inside, "vars") is None  # of layers, which have names of their own
                name = _name_in_file(inside) or child
                yield from self.of_object(inside, None, path if is_list else (*path, name))

    def _of_container(
        self, group: Any, config: Optional[Mapping[str, Any]], path: Tuple[str, ...]
    ) -> Iterator[Tuple[str, Value]]:
        """The layers of a model."""
        configs = _layer_configs(config)
        folders = _folders_of_layers(group, configs)
        if folders is None:
            if configs:
                note = f"{group.name} of the weights does not have one folder for each layer: its own names are used"
                self._contents.notes.append(note)
            names = sorted(_subgroups(group), key=_kind_and_number)
            self._require_order([name for name in names if _has_arrays(group, name)])
            folders = [(name, None) for name in names]
        for folder, layer in folders:
            inside = _untrusted_hdf5.subgroup(group, folder)
            name = _layer_name(layer) or _name_in_file(inside) or folder
            # a model in a model gives its layers no more than their own names
            is_model = bool(_layer_configs(layer)) or any(
                _untrusted_hdf5.subgroup(inside, each) for each in _CONTAINERS
            )
            yield from self.of_object(inside, layer, () if is_model else (*path, name))

    def _require_order(self, unsorted: List[str]) -> None:
        """HDF5 has names in the order of the alphabet: of one there is one order only."""
        if len(unsorted) > 1:
            self._contents.is_ordered = False


def _folders_of_layers(group: Any, configs: List[Any]) -> Optional[List[Tuple[str, Any]]]:
    """Folder and configuration of each layer; None where there are not as many of the one as of the other."""
    by_kind: Dict[str, List[str]] = {}
    for folder in sorted(_subgroups(group), key=_kind_and_number):
        by_kind.setdefault(_kind_and_number(folder)[0], []).append(folder)
    found = []
    for layer in configs:
        kind = _kind_of_class(layer)
        if by_kind.get(kind):
            found.append((by_kind[kind].pop(0), layer))
        elif kind != "inputlayer":  # Sequential names it in its configuration, and has no such layer
            return None
    return None if any(by_kind.values()) else found


def _place_of_attribute(name: str) -> Tuple[int, str]:
    return (_ATTRIBUTES.index(name) if name in _ATTRIBUTES else len(_ATTRIBUTES), name)


def _has_arrays(group: Any, name: str) -> bool:
    return next(_untrusted_hdf5.datasets(_untrusted_hdf5.member(group, name)), None) is not None


def _kind_and_number(folder: str) -> Tuple[str, int]:
    """``conv2d_transpose_1`` is the second of its kind."""
    found = re.match(r"(.*?)(?:_([0-9]{1,9}))?$", folder)
    kind, number = found.groups() if found else (folder, None)
    return kind.replace("_", ""), int(number or 0)


def _kind_of_class(layer: Any) -> str:
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
    """The variables in a folder, in the order of their numbers."""
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


def _take_optimizer(contents: Contents, source: H5, file: Any) -> None:
    whole, inner = (
        [value for _, value in _numbered(source, _untrusted_hdf5.subgroup(file, path))]
        for path in (f"{_OPTIMIZER}/vars", f"{_OPTIMIZER}/inner_optimizer/vars")
    )
    # Keras's own class lists the inner optimizer's variables after its own, and Keras writes the inner one as well
    own = contents.weight_list = inner or whole
    outer = whole[: len(whole) - len(inner)] if inner else []
    if len(outer) == len(_OUTER) and all(value.shape == () for value in outer):
        state = {name: value.number() for name, value in zip(_OUTER, outer)}
        contents.loss_scale_state = {name: state[name] for name in _OUTER[2:]}
    if own and own[0].shape == () and own[0].dtype.startswith(("int", "uint")):
        contents.iterations = own[0].whole_number()
        if _has_rate(contents, own):
            contents.learning_rate = float(own[1].number())


def _has_rate(contents: Contents, own: List[Value]) -> bool:
    """Keras 3 has the learning rate as a variable, unless it is a schedule."""
    config = inner_config(contents.optimizer_config)
    inside = config.get("config") if isinstance(config, Mapping) else None
    rate = inside.get("learning_rate") if isinstance(inside, Mapping) else None
    is_keras_3 = (contents.writer.keras or "").split(".")[0] not in ("", "1", "2")
    return is_keras_3 and isinstance(rate, (int, float)) and len(own) > 1 and own[1].shape == ()
