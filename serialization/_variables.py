"""Variables of models and optimizers: their names, their values, and which variable of a file is which."""

from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

import importlib
import re

import numpy as np

from .training_state import Value

Shape = Tuple[int, ...]


class Matching(NamedTuple):
    """Owner in the model → owner in the file, and what is left over on either side."""

    pairs: Dict[str, str]
    missing: List[str]  # in the model, not in the file
    unused: List[str]  # in the file, not in the model


def values_of(variables: Iterable[Any]) -> List[Any]:
    """Return the values of variables as NumPy arrays; in TF1 graph mode they come from Keras's session."""
    tf = importlib.import_module("tensorflow")
    read = (lambda each: each.numpy()) if tf.executing_eagerly() else tf.keras.backend.get_value
    return [np.asarray(read(variable)) for variable in variables]


def value_of(variable: Any) -> Any:
    """Return the value of a variable as a NumPy array."""
    return values_of([variable])[0]


def lazy_values(variables: Mapping[str, Any]) -> Dict[str, Value]:
    """Return a :class:`Value` for each variable, which reads the variable on demand."""
    tf = importlib.import_module("tensorflow")
    return {name: _lazy(variable, tf.as_dtype(variable.dtype).name) for name, variable in variables.items()}


def lazy_slots(slots: Mapping[str, Mapping[str, Any]]) -> Dict[str, Dict[str, Value]]:
    """Return a :class:`Value` for each slot variable, by owner and slot."""
    return {owner: lazy_values(each) for owner, each in slots.items()}


def _lazy(variable: Any, dtype: str) -> Value:
    return Value(tuple(variable.shape), dtype, lambda: value_of(variable))


def assign_all(values: Iterable[Tuple[Any, Any]]) -> None:
    """Assign a value, a :class:`Value` or anything NumPy takes, to each variable; values are cast to its type."""
    tf = importlib.import_module("tensorflow")
    is_eager = tf.executing_eagerly()
    for variable, value in values:
        array = value.read() if isinstance(value, Value) else value
        if is_eager:
            variable.assign(np.asarray(array, dtype=tf.as_dtype(variable.dtype).as_numpy_dtype))
        else:
            tf.keras.backend.set_value(variable, array)


def assign(variable: Any, value: Any) -> None:
    """Assign a value to a variable."""
    assign_all([(variable, value)])


def owners_of(variables: Sequence[Any]) -> List[str]:
    """Return the name that each variable has in a file; a second one of the same name gets its index appended."""
    names = [getattr(variable, "path", variable.name).split(":")[0] for variable in variables]
    return [name if names.index(name) == index else f"{name}#{index}" for index, name in enumerate(names)]


def by_owner(variables: Sequence[Any]) -> Dict[str, Any]:
    """Return the variables by owner."""
    return dict(zip(owners_of(variables), variables))


def shapes_by_owner(variables: Sequence[Any]) -> Dict[str, Shape]:
    """Return the shapes of variables by owner."""
    return {owner: tuple(variable.shape) for owner, variable in by_owner(variables).items()}


def match_owners(model: Mapping[str, Shape], file: Mapping[str, Shape], is_ordered: bool = True) -> Matching:
    """Find each variable of a model in a file. Both list them in the order of the layers.

    Layers that a person has named keep their names. Layers that Keras has numbered (``dense``, ``dense_1``) have other
    numbers in another process: among them, the order counts. Variables with different shapes never match. If the file
    is not ordered, only names count.
    """
    for key in (_exact, _counted, *((_renumbered, _by_index, _by_index_alone, _by_order) if is_ordered else ())):
        if key is _counted and not _has_unnamed(file):
            continue
        in_model, in_file = key(list(model)), key(list(file))
        if set(in_model) == set(in_file) and all(
            model[owner] == file[in_file[name]] for name, owner in in_model.items()
        ):
            return Matching({owner: in_file[name] for name, owner in in_model.items()}, [], [])
        if key is _by_index and not _has_unnamed(file):
            break
    return _partial(model, file)


def _partial(model: Mapping[str, Shape], file: Mapping[str, Shape]) -> Matching:
    """Match the variables of layers that a person has named; an equal name that Keras made up proves nothing."""
    in_model, in_file = _exact(list(model)), _exact(list(file))
    numbered = {name for names in (in_model, in_file) for name in names if _is_numbered(name, names)}
    pairs = {
        owner: in_file[name]
        for name, owner in in_model.items()
        if name in in_file and name not in numbered and model[owner] == file[in_file[name]]
    }
    taken = set(pairs.values())
    return Matching(pairs, [each for each in model if each not in pairs], [each for each in file if each not in taken])


def _exact(owners: Sequence[str]) -> Dict[str, str]:
    """Return name → owner, without the prefix that all names share, such as the model's name."""
    paths = [owner.split("/") for owner in owners]
    shared = 0
    while paths and all(len(path) > shared + 2 for path in paths) and len({path[shared] for path in paths}) == 1:
        shared += 1
    return {"/".join(path[shared:]): owner for path, owner in zip(paths, owners)}


def _counted(owners: Sequence[str]) -> Dict[str, str]:
    """Return layer name and index of the variable in the layer → owner; some files name variables so."""
    counts: Dict[str, int] = {}
    found = {}
    for name, owner in _exact(owners).items():
        layer = name.rpartition("/")[0]
        counts[layer] = counts.get(layer, -1) + 1
        found[f"{layer}/{counts[layer]}"] = owner
    return found


def _renumbered(owners: Sequence[str]) -> Dict[str, str]:
    """Return name → owner, with layers numbered from 0 for each layer class, in order."""
    numbers: Dict[str, Dict[str, int]] = {}
    found = {}
    for name, owner in _exact(owners).items():
        layer, _, rest = name.partition("/")
        stem = _stem(layer)
        number = numbers.setdefault(stem, {}).setdefault(layer, len(numbers[stem]))
        found[f"{stem}#{number}/{rest}"] = owner
    return found


def _by_index(owners: Sequence[str]) -> Dict[str, str]:
    """Return index of the layer, index of the variable in it, and its last name → owner."""
    indices: Dict[str, int] = {}
    counts: Dict[str, int] = {}
    found = {}
    for name, owner in _exact(owners).items():
        layer, _, rest = name.partition("/")
        index = indices.setdefault(layer, len(indices))
        counts[layer] = counts.get(layer, -1) + 1
        found[f"{index}/{counts[layer]}/{rest.split('/')[-1]}"] = owner
    return found


def _by_index_alone(owners: Sequence[str]) -> Dict[str, str]:
    """Return the same without the variable's name, for files that have none."""
    return {name.rpartition("/")[0]: owner for name, owner in _by_index(owners).items()}


def _by_order(owners: Sequence[str]) -> Dict[str, str]:
    """Return index among all variables → owner, for such files of nested models."""
    return {str(index): owner for index, owner in enumerate(owners)}


def _has_unnamed(owners: Iterable[str]) -> bool:
    """Return whether variables have numbers for names, as in .keras files."""
    return any(owner.split("/")[-1].isdigit() for owner in owners)


def _stem(layer: str) -> str:
    return re.sub(r"_\d+$", "", layer)


def _is_numbered(name: str, names: Iterable[str]) -> bool:
    """Return whether a layer's name may come from Keras's counter: another one differs in the number only."""
    layer = name.split("/")[0]
    return any(each.split("/")[0] != layer and _stem(each.split("/")[0]) == _stem(layer) for each in names)
