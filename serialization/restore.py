"""``restore``: load a file into a model that was built in code, and report what was found."""

from typing import Any, Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import functools
import inspect
import re
import types
import warnings

import numpy as np

from ..registry._argument_checks import is_optimizer, path_of, unexpected
from ..registry.errors import (
    ArgumentError,
    AssumedOrderWarning,
    IncompleteRestoreError,
    IncompleteRestoreWarning,
    NothingRestoredError,
    unknown,
)
from . import formats
from ._connections import Connections, connections_in, connections_of
from ._file_resources import keep_files_open
from ._keras_introspection import (
    all_layers,
    finalize_layers,
    functional_models_in,
    holds_models,
    is_layer,
    is_user_class,
    metric_variables,
    named_layers_in,
    numbers_chosen_names,
    own_variables,
)
from ._matching import (
    INSIDE,
    MAPPING,
    ORDER,
    PATH,
    POSITION,
    SHAPE,
    STRUCTURE,
    Matching,
    Shape,
    common_end,
    layer_key,
    match_owners,
    needs_connections,
    pair_variables,
)
from ._object_paths import ATTRIBUTES, KERAS, object_paths
from ._unnamed_slots import TRAINED, Order, name_weight_list
from ._variable_order import OWN
from ._variables import assign_all, by_owner, owners_of, rows_of, shapes_by_owner, value_of, weights_of
from .formats import ModelInCode
from .formats._keras_weights_h5 import owners_of_model
from .keras._optimizer_config import class_chain, inner_class
from .keras._slots import known_class, slots_of_class
from .optimizer_adapter import OptimizerAdapter, Transfer, adapter_of_model
from .training_state import TrainingState, Value

_MADE_UP = re.compile(r"[0-9]+|[Vv]ariable(_[0-9]+)?(#[0-9]+)?")  # the names of variables without a name
_MAPPING = "tell which variable is which with mapping={name in the file: variable or layer of the model}"


class RestoreReport(NamedTuple):
    """The report of :func:`restore`: what it found in a file and did with it. ``str`` of it is a table.

    Attributes:
        path: The file.
        found: The contents of the file.
        matched: The restored state: variables, slots, iterations, loss scale.
        missing: State that the model or its optimizer has and the file does not.
        unused: State that the file has and the model or its optimizer does not.
        notes: Remarks, in sentences.
        rules: Variable → the rule by which it was matched: mapping, path, name, structure, order, shape or
            position.
        complete: Whether everything in the model and its optimizer came from the file, and all of the file was used.
        assumptions: Facts that the file lacks and that were assumed as Keras itself does, in sentences.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
        >>> model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
        >>> scalekeeper.save_model(model, "model.h5", probe=False)
        >>> report = scalekeeper.restore(model, "model.h5")
        >>> report.complete, report.missing
        (True, [])
    """

    path: str
    found: List[str]
    matched: List[str]
    missing: List[str]
    unused: List[str]
    notes: List[str]
    rules: Mapping[str, str] = types.MappingProxyType({})
    complete: bool = False
    assumptions: Sequence[str] = ()

    def __str__(self) -> str:
        lines = [f"{self.path}: {', '.join(self.found) or 'nothing'}"]
        for title, names in (("restored", self.matched), ("not in the file", self.missing), ("unused", self.unused)):
            if names:
                lines.append(f"  {title} ({len(names)}): {', '.join(names)}")
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines + [f"  assumed: {each}" for each in self.assumptions])


