"""The attributes that lead from a model in code to its variables, as files name them.

Layers that a subclassed model has in attributes, lists and dictionaries are often named by Keras, with numbers that
depend on what the process has built before. The attributes do not.
"""

from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Set, Tuple

import contextlib
import importlib
import os
import tempfile

import h5py
import numpy as np

from ._keras_introspection import all_layers, is_layer, own_variables
from ._matching import INSIDE
from ._variables import by_owner, weights_of

CHECKPOINT, KERAS, ATTRIBUTES = "checkpoint", "keras", "attributes"  # kinds of paths
# children of models that number layers, or list what is reached by other attributes, too
_POSITIONS = ("layer-", "layer_with_weights-", "keras_api", "_operations", "_functional", "_layers", "_self_tracked")
_LISTS = ("layers",)  # a SavedModel lists there what other attributes lead to
_SAVE = "save_own_variables"
_NAME = "name"  # of a layer, in the attributes of a group


def object_paths(model: Any, kind: str) -> Dict[str, str]:
    """Return owner → path for the variables of a model; empty if the installed Keras has no such paths."""
    if kind == CHECKPOINT:
        return checkpoint_paths(model)
    if kind == ATTRIBUTES:
        return attributes_of(model)
    return keras_paths(model) if kind == KERAS else {}


def canonical(names: Tuple[str, ...]) -> str:
    """Return a path as one string; some versions put an underscore before a name."""
    return "/".join(name.lstrip("_") or name for name in names)


def is_position(name: str) -> bool:
    """Return whether the name of a child in a checkpoint is a position among the layers of a model."""
    return name.startswith(_POSITIONS)


def checkpoint_paths(model: Any) -> Dict[str, str]:
    """Return the paths that a checkpoint of the model has.

    Positions of layers are not a path: a variable that only positions lead to has the path of the model around it.
    """
    return _paths_by(model, tracked_children)


def attributes_of(model: Any) -> Dict[str, str]:
    """Return the same with the lists and dictionaries that checkpoints of Keras 3 leave out."""
    return _paths_by(model, _children_and_containers)


def _paths_by(model: Any, children_of: Callable[[Any], Iterable[Tuple[str, Any]]]) -> Dict[str, str]:
    owners = {id(_tensor(each)): owner for owner, each in by_owner(weights_of(model)).items()}

    def children(each: Any) -> Iterable[Tuple[str, Any]]:
        return () if id(_tensor(each)) in owners else children_of(each)

    found: Dict[str, str] = {}
    for each, path in attribute_paths(model, children, id):
        owner = owners.get(id(_tensor(each)))
        if owner is not None:
            found.setdefault(owner, path)
    return found


def attribute_paths(
    root: Any, children: Callable[[Any], Iterable[Tuple[str, Any]]], identity: Callable[[Any], int]
) -> Iterator[Tuple[Any, str]]:
    """Yield the objects below a model with the attributes that lead to them.

    Args:
        root: The model.
        children: Returns names and children of an object.
        identity: Returns a number for an object.
    """
    found: Set[int] = set()
    for through_positions in (False, True):
        for each, path in _walk_attributes(root, children, identity, through_positions):
            if path and identity(each) not in found:
                found.add(identity(each))
                yield each, canonical(path)


def _walk_attributes(
    root: Any,
    children: Callable[[Any], Iterable[Tuple[str, Any]]],
    identity: Callable[[Any], int],
    through_positions: bool,
) -> Iterator[Tuple[Any, Tuple[str, ...]]]:
    seen = {identity(root)}
    level: List[Tuple[Any, Tuple[str, ...]]] = [(root, ())]
    while level:
        following = []
        for each, path in level:
            yield each, path
            for name, child in sorted(children(each), key=_names_before_lists):
                if identity(child) in seen or (is_position(name) and not (through_positions and path)):
                    continue
                seen.add(identity(child))
                is_inside = path[-1:] == (INSIDE,)
                following.append((child, path if is_inside else (*path, INSIDE if is_position(name) else name)))
        level = following


def _names_before_lists(child: Tuple[str, Any]) -> Tuple[bool, str]:
    return child[0] in _LISTS, child[0]


def tracked_children(trackable: Any, *, with_optimizers: bool = False) -> List[Tuple[str, Any]]:
    """Return the children that a checkpoint of an object has, without optimizers if these are not wanted."""
    tf = importlib.import_module("tensorflow")
    initialize: Any = getattr(trackable, "_maybe_initialize_trackable", None)
    if initialize is not None:  # TF 2.8 does it when the first attribute is tracked
        initialize()
    if hasattr(tf.Module, "_trackable_children"):
        children = trackable._trackable_children().items() if hasattr(trackable, "_trackable_children") else ()
    else:  # up to TF 2.8
        children = getattr(trackable, "_checkpoint_dependencies", ())
    wanted = ((name, child) for name, child in children if with_optimizers or not hasattr(child, "apply_gradients"))
    return sorted(wanted, key=_first)


