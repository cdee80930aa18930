"""The layout of a checkpoint: which nodes of its object graph are the model, the optimizer and its slots.

It works for every version, and for the variables of SavedModels, whatever names a program has given its objects. An
object with iterations and hyperparameters, slots or lists of variables is an optimizer. A checkpoint may have several
optimizers and models: the object whose variables are those of the caller's model is the model, and the optimizer whose
slots belong to these variables is its optimizer.
"""

from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Set,
    Tuple,
)

import collections
import glob
import importlib
import os
import re
import types

import numpy as np

from ...registry._documents import ADVANCE, HOLD
from ...registry.errors import AmbiguousMatchError, ArgumentError, MissingFileError, UnreadableFileError, unknown
from .._connections import Connections, connections_from_json
from .._matching import common_end
from .._object_paths import CHECKPOINT, attribute_paths, is_position
from ..keras._slots import (
    class_of_slots,
    ending_part,
    is_slot_attribute,
    leading_part,
    owner_after_part,
    owner_and_slot,
    scalar_name,
    slot_of_attribute,
    slot_of_part,
    slot_part,
    slots_of_class,
)
from ..keras.profile import (
    MODEL_NAMES_CHILD,
    MODEL_NAMES_CONNECTIONS,
    MODEL_NAMES_TRAINED,
    SKIPPED_STEPS_CHILD,
    KerasProfile,
    profile_of_checkpoint,
)
from ..training_state import ITERATIONS, RATE, SKIPS, TOTAL, TrainingState, Value, Writer, complete_skips
from . import ModelInCode
from ._object_graph import ObjectGraph, Slot

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_INNER = ("base_optimizer", "inner_optimizer")  # up to 2.2, and from Keras 3 on
_ITERATIONS = ("iter", "_iterations", "iterations")
_RATES = ("learning_rate", "_learning_rate")
TRAINED = "_trainable_variables"  # the list of the model's variables in Keras 3's optimizers
_OF_MODEL = frozenset({TRAINED, MODEL_NAMES_CHILD})  # children of an optimizer that lead to the model
_HYPERS = frozenset({"beta_1", "beta_2", "decay", "momentum", "rho", "epsilon", "initial_accumulator_value"})
_LISTS = ("_variables", "_index_dict", "_momentums", "_velocities", TRAINED)  # children that only optimizers have
_DEPTH = 2  # of a model below the root of a checkpoint
_MOST_CANDIDATES = 100
_NOT_SCALARS = _HYPERS | {"_current_learning_rate", SKIPPED_STEPS_CHILD}
_ALL_VARIABLES = (TRAINED, "_variables")
# children of an optimizer that do not lead to its own variables and those of optimizers inside
_APART = _OF_MODEL | {"_variables", "loss_scale", "base_optimizer", SKIPS}
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
    optimizers: int  # how many there are
    optimizer: Optional[int] = None  # its node, if there is one; the following are about it
    parts: FrozenSet[int] = frozenset()  # all of its nodes
    hypers: Mapping[str, Value] = types.MappingProxyType({})  # hyperparameters that are variables in legacy ones
    profile: Optional[KerasProfile] = None  # the Keras generation that wrote it, as far as its children tell


def layout_of(path: str, class_name: Optional[str] = None, model: Optional[ModelInCode] = None) -> Layout:
    """Return what a checkpoint holds, and where.

    Args:
        path: The prefix of its files, its ``.index`` file or its folder.
        class_name: The class of the inner optimizer, which a checkpoint does not store.
        model: The model to read; default: everything but the optimizers.
    """
    checkpoint = _Checkpoint(prefix_of(path))
    try:
        return _layout(checkpoint, class_name, model)
    except UnreadableFileError:
        raise
    except (AmbiguousMatchError, ArgumentError):
        raise
    except (ValueError, TypeError, OverflowError) as error:  # such as text instead of a number
        raise checkpoint.corrupt(error) from error