def restore(
    model: Any,
    path: Any,
    *,
    verbose: bool = False,
    partial: bool = False,
    mapping: Optional[Mapping[str, Any]] = None,
    optimizer: Optional[str] = None,
) -> RestoreReport:
    """Load weights and optimizer state from a file of any version into a model.

    Variables are matched by the attributes that lead to them, by names that a person has chosen, and by the order of
    layers that Keras has named. Slots are matched by the variable they belong to.

    Args:
        model: A built model. Its optimizer's state is restored if it is compiled.
        path: An H5 file, a ``.keras`` file, a SavedModel, a checkpoint, or a file of :func:`save_state`.
        verbose: Whether to print the report.
        partial: Whether the file may lack variables and slots of the model.
        mapping: Name in the file → variable or layer of the model, for what cannot be matched otherwise. In a
            checkpoint with several models: path in the checkpoint → the model. ``"optimizer"`` → a list of variables:
            those that were trained, in order, if the file only numbers the optimizer's slots.
        optimizer: The path of the model's optimizer in a checkpoint with several, such as ``"generator_optimizer"``.

    Returns:
        The report; ``complete`` is true if nothing is left over. If something is,
        and ``partial`` is not given, an :class:`IncompleteRestoreWarning` tells what.

    Raises:
        ArgumentError: The model has no variables yet.
        ArgumentTypeError: ``model`` is not a model, or ``path`` is not a path.
        IncompleteRestoreError: The file lacks a variable of the model or a slot. Nothing has been changed.
        NothingRestoredError: Nothing in the file matches the model.
        AmbiguousMatchError: Several models or optimizers in a checkpoint fit.
        UnreadableFileError: The file is corrupt or has an unknown format.
        MissingFileError: There is no such file.

    Example:
        >>> import tensorflow as tf
        >>> import scalekeeper
        >>> def compiled_model():
        ...     model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
        ...     model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
        ...     return model
        >>> scalekeeper.save_model(compiled_model(), "model.h5", probe=False)
        >>> scalekeeper.restore(compiled_model(), "model.h5").complete
        True
    """
    call = "restore(model, path)"
    if inspect.isclass(model) or is_optimizer(model) or not hasattr(type(model), "weights"):
        instead = "; give the model that is compiled with it" if is_optimizer(model) else ""
        raise unexpected(call, "a built Keras model", model, instead)
    path = path_of(path, call)
    _require_variables(model)
    if not isinstance(mapping, (Mapping, type(None))):
        raise unexpected("restore(model, path, mapping={'name in the file': variable})", "a mapping", mapping)
    adapter = adapter_of(model)
    class_name = None if adapter is None else known_class(type(adapter.inner_optimizer).__mro__)
    roots = [name for name, each in (mapping or {}).items() if each is model]
    variables = {name: each for name, each in (mapping or {}).items() if each is not model}
    live = _Live(model, variables)
    in_code = ModelInCode(live.match, adapter is not None, optimizer, roots[0] if roots else None)
    state = formats.read(path, class_name, in_code)
    report = restore_state(model, state, str(path), partial=partial, live=live)
    if verbose:
        print(report)
    if not report.complete and not partial:
        warnings.warn(f"The restore is not complete.\n{report}", IncompleteRestoreWarning, stacklevel=2)
    for each in report.assumptions:
        warnings.warn(f"{path}: {each}", AssumedOrderWarning, stacklevel=2)
    return report


def _require_variables(model: Any) -> None:
    """Raise :class:`ArgumentError` if a model has no variables yet."""
    try:
        has_variables = bool(model.weights)
    except ValueError:  # up to Keras 2.15, of a Sequential model
        has_variables = False
    if not has_variables and not getattr(model, "built", True):
        raise ArgumentError(
            f"restore expects a built model, and this {type(model).__name__} has no variables yet: call "
            "model.build(input_shape), or the model with an input, before"
        )


