"""The layout of a checkpoint: which nodes of its object graph are the model, the optimizer and its slots.

It works for every version, and for the variables of SavedModels. Whatever names a program has given its objects, an
object with iterations is an optimizer, and the rest is the model.
"""

from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Set,
    Tuple,
)

import glob
import importlib
import os
import re
import types

from ...registry._documents import ADVANCE, HOLD
from ...registry.errors import MissingFileError, UnreadableFileError
from ..keras._slots import (
    class_of_parts,
    ending_part,
    owner_after_part,
    owner_and_slot,
    scalar_name,
    slot_of_part,
    slot_part,
)
from ..keras.profile import SKIPPED_STEPS_CHILD, KerasProfile, profile_of_checkpoint
from ..training_state import SKIPS, TOTAL, TrainingState, Value, Writer, complete_skips
from ._object_graph import ObjectGraph

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_INNER = ("base_optimizer", "inner_optimizer")  # up to 2.2, and from Keras 3 on
_ITERATIONS = ("iter", "_iterations", "iterations")
_RATES = ("learning_rate", "_learning_rate")
TRAINED = "_trainable_variables"  # the list of the model's variables in Keras 3's optimizers
_HYPERS = frozenset({"beta_1", "beta_2", "decay", "momentum", "rho", "epsilon", "initial_accumulator_value"})
_NOT_SCALARS = _HYPERS | {"_current_learning_rate", SKIPPED_STEPS_CHILD}
# children of a model that are not layers
_NOT_LAYERS = frozenset({"keras_api", "signatures", "save_counter"}).union(
    f"{underscore}{name}"
    for name in ("metrics", "compiled_metrics", "compile_metrics", "compiled_loss", "compile_loss", "loss_tracker")
    for underscore in ("", "_")
)
# children that list variables again; those of an exported model are other objects of the same names
_REPEATED = frozenset({"variables", "trainable_variables", "non_trainable_variables"})


class Layout(NamedTuple):
    """A checkpoint with the node ids of its parts, from which it can be rewritten."""

    state: TrainingState
    graph: ObjectGraph
    value: Callable[[str], Value]  # by key
    owners: Dict[int, str]  # node of a model variable → owner
    optimizer: Optional[int] = None  # its node, if there is one; the following are about it
    parts: FrozenSet[int] = frozenset()  # all of its nodes
    hypers: Mapping[str, Value] = types.MappingProxyType({})  # hyperparameters that are variables in legacy ones
    profile: Optional[KerasProfile] = None  # the Keras generation that wrote it, as far as its children tell


def layout_of(path: str, class_name: Optional[str] = None) -> Layout:
    """Return what a checkpoint holds, and where."""
    checkpoint = _Checkpoint(prefix_of(path))
    try:
        return _layout(checkpoint, class_name)
    except UnreadableFileError:
        raise
    except (ValueError, TypeError, OverflowError) as error:  # such as text instead of a number
        raise checkpoint.corrupt(error) from error


def _layout(checkpoint: "_Checkpoint", class_name: Optional[str]) -> Layout:
    reading = _Reading(checkpoint, TrainingState(Writer("checkpoint")), class_name)
    layout = Layout(reading.state, checkpoint.graph, checkpoint.value, reading.owners)
    optimizer = reading.find_optimizer()
    if optimizer is None:
        reading.take_variables(set(), [])
        return layout
    parts, inner = reading.take(optimizer), reading.inner(optimizer)
    children = checkpoint.graph.nodes[inner].children
    return layout._replace(
        optimizer=optimizer,
        parts=frozenset(parts),
        hypers={name: value for name, value in reading.numbers(inner).items() if name in _HYPERS},
        profile=profile_of_checkpoint(children),
    )


def prefix_of(path: str) -> str:
    """Return the prefix of a checkpoint's files: of the latest one if the path is a folder."""
    if os.path.isdir(path):
        found = sorted(glob.glob(os.path.join(glob.escape(path), "*.index")))
        latest = tensorflow_for(path).train.latest_checkpoint(path) if found else None
        found = [latest + ".index"] if latest else found
        if len(found) != 1:
            names = ", ".join(os.path.basename(each) for each in found) or "none"
            raise UnreadableFileError(
                f"{path}: cannot tell which checkpoint in the folder is the latest, found {names}"
            )
        path = found[0]
    prefix = re.sub(r"\.(index|data-\d+-of-\d+)$", "", path)
    if not os.path.exists(prefix + ".index"):
        raise MissingFileError(f"{prefix}.index: no such file")
    return prefix


