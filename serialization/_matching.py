"""Which variable of a file belongs to which variable of a model. Identity comes before position.

Rules, of which the first that applies decides:

``mapping``
    The caller tells which variable of the file is which.
``path``
    The same attributes lead to the variable on both sides: ``encoder/kernel``.
``name``
    A name that a person has chosen exists on both sides. It is never matched with another name.
``structure``
    Keras has named the layers, and they are connected to other inputs or other chosen names.
``order``
    Keras has named the layers ``dense``, ``dense_1``, … The numbers depend on what a process has built before; their
    order does not. The rule needs equally many layers of that class on both sides.
``shape``
    Every layer that is left has a shape that no other one has, on both sides. If a person has named the layers on both
    sides, this counts only if no name at all exists on both.
``position``
    The file has no names at all, and its shapes are those of the model, in order.

A variable that no rule decides stays unmatched, and is reported as missing or unused.
"""

from typing import (
    Callable,
    Collection,
    Dict,
    FrozenSet,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

import functools
import itertools
import re
import types

from ._connections import Connections, Layer, input_keys
from .keras.target import layer_classes

INSIDE = "~"  # ends the path of a model, for the variables in it that only positions lead to

Shape = Tuple[int, ...]

MAPPING, PATH, NAME, STRUCTURE, ORDER, SHAPE, POSITION = (
    "mapping",
    "path",
    "name",
    "structure",
    "order",
    "shape",
    "position",
)
SAME_NAMES = {
    "depthwise_kernel": "kernel"
}  # names of a variable in Keras 2 → in Keras 3, where a layer has only one of them
_AUTOMATIC = "~"  # begins the key of a name that Keras has made up
_WRAPPERS = ("forward_", "backward_")  # of Bidirectional
# names of children in a checkpoint that are positions
_CONTAINERS = {"layers", "_layer_checkpoint_dependencies"}  # in which Keras numbers the layers of a class
_POSITION = re.compile(r"(layer(_with_weights)?-)?[0-9]+|_.*|variable")


class Matching(NamedTuple):
    """Owner in the model → owner in the file, and what is left over on either side."""

    pairs: Dict[str, str]
    missing: List[str]  # in the model, not in the file
    unused: List[str]  # in the file, not in the model
    rules: Mapping[str, str] = types.MappingProxyType({})  # owner in the model → the rule by which it was matched
    notes: Tuple[str, ...] = ()  # why something was not matched, in sentences
    assumptions: Tuple[str, ...] = ()  # what was matched although names on both sides contradict it, in sentences


class _Variable(NamedTuple):
    owner: str
    layer: Layer
    leaf: str  # the last part of its name
    shape: Shape


_Layers = Dict[Layer, List[_Variable]]
_Lookup = Callable[[], Optional[Connections]]


def match_owners(
    model: Mapping[str, Shape],
    file: Mapping[str, Shape],
    is_ordered: bool = True,
    *,
    names: Optional[Mapping[str, str]] = None,
    file_names: Optional[Mapping[str, str]] = None,
    classes: Collection[str] = (),
    model_paths: Optional[Mapping[str, str]] = None,
    file_paths: Optional[Mapping[str, str]] = None,
    mapping: Optional[Mapping[str, str]] = None,
    is_whole: Optional[bool] = True,
    has_numbers: bool = False,
    is_same_program: bool = False,
    has_layer_names: bool = False,
    connections: Optional[_Lookup] = None,
    file_connections: Optional[Connections] = None,
    names_by_attribute: Optional[Mapping[str, str]] = None,
    file_names_by_attribute: Optional[Mapping[str, str]] = None,
) -> Matching:
    """Find each variable of a model in a file.

    Args:
        model: The shapes of the model's variables, by owner, in the order of the layers.
        file: The same of the file.
        is_ordered: Whether the file has the order of the layers, too.
        names: Owner in the model → its whole name, if that is more than the owner.
        file_names: Owner in the file → the same.
        classes: Classes of the user's layers, from which Keras makes names as it does from its own.
        model_paths: Owner in the model → the attributes that lead to it.
        file_paths: Owner in the file → the same.
        mapping: Owner in the model → owner in the file, as the caller says.
        is_whole: Whether both sides have all variables of a model. If they may be different parts of it, such as the
            layers that are not frozen, only names that a person has chosen match. None: it is not known. Then names
            that Keras has made up match if all of them are in the file, or if none is and they follow each other alike.

        has_numbers: Whether TensorFlow adds numbers to the names of layers, also to those that a person has chosen.
        has_layer_names: Whether a file with paths has the names of the layers, too.
        is_same_program: Whether both are of one program, so that the order of the variables is the same.
        connections: Returns the connections of the model's layers, if they are known.
        file_connections: Those of the file's.
        names_by_attribute: Owner in the model → its name with attributes in place of the layers inside its layer.
        file_names_by_attribute: Owner in the file → the same.

    Returns:
        The pairs, and what is left over. Variables of different shapes never match.
    """
    stems = frozenset({*_own_stems(), *map(_squeezed, classes)})
    match = _Match(
        _variables(model, names or {}),
        _variables(file, file_names or {}),
        stems,
        is_ordered,
        is_whole,
        connections,
        file_connections,
    )
    match.by_mapping(mapping or {})
    match.by_path(model_paths or {}, file_paths or {}, has_layer_names)
    match.by_models_at_paths(model_paths or {}, file_paths or {}, has_numbers)
    match.by_names_with_attributes(names_by_attribute or {}, file_names_by_attribute or {})
    match.by_all_names(has_numbers)
    if is_same_program:
        match.by_same_order()
    match.by_nested_models()
    if is_whole:
        match.by_shape()
        match.by_position()
    return match.result(model, file)


def needs_connections(
    model: Mapping[str, Shape], names: Mapping[str, str], classes: Collection[str], connections: Connections
) -> bool:
    """Return whether a model has layers that only their connections tell apart."""
    variables = _variables(model, names)
    stems = frozenset({*_own_stems(), *map(_squeezed, classes)})
    return bool(_Match(variables, variables, stems, True, True, lambda: connections)._unclear(variables))


def layer_key(layer: Layer, classes: Collection[str]) -> Layer:
    """Return what two layers have in common that only the numbers of Keras tell apart."""
    return _Match((), (), frozenset({*_own_stems(), *map(_squeezed, classes)}), True, True)._key(layer)


def pair_variables(model: Mapping[str, Shape], file: Mapping[str, Shape]) -> Dict[str, str]:
    """Return the pairs of variables of two layers that are the same, by their last names; or by order without names."""
    pairs = _inside(_variables(model, {}), _variables(file, {}))
    if not pairs and list(model.values()) == list(file.values()):
        pairs = dict(zip(model, file))
    return pairs


class _Match:
    """The matching of one model with one file."""

    def __init__(
        self,
        model: Sequence[_Variable],
        file: Sequence[_Variable],
        stems: FrozenSet[str],
        is_ordered: bool,
        is_whole: Optional[bool],
        connections: Optional[_Lookup] = None,
        file_connections: Optional[Connections] = None,
    ) -> None:
        self._model = {each.owner: each for each in model}
        self._file = {each.owner: each for each in file}
        self._stems = stems
        self._is_ordered = is_ordered
        self._is_whole = is_whole
        self._connections = connections
        self._file_connections = file_connections
        self._pairs: Dict[str, str] = {}
        self._rules: Dict[str, str] = {}
        self._closed: Dict[str, None] = {}  # names of layers that exist on both sides with other shapes
        self._notes: List[str] = []
        self._assumptions: List[str] = []
        self._elsewhere: Set[str] = set()  # owners in the model that no rule for the whole model may match

    def result(self, model: Iterable[str], file: Iterable[str]) -> Matching:
        taken = set(self._pairs.values())
        pairs = {owner: self._pairs[owner] for owner in model if owner in self._pairs}
        missing = [owner for owner in model if owner not in pairs]
        unused = [owner for owner in file if owner not in taken]
        notes, assumptions = (tuple(dict.fromkeys(each)) for each in (self._notes, self._assumptions))
        return Matching(pairs, missing, unused, self._rules, notes, assumptions)

    # Rules

    def by_mapping(self, mapping: Mapping[str, str]) -> None:
        for owner, in_file in mapping.items():
            if self._model[owner].shape == self._file[in_file].shape:
                self._pair(owner, in_file, MAPPING)
            else:
                self._notes.append(f"mapping: {in_file} has another shape than {owner}")

    def by_path(self, model_paths: Mapping[str, str], file_paths: Mapping[str, str], has_layer_names: bool) -> None:
        in_file = _unique({owner: path for owner, path in file_paths.items() if owner in self._file})
        proven = _same_structures(model_paths.values(), file_paths.values())
        found: List[Tuple[_Variable, _Variable, str]] = []
        for path, owner in _unique(model_paths).items():
            if path not in in_file or owner in self._pairs or path.split("/")[0] not in proven:
                continue
            one, other = self._model[owner], self._file[in_file[path]]
            if one.shape != other.shape:
                continue
            if self._names_differ(one, other):
                self._notes.append(
                    f"{owner}: the file has {other.owner} at the same attributes, and another variable of the same name"
                )
            elif other.owner not in self._pairs.values():
                found.append((one, other, POSITION if path.split("/")[0] in _CONTAINERS else PATH))
        by_position = [each[:2] for each in found if each[2] == POSITION]
        contradicted = self._contradicted(by_position if has_layer_names else [])
        unclear = self._unclear([one for one, _ in by_position])
        for one, other, rule in found:
            if self._key(one.layer) not in contradicted and one.layer not in unclear:
                self._pair(one.owner, other.owner, rule)

    def _names_differ(self, one: _Variable, other: _Variable) -> bool:
        """Return whether a person has named both layers or the models around them, and the other side has each name."""
        here, there = self._chosen(one), self._chosen(other)
        if here == there or not here or not there:
            return False
        in_model, in_file = (set(map(self._chosen, side.values())) for side in (self._model, self._file))
        return here in in_file and there in in_model

    def _chosen(self, variable: _Variable) -> Layer:
        """Return the names of a layer, and of the models around it, that a person has chosen."""
        return tuple(name for name in variable.layer if not self._is_automatic(name))

    def _contradicted(self, pairs: Sequence[Tuple[_Variable, _Variable]]) -> Set[Layer]:
        """Return the keys of layers whose numbers have another order on one side than on the other."""
        groups: Dict[Layer, Dict[Layer, Tuple[List[_Variable], List[_Variable]]]] = {}
        for one, other in pairs:
            if self._key(one.layer) == self._key(other.layer):
                layers = groups.setdefault(self._key(one.layer), {}).setdefault(one.layer, ([], []))
                layers[0].append(one)
                layers[1].append(other)
        found = set()
        for key, layers_of_key in groups.items():
            numbers = {(_numbers(one), _numbers(other)) for one, other in layers_of_key.values()}
            in_file = [there for _, there in sorted(numbers)]
            if not self._keeps_names(list(layers_of_key.values())):
                found.add(key)
            if in_file != sorted(in_file):
                found.add(key)
                self._notes.append(
                    f"{'/'.join(key)}: Keras's numbers and the positions of the layers contradict each other"
                )
        return found

    def by_models_at_paths(
        self, model_paths: Mapping[str, str], file_paths: Mapping[str, str], has_numbers: bool
    ) -> None:
        """Match the layers of each model that the same attributes lead to among themselves."""
        proven = _same_structures(model_paths.values(), file_paths.values())
        in_model, in_file = (
            _by_model(side, paths)
            for side, paths in ((self._left_in_model(), model_paths), (self._left_in_file(), file_paths))
        )
        names = [{self._chosen(each) for each in side.values()} - {()} for side in (self._model, self._file)]
        for path, model in in_model.items():
            file = in_file.get(path, [])
            if not file or path.split("/")[0] not in proven:
                continue
            here, there = ({self._chosen(each) for each in side} for side in (model, file))
            if (here - there) & names[1] and (there - here) & names[0]:
                self._notes.append(f"{path}: the file has another model at the same attributes, and this one elsewhere")
                continue
            match = _Match(model, file, self._stems, self._is_ordered, self._is_whole)
            match.by_all_names(has_numbers)
            if self._is_whole:
                match.by_shape()
                # Keras 3 joins names in a checkpoint with underscores
                match.by_position(are_unnamed=not (here - {()} or match._pairs or match._notes))
            for owner, other in match._pairs.items():
                self._pair(owner, other, PATH)
            self._notes += match._notes
            self._assumptions += match._assumptions
            self._elsewhere.update(each.owner for each in model if each.owner not in self._pairs)

    def by_names_with_attributes(self, names: Mapping[str, str], file_names: Mapping[str, str]) -> None:
        """Match the layers inside a layer by the attributes that lead to them."""
        model, file = (
            _inside_layers({owner: each.shape for owner, each in side.items() if owner in own}, own)
            for side, own in ((self._left_in_model(), names), (self._left_in_file(), file_names))
        )
        match = _Match(model, file, self._stems, False, self._is_whole, self._connections, self._file_connections)
        match.by_names(lambda layer: (layer, layer))
        for layer in {each.layer[:1] for each in model}:
            inside = [each.owner for each in model if each.layer[:1] == layer]
            if all(owner in match._pairs for owner in inside):  # a layer whose attributes differ is another one
                for owner in inside:
                    self._pair(owner, match._pairs[owner], PATH)
                self._assumptions += match._assumptions

    def by_all_names(self, has_numbers: bool) -> None:
        """Match by names, first whole ones and then parts."""
        self.by_names(lambda layer: (layer, layer))
        if self._is_ordered and any(each.rpartition("/")[2].isdigit() for each in self._file):
            self.by_names(lambda layer: (layer[:1], layer[:1]))  # layers inside a layer may have names of attributes
        self.by_names(lambda layer: (layer, layer[-1:]))  # nested models add to the names in some versions only
        self.by_names_without_layer()
        if has_numbers:
            self.by_names_without_numbers()

    def by_names(self, split: Callable[[Layer], Tuple[Layer, Layer]]) -> None:
        """Match layers whose names are equal but for the numbers of Keras.

        Args:
            split: Returns what of a variable's path is its layer, and what of that is compared.
        """
        in_model, in_file = (
            self._groups(variables.values(), split) for variables in (self._left_in_model(), self._left_in_file())
        )
        for key, model_layers in in_model.items():
            file_layers = in_file.get(key, [])
            if not file_layers or not key:
                continue
            if any(name.startswith(_AUTOMATIC) for name in key):
                self._by_order(model_layers, file_layers)
            elif len(model_layers) == len(file_layers) == 1 and self._can_nest(model_layers[0], file_layers[0]):
                self._pair_layers(model_layers[0], file_layers[0], NAME)
        self._top_level_variables()

    def by_names_without_numbers(self) -> None:
        """Match layers whose chosen names differ in a number only.

        Up to TF 2.2, the second layer of a name in a process has variables with a number: ``encoder_1/kernel``. This
        says nothing if names that exist on both sides have numbers, too.
        """
        if len(_by_layer(self._model.values())) != len(_by_layer(self._file.values())):
            return
        matched = {tuple(map(_stem, self._model[owner].layer)) for owner in self._pairs}
        in_model, in_file = (
            self._groups(side.values(), lambda layer: (layer, tuple(map(_stem, layer))))
            for side in (self._left_in_model(), self._left_in_file())
        )
        for key, layers in in_model.items():
            others = in_file.get(key, [])
            is_chosen = key and not any(name.startswith(_AUTOMATIC) for name in key)
            if is_chosen and key not in matched and len(layers) == len(others) == 1:
                self._pair_layers(layers[0], others[0], NAME)

    def _top_level_variables(self) -> None:
        """Match variables that belong to no layer, by their names."""
        in_model, in_file = (
            [each for each in side.values() if not each.layer] for side in (self._left_in_model(), self._left_in_file())
        )
        named = [each for each in in_file if not each.leaf.isdigit()]
        self._pair_layers(in_model, named, NAME)

    def by_names_without_layer(self) -> None:
        """Match variables whose own names have no layer, although one side knows the models around them.

        Normalization creates such variables if it is adapted before a model calls it.
        """
        repeated = {each.split("#")[0] for each in (*self._model, *self._file) if "#" in each}
        in_file = self._left_in_file()
        for owner, one in self._left_in_model().items():
            other = in_file.get(owner)
            if other is None or "/" in owner or owner.split("#")[0] in repeated or owner.isdigit():
                continue
            if one.shape == other.shape and not (one.layer and other.layer):
                self._pair(owner, owner, NAME)

    def _by_order(self, model_layers: List[List[_Variable]], file_layers: List[List[_Variable]]) -> None:
        if self._is_whole is None:
            file_layers = _same_part(model_layers, file_layers)
        if len(model_layers) != len(file_layers) or self._is_whole is False:
            return
        groups = self._by_connections(model_layers, file_layers)
        for ones, others in groups:
            self._in_order(ones, others, ORDER if len(groups) == 1 else STRUCTURE)

    def _in_order(self, model_layers: List[List[_Variable]], file_layers: List[List[_Variable]], rule: str) -> None:
        by_number = list(zip(sorted(model_layers, key=_numbers), sorted(file_layers, key=_numbers)))
        by_order = list(zip(model_layers, file_layers))
        choices = [by_number]
        if self._is_ordered and self._is_whole and _owner_pairs(by_order) != _owner_pairs(by_number):
            choices.append(by_order)
        fitting = [
            pairs
            for pairs in choices
            if all(self._can_nest(one, other) and _inside(one, other, complete=True) for one, other in pairs)
        ]
        if len(fitting) == 1 and self._keeps_names(fitting[0]):
            for one, other in fitting[0]:
                self._pair_layers(one, other, rule)
        elif len(fitting) > 1:
            listed = ", ".join("/".join(layer[0].layer) for layer in model_layers)
            self._notes.append(f"{listed}: Keras's numbers and the order of the layers contradict each other")

    def _keeps_names(self, pairs: Sequence[Tuple[List[_Variable], List[_Variable]]]) -> bool:
        """Return whether no layer gets the values of another one although its own name is in the file, too.

        If all numbers differ by the same amount, the process may have built other layers before, so the layers are
        the same. A person may have chosen the names, however, so this is an assumption.
        """
        in_file = {other[0].layer: _signature(other) for _, other in pairs}
        elsewhere = [
            (one[0].layer, other[0].layer)
            for one, other in pairs
            if one[0].layer != other[0].layer and in_file.get(one[0].layer) == _signature(one)
        ]
        if not elsewhere:
            return True
        listed = ", ".join(f"{'/'.join(here)} from {'/'.join(there)}" for here, there in elsewhere)
        shifts = {tuple(there - here for here, there in zip(_numbers(one), _numbers(other))) for one, other in pairs}
        if len(shifts) > 1:
            self._notes.append(f"{listed}: by order, but the file has layers of the same names, too")
            return False
        self._assumptions.append(
            "The names end in numbers that differ by the same amount, so they were taken for Keras's own, which depend "
            f"on the layers that a process has built before: {listed}. If you have chosen these names, values are in "
            "the wrong layers: give the layers other names, or use mapping"
        )
        return True

    def _by_connections(
        self, model_layers: List[List[_Variable]], file_layers: List[List[_Variable]]
    ) -> List[Tuple[List[List[_Variable]], List[List[_Variable]]]]:
        """Return the layers of both sides in groups with the same connections; none if these contradict each other."""
        whole = [(model_layers, file_layers)]
        here = self._connections() if self._connections is not None and len(model_layers) > 1 else None
        if here is None:
            return whole
        if self._file_connections is None:
            return [] if self._unclear([each for layer in model_layers for each in layer]) else whole
        in_model = self._by_role(here, self._file_connections, model_layers)
        in_file = self._by_role(self._file_connections, here, file_layers)
        if in_model is None or in_file is None:
            return whole
        if {role: len(layers) for role, layers in in_model.items()} != {
            role: len(layers) for role, layers in in_file.items()
        }:
            listed = ", ".join("/".join(layer[0].layer) for layer in model_layers)
            self._notes.append(f"{listed}: in the file, such layers are connected to other inputs or layers")
            return []
        return [(layers, in_file[role]) for role, layers in in_model.items()]

    def _by_role(
        self, connections: Connections, other: Connections, layers: List[List[_Variable]]
    ) -> Optional[Dict[FrozenSet[str], List[List[_Variable]]]]:
        """Return layers by what they are connected to on both sides; None if one is not among the connections."""
        shared = self._chosen_layers(connections)
        in_other = self._chosen_layers(other)
        named = {layer: name for name, layer in shared.items() if name in in_other}
        groups: Dict[FrozenSet[str], List[List[_Variable]]] = {}
        for layer in layers:
            found = connections.find(layer[0].layer)
            if found is None:
                return None
            groups.setdefault(_role(connections, found, input_keys(connections, other), named), []).append(layer)
        return groups

    def _chosen_layers(self, connections: Connections) -> Dict[str, Layer]:
        """Return the layers that a person has named, by name, but not the inputs."""
        found: Dict[str, List[Layer]] = {}
        for layer in connections.layers:
            if layer not in connections.inputs and not self._is_automatic(layer[-1]):
                found.setdefault(layer[-1], []).append(layer)
        return {name: layers[0] for name, layers in found.items() if len(layers) == 1}

    def _unclear(self, variables: Iterable[_Variable]) -> Set[Layer]:
        """Return layers beside each other that only their connections tell apart, if the file has no connections."""
        here = None if self._connections is None or self._file_connections is not None else self._connections()
        if here is None:
            return set()
        in_file = {name for each in self._file.values() for name in each.layer}
        named = {layer: name for name, layer in self._chosen_layers(here).items() if name in in_file}
        alike: Dict[Tuple[Layer, Tuple[Shape, ...]], Dict[Layer, Layer]] = {}
        for names, inside in _by_layer(variables).items():
            layer = here.find(names)
            if layer is not None:
                alike.setdefault((self._key(names[-1:]), _signature(inside)), {})[layer] = names
        unclear: Set[Layer] = set()
        for layers in alike.values():
            roles = {layer: _role(here, layer, input_keys(here, None), named) for layer in layers}
            pairs = itertools.combinations(layers, 2) if len(set(roles.values())) > 1 else ()
            if any(roles[one] != roles[other] and here.are_parallel(one, other) for one, other in pairs):
                unclear.update(layers.values())
                listed = ", ".join("/".join(layer) for layer in layers)
                self._notes.append(
                    f"{listed}: Keras has named them, and the file does not tell to which inputs or layers each "
                    "is connected"
                )
        return unclear

    def by_same_order(self) -> None:
        """Match variables by their order if layers, names and shapes follow each other alike on both sides."""
        sides = self._left_in_model(), self._left_in_file()
        one, other = ([(each.layer[-1:], each.leaf, each.shape) for each in side.values()] for side in sides)
        if one == other:
            for owner, in_file in zip(*sides):
                self._pair(owner, in_file, POSITION)

    def by_nested_models(self) -> None:
        """Match nested models of which the file has only the positions, by the names and shapes of their layers."""
        in_file = _by_start(self._left_in_file().values(), _positions_before)
        for levels in sorted({_levels(around) for around in in_file}):
            in_model = _by_start(self._left_in_model().values(), functools.partial(_names_before, levels))
            in_model_alike = self._alike(in_model)
            in_file_alike = self._alike({around: in_file[around] for around in in_file if _levels(around) == levels})
            for key, models in in_model_alike.items():
                others = in_file_alike.get(key, [])
                if len(models) == len(others) == 1:
                    self._pair_inside(in_model[models[0]], in_file[others[0]])
                elif others:
                    listed, positions = (", ".join("/".join(each) for each in side) for side in (models, others))
                    self._notes.append(f"{listed}: the file has {positions}, without names, and all of these are alike")

    def _alike(self, models: Mapping[Layer, Sequence[_Variable]]) -> Dict[Tuple[object, ...], List[Layer]]:
        """Return the models with layers of the same names and shapes, by these."""
        found: Dict[Tuple[object, ...], List[Layer]] = {}
        for around, variables in models.items():
            key = tuple(sorted((self._key(each.layer), each.leaf, each.shape) for each in variables))
            found.setdefault(key, []).append(around)
        return found

    def _pair_inside(self, model: Sequence[_Variable], file: Sequence[_Variable]) -> None:
        """Match the variables of two models by the names of their layers."""
        match = _Match(model, file, self._stems, self._is_ordered, self._is_whole)
        match.by_names(lambda layer: (layer, layer))
        for owner, in_file in match._pairs.items():
            self._pair(owner, in_file, match._rules[owner])
        self._assumptions += match._assumptions

    def by_shape(self) -> None:
        in_model, in_file = (_by_layer(side.values()) for side in (self._left_in_model(), self._left_in_file()))
        signatures = [[_signature(layer) for layer in side.values()] for side in (in_model, in_file)]
        are_distinct = all(len(set(each)) == len(each) for each in signatures)
        if not in_model or not are_distinct or set(signatures[0]) != set(signatures[1]):
            return
        if any(name in self._closed for side in (in_model, in_file) for layer in side for name in layer[-1:]):
            return
        by_signature = {_signature(layer): layer for layer in in_file.values()}
        pairs = [(layer, by_signature[_signature(layer)]) for layer in in_model.values()]
        if {NAME, PATH} & set(self._rules.values()) and any(self._are_named(*pair) for pair in pairs):
            return  # another name beside names that are the same is another layer, such as a new head
        for one, other in pairs:
            self._pair_layers(one, other, SHAPE)

    def _are_named(self, one: Sequence[_Variable], other: Sequence[_Variable]) -> bool:
        """Return whether a person has named both layers."""
        return not any(self._is_automatic(name) for side in (one, other) for name in side[0].layer[-1:] or ("0",))

    def by_position(self, are_unnamed: bool = False) -> None:
        in_model, in_file = list(self._left_in_model().values()), list(self._left_in_file().values())
        are_unnamed = are_unnamed or all(
            _POSITION.fullmatch(name) for each in in_file for name in (*each.layer, each.leaf)
        )
        if not self._is_ordered or not are_unnamed or [e.shape for e in in_model] != [e.shape for e in in_file]:
            return
        if not self._unclear(in_model):
            for one, other in zip(in_model, in_file):
                self._pair(one.owner, other.owner, POSITION)

    # Layers

    def _groups(
        self, variables: Iterable[_Variable], split: Callable[[Layer], Tuple[Layer, Layer]]
    ) -> Dict[Layer, List[List[_Variable]]]:
        """Return the layers by their keys: their names, with the class instead of a name that Keras has made up."""
        groups: Dict[Layer, List[List[_Variable]]] = {}
        for layer, inside in _by_layer(variables, lambda each: split(each.layer)[0]).items():
            groups.setdefault(self._key(split(layer)[1]), []).append(inside)
        return groups

    def _key(self, layer: Layer) -> Layer:
        return tuple(_AUTOMATIC + _squeezed(_stem(name)) if self._is_automatic(name) else name for name in layer)

    def _can_nest(self, one: Sequence[_Variable], other: Sequence[_Variable]) -> bool:
        """Return whether the names around two layers agree; some versions leave out those of nested models."""
        short, long = sorted(
            ([name for name in side[0].layer[:-1] if not self._is_automatic(name)] for side in (one, other)), key=len
        )
        return not short or long[-len(short) :] == short

    def _is_automatic(self, name: str) -> bool:
        stem = _stem(name)
        for wrapper in _WRAPPERS:
            stem = stem[len(wrapper) :] if stem.startswith(wrapper) else stem
        return _squeezed(stem) in self._stems or name.isdigit()

    def _pair_layers(self, model: Sequence[_Variable], file: Sequence[_Variable], rule: str) -> None:
        pairs = _inside(model, file)
        for owner, in_file in pairs.items():
            self._pair(owner, in_file, rule)
        if rule == NAME and len(pairs) < max(len(model), len(file)):
            self._closed.update(dict.fromkeys(name for each in model for name in each.layer[-1:]))

    def _pair(self, owner: str, in_file: str, rule: str) -> None:
        self._pairs[owner] = in_file
        self._rules[owner] = rule

    def _left_in_model(self) -> Dict[str, _Variable]:
        taken = self._elsewhere.union(self._pairs)
        return {owner: each for owner, each in self._model.items() if owner not in taken}

    def _left_in_file(self) -> Dict[str, _Variable]:
        taken = set(self._pairs.values())
        return {owner: each for owner, each in self._file.items() if owner not in taken}


def _inside(model: Sequence[_Variable], file: Sequence[_Variable], complete: bool = False) -> Dict[str, str]:
    """Return the pairs of variables of two layers; with ``complete``, none unless all variables have a pair."""
    pairs: Dict[str, str] = {}
    if any(each.leaf.isdigit() for each in (*model, *file)):
        if [each.shape for each in model] == [each.shape for each in file]:
            pairs = {one.owner: other.owner for one, other in zip(model, file)}
    else:
        by_leaf = [_by_leaf(side) for side in (model, file)]
        for leaf, ones in by_leaf[0].items():
            others = by_leaf[1].get(leaf, [])
            if [each.shape for each in ones] == [each.shape for each in others]:
                pairs.update({one.owner: other.owner for one, other in zip(ones, others)})
    return pairs if not complete or len(pairs) == len(model) == len(file) else {}


def _by_leaf(variables: Sequence[_Variable]) -> Dict[str, List[_Variable]]:
    leaves = {each.leaf for each in variables}
    found: Dict[str, List[_Variable]] = {}
    for each in variables:
        same = SAME_NAMES.get(each.leaf, each.leaf)
        is_only_one = same not in leaves and "pointwise_kernel" not in leaves
        found.setdefault(same if is_only_one else each.leaf, []).append(each)
    return found


def _by_layer(variables: Iterable[_Variable], layer: Callable[[_Variable], Layer] = lambda each: each.layer) -> _Layers:
    layers: _Layers = {}
    for each in variables:
        layers.setdefault(layer(each), []).append(each)
    return layers


def _same_part(model: List[List[_Variable]], file: List[List[_Variable]]) -> List[List[_Variable]]:
    """Return the layers of a file that may be these of a model, if both may be parts of it; none if that is unknown."""
    in_model, in_file = ([layer[0].layer for layer in layers] for layers in (model, file))
    if set(in_model) <= set(in_file):
        return [layer for layer in file if layer[0].layer in in_model]
    shifts = {
        tuple(there - here for here, there in zip(_numbers(one), _numbers(other)))
        for one, other in zip(sorted(model, key=_numbers), sorted(file, key=_numbers))
    }
    return file if len(shifts) == 1 and not set(in_model) & set(in_file) else []


def _role(
    connections: Connections, layer: Layer, inputs: Mapping[Layer, str], named: Mapping[Layer, str]
) -> FrozenSet[str]:
    """Return the inputs and the chosen names before a layer, and the chosen names after it."""
    before = connections.before(layer)
    return frozenset(
        {
            *(f"input {key}" for each, key in inputs.items() if each in before),
            *(f"after {name}" for each, name in named.items() if each in before),
            *(f"before {name}" for each, name in named.items() if layer in connections.before(each)),
        }
    )


def _signature(layer: Sequence[_Variable]) -> Tuple[Shape, ...]:
    return tuple(each.shape for each in layer)


def _owner_pairs(pairs: Iterable[Tuple[List[_Variable], List[_Variable]]]) -> FrozenSet[Tuple[Layer, Layer]]:
    return frozenset((one[0].layer, other[0].layer) for one, other in pairs)


def _variables(shapes: Mapping[str, Shape], names: Mapping[str, str]) -> List[_Variable]:
    """Split names; leave out what all names begin with, such as the model's name."""
    paths = [re.sub(r"#[0-9]+$", "", names.get(owner, owner)).split("/") for owner in shapes]
    shared = 0
    while paths and all(len(path) > shared + 2 for path in paths) and len({path[shared] for path in paths}) == 1:
        shared += 1
    return [
        _Variable(owner, tuple(path[shared:-1]), path[-1], tuple(shape))
        for path, (owner, shape) in zip(paths, shapes.items())
    ]


def _inside_layers(shapes: Mapping[str, Shape], names: Mapping[str, str]) -> List[_Variable]:
    """Return the variables of layers inside layers, without what all names begin with left out."""
    paths = {owner: names[owner].split("/") for owner in shapes}
    return [
        _Variable(owner, tuple(path[:-1]), path[-1], tuple(shapes[owner]))
        for owner, path in paths.items()
        if len(path) > 2 and path[-1].isdigit()
    ]


def _levels(around: Layer) -> int:
    """Return how many models the positions lead through: ``layer_with_weights-1`` or ``_operations/1`` for each."""
    return sum(name[-1:].isdigit() for name in around)


def _positions_before(layer: Layer) -> int:
    """Return how many parts of a name are positions of models around the layer."""
    return next((index for index, name in enumerate(layer) if not _POSITION.fullmatch(name)), 0)


def _names_before(levels: int, layer: Layer) -> int:
    """Return the number of models around a layer if it is inside that many."""
    return levels if len(layer) > levels else 0


def _by_start(variables: Iterable[_Variable], length: Callable[[Layer], int]) -> _Layers:
    """Return the variables by the start of their layers' names, which they no longer have; none without a start."""
    found: _Layers = {}
    for each in variables:
        depth = length(each.layer)
        if depth:
            found.setdefault(each.layer[:depth], []).append(each._replace(layer=each.layer[depth:]))
    return found


def common_end(one: str, other: str) -> str:
    """Return the parts with which two names end."""
    parts = []
    for first, second in zip(reversed(one.split("/")), reversed(other.split("/"))):
        if first != second:
            break
        parts.append(first)
    return "/".join(reversed(parts))


def _numbers(layer: Sequence[_Variable]) -> Tuple[int, ...]:
    found = (re.search(r"(?:^|_)([0-9]{1,9})$", name) for name in layer[0].layer)
    return tuple(int(each.group(1)) if each else 0 for each in found)


def _unique(paths: Mapping[str, str]) -> Dict[str, str]:
    """Return path → owner, without paths of several owners."""
    found: Dict[str, str] = {path: owner for owner, path in paths.items()}
    repeated = {path for owner, path in paths.items() if found[path] != owner}
    return {path: owner for path, owner in found.items() if path not in repeated}


def _same_structures(model_paths: Collection[str], file_paths: Collection[str]) -> Set[str]:
    """Return the attributes of a model below which both sides have the same paths.

    Elsewhere an index proves nothing: another layer may have come in between. Containers of numbered layers count only
    if the whole model has the same paths.
    """
    in_model, in_file = (_by_attribute(paths) for paths in (model_paths, file_paths))
    if in_model == in_file:
        return set(in_model)
    return {name for name, paths in in_model.items() if paths == in_file.get(name)} - _CONTAINERS


def _by_model(variables: Mapping[str, _Variable], paths: Mapping[str, str]) -> Dict[str, List[_Variable]]:
    """Return the variables without a path of their own by the path of the model around them."""
    found: Dict[str, List[_Variable]] = {}
    for owner, each in variables.items():
        path = paths.get(owner, "")
        if path.endswith(f"/{INSIDE}"):
            found.setdefault(path, []).append(each)
    return found


def _by_attribute(paths: Collection[str]) -> Dict[str, Set[str]]:
    found: Dict[str, Set[str]] = {}
    for path in paths:
        found.setdefault(path.split("/")[0], set()).add(path)
    return found


def _stem(name: str) -> str:
    return re.sub(r"_\d+$", "", name)


def _squeezed(name: str) -> str:
    """Return a class or the name that Keras makes of it, spelled alike: versions put underscores differently."""
    return name.replace("_", "").lower()


@functools.lru_cache(maxsize=None)
def _own_stems() -> FrozenSet[str]:
    return frozenset({_squeezed(each) for each in layer_classes()} | {"model", "functional", "sequential"})