class _Live:
    """A model in code, and how its variables match those of a file."""

    def __init__(self, model: Any, mapping: Optional[Mapping[str, Any]] = None) -> None:
        self.variables = by_owner(weights_of(model))
        self._model = model
        self._shapes = {owner: tuple(variable.shape) for owner, variable in self.variables.items()}
        self._mapping = dict(mapping or {})
        self.trained = self._listed_variables()
        self._names = nested_names(model)
        self._paths = functools.lru_cache(maxsize=None)(lambda kind: object_paths(model, kind))
        self._connections = functools.lru_cache(maxsize=None)(lambda: connections_in(model))

    def _listed_variables(self) -> Optional[List[str]]:
        """Take the list of trained variables out of the caller's mapping, and return their owners."""
        if not isinstance(self._mapping.get(TRAINED), (list, tuple)):
            return None
        owners = {id(variable): owner for owner, variable in self.variables.items()}
        listed = [owners.get(id(each)) for each in self._mapping.pop(TRAINED)]
        found = [owner for owner in listed if owner is not None]
        if len(found) < len(listed) or len(set(found)) < len(found):
            raise ArgumentError(f"mapping: {TRAINED!r} must list different variables of the model")
        return found

    @property
    def classes(self) -> FrozenSet[str]:
        """The classes of all layers, from which Keras makes names."""
        return frozenset(type(layer).__name__ for layer in all_layers(self._model))

    def match(self, state: TrainingState) -> Matching:
        """Match the model's variables with those of a training state, which gets the names of scalekeeper's record."""
        name_variables(state)
        if not state.variables:
            return self._match_trained(state)._replace(missing=[], unused=[])
        paths, kind = _paths_in_file(state)
        found = match_owners(
            self._shapes,
            {owner: value.shape for owner, value in state.variables.items()},
            state.is_ordered,
            names={owner: name for owner, name in self._names.items() if not _is_there(owner, name, state)},
            file_names=_names_in_file(state),
            classes=self.classes,
            model_paths=self._paths(kind) if paths else {},
            file_paths=paths,
            mapping=self._resolve(state),
            has_layer_names=state.has_layer_names,
            has_numbers=numbers_chosen_names(),
            connections=self._connections,
            file_connections=_connections_in_file(state),
            names_by_attribute=self._names_by_attribute(state),
            file_names_by_attribute=state.names_by_attribute,
        )
        metrics = {id(each) for each in metric_variables(self._model)}  # some files of Keras do not have them
        missing = [owner for owner in found.missing if id(self.variables[owner]) not in metrics]
        return found._replace(missing=missing)

    def _names_by_attribute(self, state: TrainingState) -> Mapping[str, str]:
        return owners_of_model(self._model) if state.names_by_attribute and not state.paths else {}

    def _match_trained(self, state: TrainingState) -> Matching:
        """Match by the trained variables that scalekeeper has recorded, whose order is that of a training loop."""
        trained = shapes_by_owner(self._model.trainable_variables)
        found = match_owners(
            trained,
            state.owners,
            classes=self.classes,
            is_whole=not self.frozen_layers,
            has_numbers=numbers_chosen_names(),
            connections=self._connections,
            file_connections=_connections_in_file(state),
        )
        # a second variable of the same name, in another nested model, may be either
        repeated = {name.split("#")[0] for name in (*trained, *state.owners) if "#" in name}
        # up to TF 2.2 it has a number, which depends on the order in which the models were made
        ends = [self._names.get(owner, owner).split("/")[-owner.count("/") - 1 :] for owner in trained]
        repeated.update(owner for owner, end in zip(trained, ends) if ends.count(end) > 1)
        pairs = {owner: name for owner, name in found.pairs.items() if owner.split("#")[0] not in repeated}
        return found._replace(pairs=pairs)

    @property
    def frozen_layers(self) -> FrozenSet[str]:
        """The names of layers with variables that are not trained although they could be."""
        layers = [layer for layer in all_layers(self._model) if not hasattr(layer, "layers") and weights_of(layer)]
        return frozenset(layer.name for layer in layers if not layer.trainable)

    def assumed_order(self, state: TrainingState, matching: Matching) -> List[str]:
        """Return what was matched by order only although shapes are equal and nothing in the file proves the order."""
        found: List[str] = []
        matchings = [matching]
        if state.variables and self._has_other_names(state) and not self._pairs_by_layer(state, matching):
            matchings.append(self._match_trained(state))
            found += matchings[1].assumptions
        numbered = [layer for each in matchings for layer in self._numbered_layers(state, each)]
        if numbered:
            listed = ", ".join(dict.fromkeys(numbered))
            found.append(
                f"{listed}: Keras has numbered these layers, and the file does not tell which attributes lead to "
                "them. They were taken in order. If the program creates them in another order than when it saved the "
                f"file, they are exchanged: {_MAPPING}, or use a checkpoint or a file of scalekeeper.save_model"
            )
        positions = [layer for layer in self._layers_by_position(state, matching) if layer not in numbered]
        if positions:
            found.append(
                f"{', '.join(positions)}: the file has no names of layers, and these have equal shapes. They were "
                "taken in order. If the program builds them in another order than when it saved the file, they are "
                f"exchanged: {_MAPPING}, or use a checkpoint or a file of scalekeeper.save_model"
            )
        for layer, owners in self._numbered_variables(state, matching).items():
            found.append(
                f"{', '.join(owners)}: the file numbers these variables of {layer}. They were taken in order. If the "
                "layer creates them in another order than when the file was saved, they are exchanged: give them names "
                f"and use scalekeeper.save_model, or {_MAPPING}"
            )
        found += self._other_attributes(state, matching)
        return found + self._numbered_in_mappings(state, matching) + self._numbered_branches(matching)

    def _other_attributes(self, state: TrainingState, matching: Matching) -> List[str]:
        """Return what was matched although the file has it in another attribute: it may be another layer."""
        paths, kind = _paths_in_file(state)
        here = self._paths(kind) if paths and PATH in matching.rules.values() else {}
        attributes = {
            (here[owner].split("/")[0], paths[matching.pairs[owner]].split("/")[0]): None
            for owner, rule in matching.rules.items()
            if rule in (ORDER, STRUCTURE, SHAPE, POSITION) and owner in here and matching.pairs[owner] in paths
        }
        renamed = [f"{one} from {other}" for one, other in attributes if one != other]
        return [
            f"{each}: Keras has numbered these layers, and the file has another attribute. If it is another layer, "
            f"such as a new head, it has wrong values: name the layers, or {_MAPPING}"
            for each in renamed
        ]

    def _numbered_layers(self, state: TrainingState, matching: Matching) -> List[str]:
        """Return layers of a subclassed model, or inside a layer of another one, that only their order tells apart.

        The connections of a functional model decide between its layers, not between those inside one of them.
        """
        connections = self._connections()
        groups: Dict[object, Dict[str, List[Shape]]] = {}
        for owner, rule in matching.rules.items():
            if rule not in (ORDER, STRUCTURE, POSITION) or owner not in self._shapes:
                continue
            layer, group = owner.rpartition("/")[0], None
            if connections is not None:
                names = tuple(self._names.get(owner, owner).split("/")[:-1])
                around = connections.find(names)
                # Keras itself has loaded those of a .keras file by attributes
                if around is None or len(names) <= len(around) or matching.pairs[owner] in state.numbered:
                    continue
                group = (around, layer_key(names, self.classes))
            groups.setdefault(group, {}).setdefault(layer, []).append(self._shapes[owner])
        found = []
        for layers in groups.values():
            shapes = list(layers.values())
            found += [layer for layer, own in layers.items() if layer and shapes.count(own) > 1]
        return found

    def _layers_by_position(self, state: TrainingState, matching: Matching) -> List[str]:
        """Return the layers of equal shapes that were matched by position, and that no name in the file confirms."""
        layers: Dict[str, List[Shape]] = {}
        for owner, rule in matching.rules.items():
            in_file = matching.pairs.get(owner, "").rpartition("/")[0]
            is_named = state.has_layer_names and in_file == owner.rpartition("/")[0]
            if rule == POSITION and owner in self._shapes and not is_named:
                layers.setdefault(owner.rpartition("/")[0], []).append(self._shapes[owner])
        shapes = list(layers.values())
        return [layer for layer, own in layers.items() if layer and shapes.count(own) > 1]

    def _numbered_variables(self, state: TrainingState, matching: Matching) -> Dict[str, List[str]]:
        """Return the variables that a layer of a user's own has itself and that the file only numbers, by layer.

        The layers of Keras create theirs in the same order always.
        """
        owners = {id(variable): owner for owner, variable in self.variables.items()}
        found = {}
        for layer in all_layers(self._model):
            own = [owners.get(id(each), "") for each in own_variables(layer)] if is_user_class(type(layer)) else []
            numbered = [owner for owner in own if owner in matching.pairs and self._is_numbered(owner, state, matching)]
            shapes = [self._shapes[owner] for owner in numbered]
            alike = [owner for owner in numbered if shapes.count(self._shapes[owner]) > 1]
            if alike:
                found[layer.name] = alike
        return found

    def _is_numbered(self, owner: str, state: TrainingState, matching: Matching) -> bool:
        """Return whether a variable was matched by its number in its layer."""
        in_file, rule = matching.pairs[owner], matching.rules.get(owner)
        by_attribute = rule == PATH and state.paths.get(in_file, INSIDE).split("/")[-2:-1] != [OWN]
        is_number = in_file in state.numbered or bool(_MADE_UP.fullmatch(in_file.rpartition("/")[2]))
        return rule != MAPPING and not by_attribute and is_number

    def _numbered_in_mappings(self, state: TrainingState, matching: Matching) -> List[str]:
        """Return the dictionaries of layers that a file numbers in the order in which a program fills them."""
        owners = {id(variable): owner for owner, variable in self.variables.items()}
        found = []
        for layer in all_layers(self._model):
            for name, value in vars(layer).items():
                # TensorFlow's own dictionaries have names that begin with _self_
                inside = list(value.values()) if isinstance(value, dict) and not name.startswith("_self_") else ()
                own = [[owners.get(id(each), "") for each in weights_of(one)] for one in inside if is_layer(one)]
                shapes = [
                    [self._shapes[owner] for owner in each]
                    for each in own
                    if each and all(self._is_by_keras_path(owner, state, matching) for owner in each)
                ]
                if any(shapes.count(each) > 1 for each in shapes):
                    found.append(
                        f"{name}: the file numbers the layers in this dictionary, which were taken in order. If the "
                        "program fills it in another order than when it saved the file, they are exchanged: name the "
                        f"layers, use scalekeeper.save_model, or {_MAPPING}"
                    )
        return found

    def _is_by_keras_path(self, owner: str, state: TrainingState, matching: Matching) -> bool:
        """Return whether attributes in a ``.keras`` or ``.weights.h5`` file, and no chosen name, led to a variable."""
        if matching.rules.get(owner) != PATH or matching.pairs[owner] not in state.paths:
            return False
        is_named = state.has_layer_names and matching.pairs[owner].rpartition("/")[0] == owner.rpartition("/")[0]
        return _paths_in_file(state)[1] == KERAS and not is_named

    def _numbered_branches(self, matching: Matching) -> List[str]:
        """Return the models in a subclassed one whose layers beside each other only their connections tell apart."""
        if self._connections() is not None:
            return []
        owners = {id(variable): owner for owner, variable in self.variables.items()}
        found = []
        for model in functional_models_in(self._model):
            rules = {matching.rules.get(owners.get(id(each), "")) for each in weights_of(model)}
            connections = connections_in(model) if PATH in rules else None
            shapes = shapes_by_owner(weights_of(model))
            if connections is not None and needs_connections(shapes, nested_names(model), self.classes, connections):
                found.append(
                    f"{model.name}: Keras has numbered layers beside each other, and the file does not tell to which "
                    "inputs or layers each is connected. They were taken in order. If the program creates them in "
                    f"another order than when it saved the file, they are exchanged: name the layers, or {_MAPPING}"
                )
        return found

    def slot_pairs(self, state: TrainingState, matching: Matching) -> Mapping[str, str]:
        """Return owner among the trained variables → owner of slots, which may have other names in the file.

        A second variable of a name has another owner among the trained variables than among all.
        """
        if self._has_other_names(state):
            return self._pairs_by_layer(state, matching) or self._match_trained(state).pairs
        trained = self._model.trainable_variables
        owners = {id(variable): owner for owner, variable in self.variables.items()}
        pairs = ((name, owners.get(id(variable), "")) for variable, name in zip(trained, owners_of(trained)))
        return {name: matching.pairs[owner] for name, owner in pairs if owner in matching.pairs}

    def _has_other_names(self, state: TrainingState) -> bool:
        """Return whether the slots of a file have other names than its variables."""
        return bool(state.owners) and not state.slots.keys() <= state.variables.keys()

    def _pairs_by_layer(self, state: TrainingState, matching: Matching) -> Dict[str, str]:
        """Return the pairs of trained variables whose layers have been matched; none unless these are all.

        Keras 3 writes the names of layers, and the names of the slots' owners begin with them.
        """
        trained = shapes_by_owner(self._model.trainable_variables) if state.has_layer_names else {}
        models = {owner.partition("/")[0] for owner in state.owners}
        for start in ("", *(f"{name}/" for name in models if len(models) == 1)):
            names = {
                owner: f"{start}{matching.pairs.get(owner, '').rpartition('/')[0]}/{owner.rpartition('/')[2]}"
                for owner in trained
            }
            found = {owner: name for owner, name in names.items() if state.owners.get(name) == trained[owner]}
            if len(found) == len(state.owners) == len(set(found.values())):
                return found
        return {}

    def may_have_order_of(self, state: TrainingState, matching: Matching) -> bool:
        """Return whether the variables may have the order of those in a file that numbers slots.

        They have the same paths, or else, as far as the order in the file is not known, the same layers in order.
        """
        if state.paths:
            here = self._paths(state.path_kind)
            return all(here.get(one) == state.paths.get(other) for one, other in matching.pairs.items())
        pairs = matching.pairs.values()
        layers = (dict.fromkeys(name.split("/")[0] for name in names) for names in (pairs, state.variables))
        in_model, in_file = layers
        return state.is_ordered or list(in_model) == [name for name in in_file if name in in_model]

    def _resolve(self, state: TrainingState) -> Dict[str, str]:
        """Return owner in the model → owner in the file, as the caller's mapping says."""
        found: Dict[str, str] = {}
        owners = {id(variable): owner for owner, variable in self.variables.items()}
        for name, target in self._mapping.items():
            inside = _inside(name, state)
            if not inside:
                raise ArgumentError(unknown("name", name, list(state.variables), of="the file"))
            wanted = [target] if id(target) in owners else list(getattr(target, "weights", ()))
            if not wanted or not all(id(each) in owners for each in wanted):
                raise ArgumentError(f"mapping: {name} must be mapped to a variable or a layer of the model")
            here = {owners[id(each)]: tuple(each.shape) for each in wanted}
            pairs = match_owners(
                here, inside, state.is_ordered, names=self._names, file_names=_names_in_file(state)
            ).pairs
            pairs = pairs if len(pairs) == len(here) else pair_variables(here, inside)
            if len(pairs) != len(wanted):
                raise ArgumentError(
                    f"mapping: {name} has shapes {list(inside.values())} in the file, and "
                    f"{[tuple(each.shape) for each in wanted]} in the model"
                )
            found.update(pairs)
        return found