def tensorflow_for(path: str) -> Any:
    """Return TensorFlow, which reading a checkpoint needs."""
    try:
        return importlib.import_module("tensorflow")
    except ImportError as error:
        raise UnreadableFileError(
            f"{path}: reading checkpoints and SavedModels needs TensorFlow, which cannot be imported: {error}"
        ) from error


class _Checkpoint:
    """An open checkpoint."""

    def __init__(self, prefix: str) -> None:
        tf = tensorflow_for(prefix)
        self.prefix = prefix
        try:
            self._reader = tf.train.load_checkpoint(prefix)
            self._shapes = self._reader.get_variable_to_shape_map()
            self._types = self._reader.get_variable_to_dtype_map()
        except Exception as error:  # TensorFlow raises many types
            raise self.corrupt(error) from error
        if OBJECT_GRAPH not in self._shapes:
            raise UnreadableFileError(
                f"{prefix}: a checkpoint without an object graph, as TensorFlow 1's Saver writes it: save it again "
                "with tf.train.Checkpoint"
            )
        graph = self._tensor(OBJECT_GRAPH)
        try:
            self.graph = ObjectGraph.parsed(graph)
        except (TypeError, ValueError) as error:
            raise self.corrupt(error) from error

    def value(self, key: str) -> Value:
        """Return the array of a key, to be read on demand."""
        if key not in self._shapes:
            raise UnreadableFileError(f"{self.prefix}: its object graph refers to {key}, which does not exist")
        return Value(tuple(self._shapes[key]), self._types[key].name, lambda: self._tensor(key))

    def _tensor(self, key: str) -> Any:
        try:
            return self._reader.get_tensor(key)
        except Exception as error:  # TensorFlow raises many types
            raise self.corrupt(error) from error

    def corrupt(self, error: Exception) -> UnreadableFileError:
        """Return the error for a checkpoint that cannot be read."""
        reason = str(error).split("\n")[0]
        return UnreadableFileError(f"{self.prefix}: not a readable checkpoint, or truncated: {reason}")