def _layout(checkpoint: "_Checkpoint", class_name: Optional[str], model: Optional[ModelInCode]) -> Layout:
    parts = _Parts(checkpoint, class_name)
    root, optimizer = parts.first() if model is None else parts.chosen_for(model)
    reading = parts.reading(root, optimizer)
    reading.take()
    if model is None and len(parts.optimizers) > 1:
        names = ", ".join(parts.optimizers.values())
        reading.state.notes.append(f"The checkpoint has {len(parts.optimizers)} optimizers ({names}); one is read.")
    layout = Layout(reading.state, checkpoint.graph, checkpoint.value, reading.owners, len(parts.optimizers))
    if optimizer is None:
        return layout
    children = checkpoint.graph.nodes[reading.inner].children
    return layout._replace(
        optimizer=optimizer,
        parts=frozenset(parts.nodes_of(optimizer)),
        hypers={name: value for name, value in reading.numbers(reading.inner).items() if name in _HYPERS},
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


class _Parts:
    """The optimizers of a checkpoint, and the objects that may be the model."""

    def __init__(self, checkpoint: _Checkpoint, class_name: Optional[str]) -> None:
        self._checkpoint = checkpoint
        self._graph = checkpoint.graph
        self._class_name = class_name
        self.optimizers = self._find_optimizers()  # node → path
        self._nodes = {node_id: self.nodes_of(node_id) for node_id in self.optimizers}
        self._model_names = self._find_model_names()

    def _find_optimizers(self) -> Dict[int, str]:
        found: Dict[int, str] = {}
        inside: Set[int] = set()
        for node_id, path in self._graph.breadth_first():
            if node_id not in inside and self._is_optimizer(node_id):
                found[node_id] = "/".join(path)
                inside.update(each for each, _ in self._graph.walk(node_id, _OF_MODEL))
        return found

    def _find_model_names(self) -> Dict[int, str]:
        """Return node → name of nested models, with the names of the models around it; in files of scalekeeper."""
        found: Dict[int, str] = {}
        for optimizer in self.optimizers:
            for name, node_id in self._graph.named(optimizer, MODEL_NAMES_CHILD).items():
                model, _, path = name.partition("/")
                if model not in (MODEL_NAMES_CONNECTIONS, MODEL_NAMES_TRAINED):
                    found[node_id] = common_end(found.get(node_id, path), path)  # it may be in several models
        return found

    def _connections_of(self, model: int) -> Optional[Connections]:
        """Return the connections of a model's layers, in files of scalekeeper."""
        for optimizer in self.optimizers:
            for name, node_id in self._graph.named(optimizer, MODEL_NAMES_CHILD).items():
                kind, _, text = name.partition("/")
                if kind == MODEL_NAMES_CONNECTIONS and node_id == model:
                    return connections_from_json(text)
        return None

    def _is_optimizer(self, node_id: int) -> bool:
        children = self._graph.nodes[node_id].children
        holders = [node_id, *(children[name] for name in _INNER if name in children)]
        if any(self._has_iterations(holder) and self._has_settings(holder, node_id) for holder in holders):
            return True
        # an optimizer that has not taken a step has no iterations
        return self._has_policy(children) and (
            "base_optimizer" in children or bool(_numbers(self._checkpoint, children["loss_scale"]))
        )

    def _has_policy(self, children: Mapping[str, int]) -> bool:
        """Return whether there is an object ``loss_scale``; a variable of that name is a program's own."""
        return "loss_scale" in children and self._graph.nodes[children["loss_scale"]].key is None

    def _has_iterations(self, node_id: int) -> bool:
        return _has_iterations(self._checkpoint, node_id)

    def _has_settings(self, node_id: int, outer: int) -> bool:
        """Return whether a node with iterations has more of an optimizer, and nothing of a model."""
        children = self._graph.nodes[node_id].children
        if self._graph.nodes[node_id].slots or outer != node_id or self._has_policy(children):
            return True
        if MODEL_NAMES_CHILD in children:  # only the optimizers of scalekeeper have it
            return True
        if not any(name in children for name in (*_HYPERS, *_RATES, *_LISTS)):
            return False
        # the root may have counters beside an optimizer
        may_hold_others = node_id != 0 or any(name in children for name in _LISTS)
        return all(
            name in _LISTS or self._is_list(child) or (may_hold_others and is_inner_optimizer(self._checkpoint, child))
            for name, child in children.items()
        )

    def _is_list(self, node_id: int) -> bool:
        """Return whether a node is a variable, a list of variables or without children, as those of optimizers are."""
        children = self._graph.nodes[node_id].children
        return all(not self._graph.nodes[child].children for child in children.values())

    def nodes_of(self, optimizer: int) -> Set[int]:
        """Return all nodes of an optimizer, without the model variables that it lists."""
        nodes = {node_id for node_id, _ in self._graph.walk(optimizer, _OF_MODEL)}
        slots = {slot.node_id for node_id in nodes for slot in self._graph.nodes[node_id].slots}
        return (nodes | slots) - set(self._trained(optimizer))

    def _trained(self, optimizer: int) -> List[int]:
        listed = self._graph.listed(self._graph.child(inner_of(self._graph, optimizer), TRAINED))
        names = self._graph.named(optimizer, MODEL_NAMES_CHILD)
        return listed or [names[each] for each in _numbered(names, MODEL_NAMES_TRAINED)]

    def reading(self, root: int, optimizer: Optional[int]) -> "_Reading":
        """Return the conversion of a model and its optimizer to a training state."""
        closed = {node_id for nodes in self._nodes.values() for node_id in nodes}
        trained = [] if optimizer is None else self._trained(optimizer)
        reading = _Reading(self._checkpoint, self._class_name, root, optimizer, trained, closed, self._model_names)
        reading.state.connections = self._connections_of(root)
        return reading

    def first(self) -> Tuple[int, Optional[int]]:
        """Return the root and the first optimizer; of several, that of the root if it is a model."""
        own = self._graph.child(0, "optimizer")
        return 0, own if own in self.optimizers else next(iter(self.optimizers), None)

    # The model of the caller

    def chosen_for(self, model: ModelInCode) -> Tuple[int, Optional[int]]:
        """Return the object that is the model, and its optimizer.

        Raises:
            AmbiguousMatchError: Several objects fit.
        """
        optimizers = self._wanted(model.optimizer)
        fits: Dict[FrozenSet[int], Tuple[Tuple[int, int, int], int]] = {}
        for root in self._candidates(model.root):
            for optimizer in [*optimizers, None] if model.optimizer is None else optimizers:
                reading = self.reading(root, optimizer)
                reading.take_variables()
                if not reading.owners or (optimizer is not None and not reading.owns_something()):
                    continue
                matching = model.match(reading.state)
                by_path = sum(rule == "path" for rule in matching.rules.values())
                rank = (len(matching.missing), len(matching.unused), -by_path)
                nodes = frozenset(reading.owners)
                fits[nodes] = min(fits.get(nodes, (rank, root)), (rank, root))
        if not fits:
            return 0, self._only(optimizers, model)
        best = min(rank[:2] for rank, _ in fits.values())
        roots = [root for rank, root in fits.values() if rank[:2] == best]
        if len(roots) > 1 and best[0] == 0:
            paths = {node_id: "/".join(path) for node_id, path in self._graph.breadth_first()}
            raise AmbiguousMatchError(
                f"{self._checkpoint.prefix}: {len(roots)} models in the checkpoint fit: "
                f"{', '.join(sorted(paths[root] for root in roots))}. Name the optimizer of the one you mean, with "
                f"optimizer=, one of {', '.join(self.optimizers.values()) or 'none'}; or give mapping="
                "{path in the checkpoint: model}"
            )
        return roots[0], self._optimizer_of(roots[0], optimizers, model)

    def _wanted(self, name: Optional[str]) -> List[int]:
        if name is None:
            return list(self.optimizers)
        found = [node_id for node_id, path in self.optimizers.items() if path == name]
        if not found:
            raise ArgumentError(
                f"{self._checkpoint.prefix}: " + unknown("optimizer", name, list(self.optimizers.values()))
            )
        return found

    def _candidates(self, name: Optional[str]) -> List[int]:
        """Return the root and the objects near it that may be a model, or the one at a path."""
        closed = {node_id for nodes in self._nodes.values() for node_id in nodes}
        if name is not None:
            found = [node_id for node_id, path in self._graph.breadth_first() if "/".join(path) == name]
            if not found:
                raise ArgumentError(f"{self._checkpoint.prefix}: no object at {name!r} in the checkpoint")
            return found
        found = [
            node_id
            for node_id, path in self._graph.breadth_first()
            if len(path) <= _DEPTH
            and node_id not in closed
            and not any(is_position(name) or name in _OF_MODEL for name in path)
        ]
        return [node_id for node_id in found if self._graph.nodes[node_id].children][:_MOST_CANDIDATES]

    def _optimizer_of(self, root: int, optimizers: List[int], model: ModelInCode) -> Optional[int]:
        """Return the optimizer whose slots belong to the variables of a model."""
        own = self._graph.child(root, "optimizer")
        if own in optimizers:
            return own
        readings = {optimizer: self.reading(root, optimizer) for optimizer in optimizers}
        for reading in readings.values():
            reading.take_variables()
        owning = [optimizer for optimizer, reading in readings.items() if reading.owns_something()]
        if len(owning) == 1:
            return owning[0]
        return self._only([each for each in optimizers if not readings[each].has_slots()] or owning, model)

    def _only(self, optimizers: List[int], model: ModelInCode) -> Optional[int]:
        """Return the only optimizer, which may have no slots.

        Raises:
            AmbiguousMatchError: There are several.
        """
        if len(optimizers) > 1 and model.has_optimizer:
            names = ", ".join(self.optimizers[each] for each in optimizers)
            raise AmbiguousMatchError(
                f"{self._checkpoint.prefix}: the checkpoint has several optimizers that may be the model's: {names}. "
                "Name one with optimizer="
            )
        is_only_one = len(optimizers) == 1 and (len(self.optimizers) == 1 or model.optimizer is not None)
        return optimizers[0] if is_only_one else None


def inner_of(graph: ObjectGraph, optimizer: int) -> int:
    """Return the node of the inner optimizer's variables: from TF 2.3 to Keras 2's end, the optimizer itself."""
    for name in _INNER:
        child = graph.child(optimizer, name)
        if child is None or not graph.nodes[child].children:  # from TF 2.3 on base_optimizer exists and is empty
            continue
        if not _has_own_slots(graph, optimizer):  # as an optimizer of a user's own may have that holds another one
            return child
    return optimizer


def _has_own_slots(graph: ObjectGraph, optimizer: int) -> bool:
    node = graph.nodes[optimizer]
    return bool(node.slots) or not set(graph.listed(node.children.get("_variables"))) <= {*node.children.values()}


def is_inner_optimizer(checkpoint: "_Checkpoint", node_id: int) -> bool:
    """Return whether a node below an optimizer is an optimizer, too; it may share the iterations of the other one."""
    node = checkpoint.graph.nodes[node_id]
    return bool(node.slots) or _has_iterations(checkpoint, node_id) or TRAINED in node.children


def _has_iterations(checkpoint: "_Checkpoint", node_id: int) -> bool:
    found = (_value(checkpoint, checkpoint.graph.child(node_id, name)) for name in _ITERATIONS)
    return any(value is not None and value.shape == () and value.dtype == "int64" for value in found)


def _numbered(names: Mapping[str, int], start: str) -> List[str]:
    """Return the names ``start/0``, ``start/1``, … that exist."""
    found = (f"{start}/{index}" for index in range(len(names)))
    return [name for name in found if name in names]


def _value(checkpoint: _Checkpoint, node_id: Optional[int]) -> Optional[Value]:
    key = None if node_id is None else checkpoint.graph.nodes[node_id].key
    return None if key is None else checkpoint.value(key)


def _numbers(checkpoint: _Checkpoint, node_id: int) -> Dict[str, Value]:
    """Return the scalar variables of a node, by name."""
    values = {name: _value(checkpoint, child) for name, child in checkpoint.graph.nodes[node_id].children.items()}
    return {name: value for name, value in values.items() if value is not None and value.shape == ()}


class _Reading:
    """The conversion of one model in a checkpoint, and its optimizer, to a training state."""

    def __init__(
        self,
        checkpoint: _Checkpoint,
        class_name: Optional[str],
        root: int,
        optimizer: Optional[int],
        trained: List[int],
        closed: Set[int],
        model_names: Mapping[int, str],
    ) -> None:
        self.checkpoint = checkpoint
        self.graph = checkpoint.graph
        self.state = TrainingState(Writer("checkpoint"))
        self.class_name = class_name
        self.owners: Dict[int, str] = {}  # node of a model variable → owner
        self.inner = -1 if optimizer is None else inner_of(self.graph, optimizer)
        self._root = root
        self._optimizer = optimizer
        self._trained = trained
        self._closed = closed  # the nodes of all optimizers
        self._model_names = model_names
        self._nested = self._find_nested()
        self._read: Set[int] = set()  # nodes of the optimizer's variables

    def take(self) -> None:
        """Take everything."""
        self.take_variables()
        if self._optimizer is not None:
            self._take_loss_scale(self._optimizer, self.inner)
            self._take_scalars(self.inner)
            self._take_slots(self._optimizer, self.inner)
            self._take_others()
            self._take_skipped_steps(self._optimizer, self.inner)

    # The optimizer

    def _find_nested(self) -> Dict[str, int]:
        """Return path → node of the optimizers that the optimizer holds."""
        if self._optimizer is None:
            return {}
        found = self.graph.walk(self.inner, _APART)
        return {
            ".".join(path): node_id for node_id, path in found if path and is_inner_optimizer(self.checkpoint, node_id)
        }

    def has_slots(self) -> bool:
        """Return whether the optimizer tells which variables are its own."""
        return bool(self._trained or self._slot_nodes() or self._variables_in_all_lists())

    def owns_something(self) -> bool:
        """Return whether the optimizer has a slot of a variable of the model, or lists one."""
        if any(node_id in self.owners for node_id in [*self._trained, *(slot.owner for slot in self._slot_nodes())]):
            return True
        if self._trained or not self.owners:
            return False
        return any(slots_by_name(self._variables_in_all_lists(), self.class_name, list(self.state.variables)))

    def _slot_nodes(self) -> List[Slot]:
        nodes = [] if self._optimizer is None else [self.inner, self._optimizer, *self._nested.values()]
        return [slot for node_id in dict.fromkeys(nodes) for slot in self.graph.nodes[node_id].slots]

    def _variables_in_all_lists(self) -> Dict[int, str]:
        found: Dict[int, str] = {}
        for node_id in (self.inner, *self._nested.values()):
            found.update(self._variables_in_lists(node_id))
        return found

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
        return _numbers(self.checkpoint, node_id)

    def _take_scalars(self, inner: int) -> None:
        for name, value in self.numbers(inner).items():
            self._read.add(self.graph.nodes[inner].children[name])
            if name in _ITERATIONS:
                self.state.iterations = value.whole_number()
            elif name in _RATES:
                self.state.learning_rate = float(value.number())
            elif name not in _NOT_SCALARS:
                self.state.scalars[scalar_name(name)] = value

    def _take_nested(self, path: str, nested: int) -> None:
        """Take the state of an optimizer inside; what belongs to no variable gets names such as ``fast.iterations``."""
        scalars = self.state.scalars
        for name, value in self.numbers(nested).items():
            self._read.add(self.graph.nodes[nested].children[name])
            if name in _ITERATIONS:
                scalars[f"{path}.{ITERATIONS}"] = value
            elif name in _RATES:
                scalars[f"{path}.{RATE}"] = value
            elif name not in _NOT_SCALARS:
                scalars[f"{path}.{scalar_name(name)}"] = value
        if self.state.iterations is not None:  # without its own, it shares them
            scalars.setdefault(f"{path}.{ITERATIONS}", Value.of(np.int64(self.state.iterations)))
        trained = self.graph.listed(self.graph.child(nested, TRAINED))
        self._take_slots_of(nested, trained, None, f"{path}.")

    def _take_others(self) -> None:
        """Take the variables of the optimizer that are none of the above, by the attributes that lead to them."""
        for node_id, path in self.graph.walk(self.inner, _APART):
            if path and path[-1] not in _NOT_SCALARS and node_id not in self._read and node_id not in self.owners:
                value = self._value(node_id)
                if value is not None and not any(name.startswith("_trainable_variables") for name in path):
                    self.state.scalars.setdefault(".".join(path), value)

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

    def _take_slots(self, optimizer: int, inner: int) -> None:
        if optimizer != inner:
            self._take_slot_nodes(optimizer)
        self._take_slots_of(inner, self._trained, self.class_name)
        # from TF 2.11 on the list of all variables begins with the iterations
        listed = self.graph.listed(self.graph.child(inner, "_variables"))
        is_keras_2 = self.graph.child(inner, TRAINED) is None
        is_keras_2_10 = bool(listed) and is_keras_2 and self.graph.child(inner, "_iterations") not in listed
        self.state.has_bare_momentum = is_keras_2_10 and any("rms" in slots for slots in self.state.slots.values())
        for path, nested in self._nested.items():
            self._take_nested(path, nested)
        if not self.state.variables:
            first = {owner: next(iter(slots.values())) for owner, slots in self.state.slots.items()}
            self.state.owners = {owner: value.shape for owner, value in first.items()}

    def _take_slots_of(self, inner: int, trained: List[int], class_name: Optional[str], prefix: str = "") -> None:
        """Take the slots of an optimizer, whose names get a prefix if it is inside another one."""
        self._take_slot_nodes(inner, prefix)
        names = self._variables_in_lists(inner)
        if trained:
            class_name = class_of_listed(list(names.items()), class_name)
            of_trained = {
                **self._slots_in_lists(inner, len(trained), class_name),
                **slots_of_trained(list(names.items()), len(trained), class_name),
            }
            found = {node_id: (self.owners.get(trained[index]), slot) for node_id, (index, slot) in of_trained.items()}
        else:
            found = dict(slots_by_name(names, class_name, list(self.state.variables)))
        by_attribute = self._slots_by_attribute(inner, class_name)
        for node_id, (owner, name) in found.items():
            self._take_slot(owner, prefix + by_attribute.get(node_id, name), node_id)
        lists = self._lists(inner)
        not_slots = {node_id for name, listed in lists.items() if not is_slot_attribute(name) for node_id in listed}
        unmatched = [node_id for node_id in names if node_id not in found and node_id not in not_slots]
        if unmatched:
            self._read.update(unmatched)
            self.state.notes.append(f"Slots of unknown variables: {', '.join(names[each] for each in unmatched)}.")

    def _take_slot_nodes(self, optimizer: int, prefix: str = "") -> None:
        for slot in self.graph.nodes[optimizer].slots:
            self._take_slot(self.owners.get(slot.owner), prefix + slot.name, slot.node_id)

    def _lists(self, inner: int) -> Dict[str, List[int]]:
        """Return the lists of variables in an optimizer's attributes."""
        children = self.graph.nodes[inner].children
        lists = {name: self.graph.listed(child) for name, child in children.items() if name not in _ALL_VARIABLES}
        return {
            name: listed
            for name, listed in lists.items()
            if listed and all(self.graph.nodes[node_id].key is not None for node_id in listed)
        }

    def _slots_in_lists(self, inner: int, count: int, class_name: Optional[str]) -> Dict[int, Tuple[int, str]]:
        """Return the same as :func:`slots_of_trained`, by the lists of Keras 3: one slot for each trained variable."""
        return {
            node_id: (index, slot_of_attribute(name, class_name) or name.strip("_"))
            for name, listed in self._lists(inner).items()
            for index, node_id in enumerate(listed)
            if len(listed) == count
        }

    def _slots_by_attribute(self, inner: int, class_name: Optional[str]) -> Dict[int, str]:
        """Return node → slot of variables in lists that no optimizer of Keras has, or not one of this class."""
        is_keras = class_name is None or bool(slots_of_class(class_name))
        return {
            node_id: name.strip("_")
            for name, listed in self._lists(inner).items()
            for node_id in listed
            if not (is_slot_attribute(name) if is_keras else slot_of_attribute(name, class_name))
        }

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
        self._read.add(node_id)
        if owner is not None and value is not None:
            self.state.slots.setdefault(owner, {})[slot] = value

    # The model

    def take_variables(self) -> None:
        """Take all variables below the model's node that are not an optimizer's, in the order of the layers."""
        paths = self._paths(_NOT_LAYERS | _REPEATED) or self._paths(_NOT_LAYERS)
        paths = self._with_trained(paths)
        attributes = self._attribute_paths()
        whole = self._whole_names(paths)
        for node_id, owner in self._named(paths, whole).items():
            value = self._value(node_id)
            if value is not None:
                self.owners[node_id] = owner
                self.state.variables[owner] = value
                if node_id in attributes:
                    self.state.paths[owner] = attributes[node_id]
                if whole:
                    self.state.model_variables[owner] = value.shape
                    self.state.model_names[owner] = whole[node_id]
        self.state.path_kind = CHECKPOINT

    def _paths(self, unnamed: FrozenSet[str]) -> Dict[int, Tuple[str, ...]]:
        found = self.graph.walk(self._root, unnamed, self._closed)
        return {node_id: path for node_id, path in found if self.graph.nodes[node_id].key is not None}

    def _attribute_paths(self) -> Dict[int, str]:
        """Return the attributes that lead to variables."""

        def children(node_id: int) -> Iterator[Tuple[str, int]]:
            for name, child in self.graph.nodes[node_id].children.items():
                if child not in self._closed and name not in _NOT_LAYERS | _REPEATED:
                    yield name, child

        found = attribute_paths(self._root, children, int)
        return {node_id: path for node_id, path in found if self.graph.nodes[node_id].key is not None}

    def _with_trained(self, paths: Dict[int, Tuple[str, ...]]) -> Dict[int, Tuple[str, ...]]:
        """Add variables that only the optimizer lists: Keras 3's models do not track layers in Python lists."""
        tracked = {node_id for node_id, _ in self.graph.walk(0, frozenset({TRAINED}), self._closed)}
        untracked = {
            node_id: ("variable", str(index))
            for index, node_id in enumerate(self._trained)
            if node_id not in tracked and node_id not in paths
        }
        self.state.is_ordered = not untracked
        return {**paths, **untracked}

    def _named(self, paths: Mapping[int, Tuple[str, ...]], whole: Mapping[int, str]) -> Dict[int, str]:
        """Return owners: the names of the variables, with what is around them if they do not differ.

        That is the names of nested models, or else their positions.
        """
        names = self._full_names(paths)
        in_models = {node_id: "/".join((*_around_layer(path), names[node_id])) for node_id, path in paths.items()}
        for owners in (names, whole, in_models) if all(names.values()) else ():
            if len(set(owners.values())) == len(names):
                return dict(owners)
        # such as the totals of several metrics; slots have the names of the other variables
        seen = collections.Counter(names.values())
        counts: Dict[Tuple[str, ...], int] = {}
        for node_id, path in paths.items():
            number = counts[path[:-1]] = counts.get(path[:-1], -1) + 1
            if not names[node_id] or seen[names[node_id]] > 1:
                names[node_id] = "/".join((*path[:-1], str(number)))
        return names

    def _full_names(self, paths: Mapping[int, Tuple[str, ...]]) -> Dict[int, str]:
        names = {node_id: self.graph.nodes[node_id].full_name for node_id in paths}
        names.update({node_id: name for node_id, name in self._names_in_slots().items() if node_id in names})
        return names

    def _whole_names(self, paths: Mapping[int, Tuple[str, ...]]) -> Dict[int, str]:
        """Return the names of variables with those of the models around them; empty if the file has none of these."""
        found = self._full_names(paths) if self._model_names else {}
        for node_id, path in paths.items() if found else ():
            inside, node = "", self._root
            for name in path:
                node = self.graph.nodes[node].children.get(name, node)
                inside = self._model_names.get(node, inside)
            for name in reversed(inside.split("/")) if inside else ():
                found[node_id] = found[node_id] if f"/{name}/" in f"/{found[node_id]}" else f"{name}/{found[node_id]}"
        return found

    def _names_in_slots(self) -> Dict[int, str]:
        """Return the whole names of variables by the names of Keras 3's slots.

        A variable has the name ``net/kernel`` in a checkpoint, and its slots ``net_dense_1_kernel_momentum``: so it is
        ``net/dense_1/kernel``.
        """
        starts = _starts_of_slots(list(self._variables_in_lists(self.inner).items()), len(self._trained))
        for nested in self._nested.values():
            starts = starts or _starts_of_slots(list(self._variables_in_lists(nested).items()), len(self._trained))
        found = {}
        for node_id, start in zip(self._trained, starts):
            scope, _, leaf = self.graph.nodes[node_id].full_name.rpartition("/")
            before, after = scope.replace("/", "_") + "_" if scope else "", f"_{leaf}_"
            if start.startswith(before) and start.endswith(after) and len(before) < len(start) - len(after):
                parts = (scope, start[len(before) : -len(after)], leaf)
                found[node_id] = "/".join(part for part in parts if part)
        return found

    def _value(self, node_id: Optional[int]) -> Optional[Value]:
        return _value(self.checkpoint, node_id)


def _around_layer(path: Tuple[str, ...]) -> Tuple[str, ...]:
    """Return what stands before the position of a variable's layer: ``_operations/1/_operations/2/kernel``."""
    last = max((index for index, name in enumerate(path) if name[-1:].isdigit()), default=0)
    return path[: max(0, last - path[last].isdigit())]


def slots_by_name(
    names: Mapping[int, str], class_name: Optional[str], owners: List[str]
) -> Iterator[Tuple[int, Tuple[str, str]]]:
    """Yield node → owner and slot by the names of Keras 2's new optimizers: ``m/d1/kernel``."""
    owners = owners or [owner_after_part(name) for name in names.values()]  # the checkpoint has no model
    found_parts = (slot_part(name, owners) for name in names.values())
    class_name = class_of_slots(class_name, (), [part for part in found_parts if part is not None])
    for node_id, name in names.items():
        found = owner_and_slot(name, class_name, owners)
        if found is not None:
            yield node_id, found


def slots_of_trained(names: List[Tuple[int, str]], count: int, class_name: Optional[str]) -> Dict[int, Tuple[int, str]]:
    """Return node → index of the trained variable, and slot, by the names of Keras 3.

    Keras 3 creates slots variable by variable, in order, and names them after the variable's path and the slot. The
    path is not in a checkpoint, but it is the same in all slots of a variable.
    """
    split = _split_slot_names(names)
    class_name = class_of_listed(names, class_name)
    index = {start: position for position, start in enumerate(_starts_of_slots(names, count))}
    return {
        node_id: (index[start], slot_of_part(part, class_name) or part)
        for node_id, start, part in split
        if start in index
    }


def class_of_listed(names: List[Tuple[int, str]], class_name: Optional[str]) -> Optional[str]:
    """Return the class of the optimizer that lists variables of these names."""
    parts = [part for _, _, part in _split_slot_names(names)]
    leading = (leading_part(name) for _, name in names)  # in Keras 2
    return class_of_slots(class_name, [name for _, name in names], parts or [each for each in leading if each])


def _split_slot_names(names: List[Tuple[int, str]]) -> List[Tuple[int, str, str]]:
    """Return node, what stands before the slot's part, and the part, for names of Keras 3's slots."""
    found = []
    for node_id, name in names:
        last, part = name.split("/")[-1], ending_part(name)  # the scopes before the last part differ
        if part is not None:
            found.append((node_id, last[: -len(part)], part))
    return found


def _starts_of_slots(names: List[Tuple[int, str]], count: int) -> List[str]:
    """Return what the names of a variable's slots begin with, in the order of the trained variables; or nothing."""
    by_part: Dict[str, List[str]] = {}
    for _, start, part in _split_slot_names(names):
        by_part.setdefault(part, []).append(start)
    # a slot that every variable has tells their order
    return next((starts for starts in by_part.values() if len(starts) == count == len(set(starts))), [])