def _paths_in_file(state: TrainingState) -> Tuple[Mapping[str, str], str]:
    """Return owner → attributes in a file, and how they are spelled: as recorded by scalekeeper, or by the file."""
    if state.variables.keys() == state.model_variables.keys() == state.model_attributes.keys():
        return state.model_attributes, ATTRIBUTES
    return state.paths, state.path_kind


def _inside(name: str, state: TrainingState) -> Dict[str, Shape]:
    """Return the shapes of a file's variables that a name of the caller's mapping means, by owner."""
    shapes = {owner: value.shape for owner, value in state.variables.items()}
    whole = _names_in_file(state)
    first = {owner: shape for owner, shape in shapes.items() if f"{whole.get(owner, owner)}/".startswith(f"{name}/")}
    return first or {
        owner: shape for owner, shape in shapes.items() if f"/{name}/" in f"/{owner}/" or state.paths.get(owner) == name
    }


def nested_names(model: Any) -> Dict[str, str]:
    """Return owner → whole name of variables that some versions name without their model, or with a number."""
    whole = _whole_names(model)
    names = ((owner, whole.get(id(variable), owner)) for owner, variable in by_owner(weights_of(model)).items())
    return {owner: name for owner, name in names if name != owner}


def _whole_names(layer: Any) -> Dict[int, str]:
    """Return the names of variables, by their ids, with those of the layers around them inside this one."""
    found: Dict[int, str] = {}
    for each in named_layers_in(layer):
        has_models = holds_models(each)
        inside = _whole_names(each) if has_models else {}
        for name, variable in by_owner(weights_of(each)).items():
            whole = _with_layer(inside.get(id(variable), name), each.name, has_models)
            # a layer may be in several nested models
            found[id(variable)] = common_end(found.get(id(variable), whole), whole)
    return found