class _Reading:
    """The conversion of one checkpoint to a training state."""

    def __init__(self, checkpoint: _Checkpoint, state: TrainingState, class_name: Optional[str]) -> None:
        self.checkpoint = checkpoint
        self.graph = checkpoint.graph
        self.state = state
        self.class_name = class_name
        self.owners: Dict[int, str] = {}  # node of a model variable → owner

    def take(self, optimizer: int) -> Set[int]:
        """Take everything; return the nodes of the optimizer."""
        inner = self.inner(optimizer)
        trained = self.graph.listed(self.graph.child(inner, TRAINED))
        parts = self._parts_of(optimizer, trained)
        self.take_variables(parts, trained)
        self._take_loss_scale(optimizer, inner)
        self._take_scalars(inner)
        self._take_slots(optimizer, inner, trained)
        self._take_skipped_steps(optimizer, inner)
        return parts

    # The optimizer

    def find_optimizer(self) -> Optional[int]:
        found: Dict[int, Tuple[str, ...]] = {}
        inside: Set[int] = set()
        for node_id, path in self.graph.breadth_first():
            if node_id not in inside and self._is_optimizer(node_id):
                found[node_id] = path
                inside.update(
                    child for child in map(self.graph.nodes[node_id].children.get, _INNER) if child is not None
                )
        if len(found) > 1:
            names = ", ".join("/".join(path) for path in found.values())
            self.state.notes.append(f"The checkpoint has {len(found)} optimizers ({names}); the first one is read.")
        return next(iter(found), None)

    def _is_optimizer(self, node_id: int) -> bool:
        children = self.graph.nodes[node_id].children
        holders = [node_id, *(children[name] for name in _INNER if name in children)]
        if any(self._is_counter(self.graph.child(holder, name)) for holder in holders for name in _ITERATIONS):
            return True
        # an optimizer that has not taken a step has no iterations
        return "loss_scale" in children and ("base_optimizer" in children or bool(self.numbers(children["loss_scale"])))

    def _is_counter(self, node_id: Optional[int]) -> bool:
        value = self._value(node_id)
        return value is not None and value.shape == () and value.dtype == "int64"

    def inner(self, optimizer: int) -> int:
        """Return the node of the inner optimizer's variables: from TF 2.3 to Keras 2's end, the optimizer itself."""
        for name in _INNER:
            child = self.graph.child(optimizer, name)
            if (
                child is not None and self.graph.nodes[child].children
            ):  # from TF 2.3 on base_optimizer exists and is empty
                return child
        return optimizer

    def _profile(self, inner: int) -> Optional[KerasProfile]:
        return profile_of_checkpoint(self.graph.nodes[inner].children)

    def _take_loss_scale(self, optimizer: int, inner: int) -> None:
        loss_scale = self.graph.child(optimizer, "loss_scale")
        state = {} if loss_scale is None else self.numbers(loss_scale)
        profile = self._profile(inner)
        if optimizer != inner and profile is not None and profile.loss_scale_child is None:
            known = {*_ITERATIONS, *_RATES, SKIPPED_STEPS_CHILD}
            own = {name: value for name, value in self.numbers(optimizer).items() if name not in known}
            state.update({profile.state_names.get(name, name): value for name, value in own.items()})
        self.state.loss_scale_state = {name: value.number() for name, value in state.items()}

    def numbers(self, node_id: int) -> Dict[str, Value]:
        """Return the scalar variables of a node, by name."""
        values = {name: self._value(child) for name, child in self.graph.nodes[node_id].children.items()}
        return {name: value for name, value in values.items() if value is not None and value.shape == ()}

    def _take_scalars(self, inner: int) -> None:
        for name, value in self.numbers(inner).items():
            if name in _ITERATIONS:
                self.state.iterations = value.whole_number()
            elif name in _RATES:
                self.state.learning_rate = float(value.number())
            elif name not in _NOT_SCALARS:
                self.state.scalars[scalar_name(name)] = value

    def _take_skipped_steps(self, optimizer: int, inner: int) -> None:
        stored = self._value(self.graph.child(optimizer, SKIPPED_STEPS_CHILD))
        profile = self._profile(inner)
        native = HOLD if optimizer != inner else None if profile is None else profile.native_skipped_steps
        holds = native == HOLD if stored is None else not stored.number()
        self.state.skipped_steps = HOLD if holds else ADVANCE
        counters = self.graph.child(optimizer, SKIPS)
        if counters is not None:
            found = {name: value.whole_number() for name, value in self.numbers(counters).items()}
            self.state.skips = complete_skips(found) if found.get(TOTAL) else {}

    # Slots

    def _take_slots(self, optimizer: int, inner: int, trained: List[int]) -> None:
        for node_id in dict.fromkeys([inner, optimizer]):
            for slot in self.graph.nodes[node_id].slots:
                self._take_slot(self.owners.get(slot.owner), slot.name, slot.node_id)
        names = self._variables_in_lists(inner)
        if trained:
            of_trained = slots_of_trained(list(names.items()), len(trained), self.class_name)
            found = {node_id: (self.owners.get(trained[index]), slot) for node_id, (index, slot) in of_trained.items()}
        else:
            found = dict(slots_by_name(names, self.class_name, list(self.state.variables)))
        for node_id, (owner, name) in found.items():
            self._take_slot(owner, name, node_id)
        # from TF 2.11 on the list of all variables begins with the iterations
        listed = self.graph.listed(self.graph.child(inner, "_variables"))
        is_keras_2_10 = bool(listed) and not trained and self.graph.child(inner, "_iterations") not in listed
        self.state.has_bare_momentum = is_keras_2_10 and any("rms" in slots for slots in self.state.slots.values())
        if not self.state.variables:
            first = {owner: next(iter(slots.values())) for owner, slots in self.state.slots.items()}
            self.state.owners = {owner: value.shape for owner, value in first.items()}
        unmatched = [name for node_id, name in names.items() if node_id not in found]
        if unmatched:
            self.state.notes.append(f"Slots of unknown variables: {', '.join(unmatched)}.")

    def _variables_in_lists(self, inner: int) -> Dict[int, str]:
        """Return the variables in an optimizer's lists with their names, in order, without those that are children."""
        children = self.graph.nodes[inner].children
        lists = [child for name, child in children.items() if name != TRAINED]
        # the list of all variables comes first: it has the order in which they were created
        lists.sort(key=lambda child: child != children.get("_variables"))
        named = set(children.values())
        node_ids = [node_id for each in lists for node_id in self.graph.listed(each) if node_id not in named]
        return {
            node_id: self.graph.nodes[node_id].full_name
            for node_id in node_ids
            if self.graph.nodes[node_id].key is not None
        }

    def _take_slot(self, owner: Optional[str], slot: str, node_id: int) -> None:
        value = self._value(node_id)
        if owner is not None and value is not None:
            self.state.slots.setdefault(owner, {})[slot] = value

    # The model

    def _parts_of(self, optimizer: int, trained: Iterable[int]) -> Set[int]:
        """Return all nodes of an optimizer, without the model variables that it lists."""
        parts = {node_id for node_id, _ in self.graph.walk(optimizer, frozenset({TRAINED}))}
        slots = {slot.node_id for node_id in parts for slot in self.graph.nodes[node_id].slots}
        return (parts | slots) - set(trained)

    def take_variables(self, others: Set[int], trained: List[int]) -> None:
        """Take the variables of the model: all that are not the optimizer's, in the order of the layers."""
        paths = self._paths(_NOT_LAYERS | _REPEATED, others) or self._paths(_NOT_LAYERS, others)
        paths = self._with_trained(paths, trained)
        for node_id, owner in self._named(paths).items():
            value = self._value(node_id)
            if value is not None:
                self.owners[node_id] = owner
                self.state.variables[owner] = value

    def _with_trained(self, paths: Dict[int, Tuple[str, ...]], trained: List[int]) -> Dict[int, Tuple[str, ...]]:
        """Add variables that only the optimizer lists: Keras 3's models do not track layers in Python lists."""
        untracked = {node_id: ("variable", str(index)) for index, node_id in enumerate(trained) if node_id not in paths}
        if untracked and paths.keys() <= set(trained):
            return {node_id: paths.get(node_id, untracked.get(node_id, ())) for node_id in trained}
        self.state.is_ordered = not untracked
        return {**paths, **untracked}

    def _named(self, paths: Mapping[int, Tuple[str, ...]]) -> Dict[int, str]:
        """Return owners: the names of the variables if they differ, or else each object's path and a number."""
        names = {node_id: self.graph.nodes[node_id].full_name for node_id in paths}
        if all(names.values()) and len(set(names.values())) == len(names):
            return names
        counts: Dict[Tuple[str, ...], int] = {}
        for node_id, path in paths.items():
            number = counts[path[:-1]] = counts.get(path[:-1], -1) + 1
            names[node_id] = "/".join((*path[:-1], str(number)))
        return names

    def _paths(self, unnamed: FrozenSet[str], others: Set[int]) -> Dict[int, Tuple[str, ...]]:
        found = self.graph.walk(0, unnamed, others)
        return {node_id: path for node_id, path in found if self.graph.nodes[node_id].key is not None}

    def _value(self, node_id: Optional[int]) -> Optional[Value]:
        key = None if node_id is None else self.graph.nodes[node_id].key
        return None if key is None else self.checkpoint.value(key)


