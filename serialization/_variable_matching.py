"""Which variable of a model is which variable in a file: by name and by structure, never by luck."""

from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

import re

Shape = Tuple[int, ...]


class Matching(NamedTuple):
    """Owner in the model → owner in the file, and what is left over on either side."""

    pairs: Dict[str, str]
    missing: List[str]  # in the model, and not in the file
    unused: List[str]  # in the file, and not in the model


def owners_of(variables: Sequence[Any]) -> List[str]:
    """The name of each variable in a file; a second one of the same name gets a number."""
    names = [getattr(variable, "path", variable.name).split(":")[0] for variable in variables]
    return [name if names.index(name) == place else f"{name}#{place}" for place, name in enumerate(names)]


def match_owners(model: Mapping[str, Shape], file: Mapping[str, Shape], is_ordered: bool = True) -> Matching:
    """Find each variable of a model in a file; both name them in the order in which the layers stand.

    Layers that a person has named keep their names. Those that Keras has numbered (``dense``, ``dense_1``) have other
    numbers in another process: among them, the order counts. A pair with different shapes is no pair. In a
    file that is not ordered, only names count.
    """
    for key in (_exact, _counted, *((_renumbered, _by_place, _by_place_alone, _by_order) if is_ordered else ())):
        if key is _counted and not _has_unnamed(file):
            continue
        ours, theirs = key(list(model)), key(list(file))
        if set(ours) == set(theirs) and all(model[owner] == file[theirs[name]] for name, owner in ours.items()):
            return Matching({owner: theirs[name] for name, owner in ours.items()}, [], [])
        if key is _by_place and not _has_unnamed(file):
            break
    return _partial(model, file)


def _partial(model: Mapping[str, Shape], file: Mapping[str, Shape]) -> Matching:
    """The variables of layers that a person has named: with what Keras has numbered, an equal name proves nothing."""
    ours, theirs = _exact(list(model)), _exact(list(file))
    numbered = {name for names in (ours, theirs) for name in names if _is_numbered(name, names)}
    pairs = {
        owner: theirs[name]
        for name, owner in ours.items()
        if name in theirs and name not in numbered and model[owner] == file[theirs[name]]
    }
    taken = set(pairs.values())
    return Matching(pairs, [each for each in model if each not in pairs], [each for each in file if each not in taken])


def _exact(owners: Sequence[str]) -> Dict[str, str]:
    """Name without what all names begin with, such as the model's → owner."""
    paths = [owner.split("/") for owner in owners]
    shared = 0
    while paths and all(len(path) > shared + 2 for path in paths) and len({path[shared] for path in paths}) == 1:
        shared += 1
    return {"/".join(path[shared:]): owner for path, owner in zip(paths, owners)}


def _counted(owners: Sequence[str]) -> Dict[str, str]:
    """Name of the layer, and place of the variable in it, which is its name in some files → owner."""
    counts: Dict[str, int] = {}
    found = {}
    for name, owner in _exact(owners).items():
        layer = name.rpartition("/")[0]
        counts[layer] = counts.get(layer, -1) + 1
        found[f"{layer}/{counts[layer]}"] = owner
    return found


def _renumbered(owners: Sequence[str]) -> Dict[str, str]:
    """Name with numbers that begin at 0 for each kind of layer, in order → owner."""
    numbers: Dict[str, Dict[str, int]] = {}
    found = {}
    for name, owner in _exact(owners).items():
        layer, _, rest = name.partition("/")
        kind = _kind(layer)
        number = numbers.setdefault(kind, {}).setdefault(layer, len(numbers[kind]))
        found[f"{kind}#{number}/{rest}"] = owner
    return found


def _by_place(owners: Sequence[str]) -> Dict[str, str]:
    """Place of the layer, and of the variable in it → owner."""
    places: Dict[str, int] = {}
    counts: Dict[str, int] = {}
    found = {}
    for name, owner in _exact(owners).items():
        layer, _, rest = name.partition("/")
        place = places.setdefault(layer, len(places))
        counts[layer] = counts.get(layer, -1) + 1
        found[f"{place}/{counts[layer]}/{rest.split('/')[-1]}"] = owner
    return found


def _by_place_alone(owners: Sequence[str]) -> Dict[str, str]:
    """The same without the variable's name, for files that have none."""
    return {name.rpartition("/")[0]: owner for name, owner in _by_place(owners).items()}


def _by_order(owners: Sequence[str]) -> Dict[str, str]:
    """Place among all variables, for such files of models in models, whose names stand with their layers or do not."""
    return {str(place): owner for place, owner in enumerate(owners)}


def _has_unnamed(owners: Iterable[str]) -> bool:
    """Whether variables have numbers for names, as in .keras files."""
    return any(owner.split("/")[-1].isdigit() for owner in owners)


def _kind(layer: str) -> str:
    return re.sub(r"_\d+$", "", layer)


def _is_numbered(name: str, names: Iterable[str]) -> bool:
    """Whether a layer's name may come from Keras's counter: there are others that differ from it in the number only."""
    layer = name.split("/")[0]
    return any(each.split("/")[0] != layer and _kind(each.split("/")[0]) == _kind(layer) for each in names)