def _is_there(owner: str, name: str, state: TrainingState) -> bool:
    """Return whether a file has a variable under the name with a number that TensorFlow has given it here."""
    return owner in state.variables and owner.count("/") == name.count("/")


def _with_layer(name: str, layer: str, is_model: bool) -> str:
    """Return the name of a variable with the name of its layer.

    Up to TF 2.2, a second layer of the same name has variables with a number: ``encoder_1/kernel``.
    """
    if f"/{layer}/" in f"/{name}":
        return name
    if is_model:
        return f"{layer}/{name}"
    return re.sub(rf"(^|/){re.escape(layer)}_[0-9]+/", rf"\g<1>{layer}/", name, count=1)


def _names_in_file(state: TrainingState) -> Dict[str, str]:
    """Return owner → whole name in a file, by scalekeeper's record or by the layers of an H5 file."""
    if state.variables.keys() == state.model_variables.keys():
        return state.model_names
    return {owner: _with_layer(owner, layer, False) for layer, owners in state.layers.items() for owner in owners}


def _connections_in_file(state: TrainingState) -> Optional[Connections]:
    """Return the connections of the layers in a file: recorded by scalekeeper, or in the model's configuration."""
    return state.connections or connections_of(state.model_config)


def name_variables(state: TrainingState) -> None:
    """Give the variables of a file, and their slots, the names that scalekeeper has recorded."""
    recorded = state.model_variables
    if not recorded or not state.variables or recorded.keys() == state.variables.keys():
        return
    shapes = {owner: value.shape for owner, value in state.variables.items()}
    pairs = match_owners(
        recorded,
        shapes,
        state.is_ordered,
        names=state.model_names,
        is_same_program=True,
        model_paths=state.model_paths,
        file_paths=state.paths,
        has_numbers=numbers_chosen_names(),
        names_by_attribute=state.model_paths if not state.paths else {},
        file_names_by_attribute=state.names_by_attribute,
    ).pairs
    # the record has all variables of the model, but not those of metrics; elsewhere names may differ
    if len(pairs) == len(recorded) and (len(recorded) == len(shapes) or state.model_attributes):
        names = {in_file: owner for owner, in_file in pairs.items()}
        if state.slots.keys() <= names.keys():
            state.slots = {names[owner]: slots for owner, slots in state.slots.items()}
        state.variables = {owner: state.variables[pairs[owner]] for owner in recorded}
        by_attribute = state.names_by_attribute
        state.names_by_attribute = {
            owner: by_attribute[pairs[owner]] for owner in recorded if pairs[owner] in by_attribute
        }
        state.paths = {owner: state.paths[pairs[owner]] for owner in recorded if pairs[owner] in state.paths}
        state.is_ordered = state.has_layer_names = True