def slots_by_name(
    names: Mapping[int, str], class_name: Optional[str], owners: List[str]
) -> Iterator[Tuple[int, Tuple[str, str]]]:
    """Yield node → owner and slot by the names of Keras 2's new optimizers: ``m/d1/kernel``."""
    owners = owners or [owner_after_part(name) for name in names.values()]  # the checkpoint has no model
    parts = (slot_part(name, owners) for name in names.values())
    class_name = class_name or class_of_parts([part for part in parts if part is not None])
    for node_id, name in names.items():
        found = owner_and_slot(name, class_name, owners)
        if found is not None:
            yield node_id, found


def slots_of_trained(names: List[Tuple[int, str]], count: int, class_name: Optional[str]) -> Dict[int, Tuple[int, str]]:
    """Return node → index of the trained variable, and slot, by the names of Keras 3.

    Keras 3 creates slots variable by variable, in order, and names them after the variable's path and the slot. The
    path is not in a checkpoint, but it is the same in all slots of a variable.
    """
    split = []
    for node_id, name in names:
        last, part = name.split("/")[-1], ending_part(name)  # the scopes before the last part differ
        if part is not None:
            split.append((node_id, last[: -len(part)], part))
    class_name = class_name or class_of_parts([part for _, _, part in split])
    by_part: Dict[str, List[str]] = {}
    for _, start, part in split:
        by_part.setdefault(part, []).append(start)
    # a slot that every variable has tells their order
    whole = next((starts for starts in by_part.values() if len(starts) == count == len(set(starts))), None)
    if whole is None:
        return {}
    index = {start: position for position, start in enumerate(whole)}
    return {
        node_id: (index[start], slot_of_part(part, class_name) or part)
        for node_id, start, part in split
        if start in index
    }