def _children_and_containers(parent: Any) -> List[Tuple[str, Any]]:
    """Return the children of an object, and its public lists and dictionaries of layers, which Keras 3 tracks apart."""
    inside = _contents(parent)
    if inside is not None:
        return [(name, each) for name, each in inside if _holds_layers(each)]
    found = tracked_children(parent)
    if is_layer(parent):
        known = {name for name, _ in found}
        own = ((name, each) for name, each in vars(parent).items() if name not in known and name[:1] != "_")
        found += [(name, each) for name, each in own if _contents(each) is not None and _holds_layers(each)]
    return sorted(found, key=_first)


def _contents(value: Any) -> Optional[List[Tuple[str, Any]]]:
    """Return the keys of a plain dictionary or list with what is there; None of anything else."""
    if hasattr(value, "_trackable_children") or hasattr(value, "_checkpoint_dependencies"):  # that of Keras 2
        return None
    if isinstance(value, dict):
        return [(str(key), each) for key, each in value.items()]
    return [(str(index), each) for index, each in enumerate(value)] if isinstance(value, (list, tuple)) else None


def _holds_layers(value: Any) -> bool:
    inside = _contents(value)
    return is_layer(value) if inside is None else any(_holds_layers(each) for _, each in inside)


def _first(child: Tuple[str, Any]) -> str:
    return child[0]


def _tensor(variable: Any) -> Any:
    """Return the TensorFlow variable in a variable of Keras 3, or the object itself."""
    value = getattr(variable, "_value", None)
    return value if hasattr(variable, "path") and value is not None else variable


def keras_paths(model: Any) -> Dict[str, str]:
    """Return the paths that a ``.weights.h5`` file of the model has.

    The installed Keras writes such a file, in which every variable is replaced by its index.
    """
    names = list(by_owner(weights_of(model)))
    with _saved_indices(model) as file:
        found = {} if file is None else dict(_indices_in(file, ""))
    return {names[index]: path for path, index in found.items() if 0 <= index < len(names)}


def owners_in_keras_file(model: Any, read: Callable[[Any], Mapping[str, Any]]) -> Dict[str, str]:
    """Return owner → the owner that a ``.weights.h5`` file of Keras 2 has for it, which has no names of its own.

    Args:
        model: The model.
        read: Returns owner → index of the variables in such a file.
    """
    names = list(by_owner(weights_of(model)))
    with _saved_indices(model) as file:
        if file is None:
            return {}
        for group in [each for each in _groups_in(file) if _NAME in each.attrs]:  # Keras 3 writes it
            del group.attrs[_NAME]
        found = {owner: int(np.asarray(index)) for owner, index in read(file).items()}
    return {names[index]: owner for owner, index in found.items() if 0 <= index < len(names)}


@contextlib.contextmanager
def _saved_indices(model: Any) -> Iterator[Any]:
    """Yield a ``.weights.h5`` file in which every variable is replaced by its index; None if Keras writes none."""
    indices = {id(each): index for index, each in enumerate(weights_of(model))}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "indices.weights.h5")
        try:
            with _saving_indices(model, indices):
                model.save_weights(path)
            file = h5py.File(path, "r+")
        except Exception:  # the installed Keras has no such files, or cannot write them for this model
            file = None
        try:
            yield file
        finally:
            if file is not None:
                file.close()


def _groups_in(group: Any) -> Iterator[Any]:
    for member in group.values():
        if isinstance(member, h5py.Group):
            yield member
            yield from _groups_in(member)


def _indices_in(group: Any, path: str) -> Iterator[Tuple[str, int]]:
    for name, member in group.items():
        if isinstance(member, h5py.Group):
            yield from _indices_in(member, f"{path}{name}/")
        elif member.shape == () and member.dtype.kind == "i":
            yield f"{path}{name}", int(member[()])


@contextlib.contextmanager
def _saving_indices(model: Any, indices: Dict[int, int]) -> Iterator[None]:
    """Make all layers of a model save the indices of their variables, and its optimizer nothing."""
    optimizers = [getattr(model, "optimizer", None)]
    optimizers.append(getattr(optimizers[0], "inner_optimizer", None))
    patches = {id(layer): (layer, _saver(layer, indices)) for layer in all_layers(model)}
    # an optimizer of Keras 3 has the model's variables in a list, too
    patches.update({id(each): (each, lambda store: None) for each in optimizers if each is not None})
    try:
        for each, save in patches.values():
            vars(each)[_SAVE] = save  # not setattr, with which Keras would track it
        yield
    finally:
        for each, _ in patches.values():
            vars(each).pop(_SAVE, None)


def _saver(layer: Any, indices: Dict[int, int]) -> Callable[[Any], None]:
    own = own_variables(layer)

    def save(store: Any) -> None:
        for number, variable in enumerate(own):
            if id(variable) in indices:
                store[str(number)] = np.int64(indices[id(variable)])

    return save