@keep_files_open()
def match_loaded(model: Any, state: TrainingState, path: str, *, partial: bool = False) -> Matching:
    """Match the variables of a model that Keras has loaded, and compare their values with those of the file.

    Args:
        model: The model.
        state: The file's state.
        path: The file, for messages.
        partial: Whether the model may have variables that the file does not have.

    Returns:
        The matching. A variable that no name decides is matched by its value, if no other variable has the same.

    Raises:
        IncompleteRestoreError: A variable of the model has no value of the file.
    """
    live = _Live(model)
    matching = live.match(state)
    same = {
        owner: in_file
        for owner, in_file in matching.pairs.items()
        if _is_loaded(live.variables[owner], state.variables[in_file])
    }
    taken = set(same.values())
    found = {
        owner: [name for name, value in state.variables.items() if name not in taken and _is_loaded(variable, value)]
        for owner, variable in live.variables.items()
        if owner not in same
    }
    chosen = [each for candidates in found.values() for each in candidates]
    by_value = {owner: each[0] for owner, each in found.items() if len(each) == 1 and chosen.count(each[0]) == 1}
    _refuse_exchanged(matching.pairs, by_value, path)
    pairs = {**same, **by_value}
    metrics = {id(each) for each in metric_variables(model)}
    missing = [owner for owner, each in live.variables.items() if owner not in pairs and id(each) not in metrics]
    unused = [owner for owner in state.variables if owner not in pairs.values()]
    rules = {**{owner: matching.rules[owner] for owner in same}, **dict.fromkeys(by_value, "value")}
    if missing and not partial:
        report = RestoreReport(path, contents_of(state), list(pairs), missing, unused, list(state.notes), rules)
        raise IncompleteRestoreError(
            f"{report}\nThe file has no values for {', '.join(missing)} of the model that Keras has built. Build the "
            "model in code, compile it, and call scalekeeper.restore(model, path); or pass allow_partial=True",
            report,
        )
    return Matching(pairs, missing, unused, rules, matching.notes)


def _refuse_exchanged(by_name: Mapping[str, str], by_value: Mapping[str, str], path: str) -> None:
    """Raise IncompleteRestoreError if Keras has given variables of a layer each other's values, going by numbers."""
    for owner, in_file in by_value.items():
        named = by_name.get(owner, in_file)
        if named != in_file and named.rpartition("/")[0] == in_file.rpartition("/")[0]:
            message = (
                f"{path}: Keras has loaded the value of {in_file} into {owner}, as the layer creates its variables in "
                "another order than when the file was saved. Build the model in code, compile it, and call "
                "scalekeeper.restore(model, path)"
            )
            raise IncompleteRestoreError(message, RestoreReport(path, [], [], [owner], [in_file], []))


def _is_loaded(variable: Any, value: Value) -> bool:
    """Return whether a variable has the value of a file; of a large one, the beginning is compared."""
    if tuple(variable.shape) != value.shape:
        return False
    given = value.read() if value.read_start is None else value.read_start()
    array = value_of(variable) if value.read_start is None else rows_of(variable, len(given))
    return bool(np.array_equal(array, given) or ((array == given) | ((array != array) & (given != given))).all())


@keep_files_open()
def restore_state(
    model: Any,
    state: TrainingState,
    path: str,
    with_weights: bool = True,
    *,
    partial: bool = False,
    may_lack_slots: bool = False,
    live: Optional[_Live] = None,
    matching: Optional[Matching] = None,
) -> RestoreReport:
    """Load a training state into a model; without weights, into its optimizer alone.

    Args:
        model: The model.
        state: The state.
        path: The file, for messages.
        with_weights: Whether to load the model's variables, too.
        partial: Whether variables and slots of the model may be missing.
        may_lack_slots: Whether the file may have no slots at all, or, if scalekeeper wrote it and all of its slots are
            used, none for some variables: then the optimizer that was saved had none.
        live: The model with the caller's mapping.
        matching: How the variables match, if it is known already.
    """
    live = _Live(model) if live is None else live
    matching = live.match(state) if matching is None else matching
    with_weights = with_weights and bool(state.variables)
    optimizer = adapter_of(model)
    assumed: Sequence[str] = ()
    if optimizer is not None:
        _drop_slots_of_other_class(state, optimizer)
        order = Order(live.trained, live.may_have_order_of(state, matching), is_rebuilt=may_lack_slots)
        assumed = name_weight_list(state, model, matching.pairs, optimizer, order)
    report = RestoreReport(
        path,
        contents_of(state),
        list(matching.pairs) if with_weights else [],
        list(matching.missing),
        list(matching.unused),
        [*state.notes, *matching.notes],
        matching.rules,
    )
    if not matching.pairs and (state.variables or state.owners):
        raise _nothing_restored(report._replace(matched=[]))

    def check(transfer: Transfer) -> None:
        required = [*matching.missing, *transfer.missing_slots]
        if may_lack_slots and not _lacks_some_slots(state, transfer):
            required = matching.missing
        if required and not partial:
            whole = _with_transfer(report, transfer)
            part = "allow_partial=True to load" if may_lack_slots else "partial=True to restore"
            raise IncompleteRestoreError(
                f"{whole}\nThe file lacks {', '.join(required)}. Build the model that the file was saved from; or "
                f"{_MAPPING}; or pass {part} a part only",
                whole,
            )

    if optimizer is not None:
        # before the weights: the optimizer refuses what does not fit, and then nothing has changed
        transfer = optimizer._take_state(state, model.trainable_variables, live.slot_pairs(state, matching), check)
        report = _with_transfer(report, transfer)
    else:
        check(Transfer([], [], [], []))
        if state.slots or state.weight_list or state.iterations is not None:
            report.unused.append("the optimizer's state")
            report.notes.append("the optimizer's state was ignored: the model is not compiled with an optimizer")
    if with_weights:
        report.missing.extend(_missing_vocabularies(model, state.model_config))
        report.missing.extend(_other_optimizers(model))
        assign_all((live.variables[owner], state.variables[in_file]) for owner, in_file in matching.pairs.items())
        finalize_layers(model)
    if not report.matched and (with_weights or report.unused):  # a file may have an optimizer without any state
        raise _nothing_restored(report)
    is_complete = not report.missing and not report.unused
    assumed = [*matching.assumptions, *live.assumed_order(state, matching), *assumed]
    return report._replace(complete=is_complete, assumptions=list(dict.fromkeys(assumed)))


def _missing_vocabularies(model: Any, config: Any) -> List[str]:
    """Return the lookup layers whose vocabulary may not be that of a file; restore does not read vocabularies.

    Without a configuration in the file, a vocabulary that the constructor got is a part of the code.
    """
    layers = [layer for layer in all_layers(model) if hasattr(layer, "get_vocabulary")]
    inside = [getattr(layer, "_lookup_layer", None) for layer in layers]  # of TextVectorization
    recorded = dict(_vocabularies(config))
    found = []
    for layer in layers:
        given, in_file = layer.get_config().get("vocabulary"), recorded.get(layer.name)
        is_code = given is not None and config is None
        is_same = given is not None and in_file is not None and list(map(str, given)) == list(map(str, in_file))
        if not is_code and not is_same and not any(layer is each for each in inside):
            found.append(f"{layer.name}: vocabulary")
    return found


def _other_optimizers(model: Any) -> List[str]:
    """Return the attributes that hold another optimizer than the one that the model is compiled with."""
    own = getattr(model, "optimizer", None)
    known = {id(own), id(getattr(own, "inner_optimizer", None))}
    attributes = [each for layer in all_layers(model) for each in list(vars(layer).items())]
    return [
        f"{name}: the state of this optimizer"
        for name, each in attributes
        if hasattr(type(each), "apply_gradients") and id(each) not in known
    ]


def _vocabularies(config: Any) -> Iterator[Tuple[str, Any]]:
    """Yield the names of the lookup layers in a model's configuration, with their vocabularies."""
    for each in config.values() if isinstance(config, Mapping) else config if isinstance(config, list) else ():
        if isinstance(each, Mapping) and "vocabulary" in each and "name" in each:
            yield each["name"], each["vocabulary"]
        yield from _vocabularies(each)


def _lacks_some_slots(state: TrainingState, transfer: Transfer) -> bool:
    """Return whether a file has slots, but not all that its optimizer had, as far as that is known."""
    if not transfer.missing_slots or not (state.slots or state.weight_list):
        return False
    restored, missing = (
        {name.rpartition(": ")[0] for name in names} for names in (transfer.matched, transfer.missing_slots)
    )
    is_used = not state.weight_list and not any(name.rpartition(": ")[0] in state.slots for name in transfer.unused)
    return state.writer.scalekeeper is None or not is_used or bool(restored & missing)


def _with_transfer(report: RestoreReport, transfer: Transfer) -> RestoreReport:
    """Return the report with what was done to the optimizer."""
    return report._replace(
        matched=report.matched + transfer.matched,
        missing=report.missing + transfer.missing,
        unused=report.unused + transfer.unused,
        notes=report.notes + transfer.notes,
    )


def adapter_of(model: Any) -> Optional[OptimizerAdapter]:
    """Return the optimizer of a compiled model if it gives and takes training state; None otherwise."""
    return adapter_of_model(model)


def _nothing_restored(report: RestoreReport) -> NothingRestoredError:
    message = f"{report}\nNothing in the file matches this model. Build the model that it was saved from; or {_MAPPING}"
    return NothingRestoredError(message, report)


def _drop_slots_of_other_class(state: TrainingState, optimizer: Any) -> None:
    """Leave out the slots of an optimizer of another class, which may have equal names and mean something else."""
    in_file, here = inner_class(state.optimizer_config), type(optimizer.inner_optimizer)
    classes = {cls.__name__ for cls in here.__mro__}
    # an optimizer that holds another one has its configuration, too
    if in_file is None or classes.intersection(class_chain(state.optimizer_config)) or not slots_of_class(in_file):
        return
    state.notes.append(f"The file has the state of {in_file}; the model is compiled with {here.__name__}.")
    state.slots, state.weight_list, state.scalars = {}, [], {}


def contents_of(state: TrainingState) -> List[str]:
    """Return what a training state holds, in a few words each."""
    slots = sum(len(each) for each in state.slots.values())
    numbers = ", ".join(f"{name} {value:g}" for name, value in state.loss_scale_state.items())
    parts: Sequence[Tuple[Any, str]] = (
        (state.variables, f"{len(state.variables)} variables"),
        (slots, f"{slots} slots"),
        (state.iterations is not None, f"iterations {state.iterations}"),
        (state.loss_scale_state, f"loss scale {numbers}"),
    )
    return [text for is_there, text in parts if is_there]
