"""Checkpoints of ``tf.train.Checkpoint`` and ``model.save_weights``, and variables of SavedModels, of every version.

What is what is told by the graph of objects in the checkpoint. Under any names that a program has given them, an
optimizer is what has iterations, and a model is the rest.
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
from ...registry.errors import UnreadableFileError
from .. import _skip_record
from ..keras import _native_skip_behavior
from ..keras._slot_names import (
    KERAS_3_STATE,
    class_of_words,
    ending_word,
    owner_after_word,
    owner_and_slot,
    scalar_named,
    slot_of_word,
    word_of,
)
from ..training_state import Contents, Value, Writer
from ._object_graph import ObjectGraph

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_INNER = ("base_optimizer", "inner_optimizer")  # up to 2.2, and from Keras 3 on
_ITERATIONS = ("iter", "_iterations", "iterations")
_RATES = ("learning_rate", "_learning_rate")
TRAINED = "_trainable_variables"  # Keras 3's optimizers list the model's variables
_HYPERS = frozenset({"beta_1", "beta_2", "decay", "momentum", "rho", "epsilon", "initial_accumulator_value"})
_NO_SCALARS = _HYPERS | {"_current_learning_rate", _native_skip_behavior.NAME}
# what a model has beside its layers
_BESIDES = frozenset({"keras_api", "signatures", "save_counter"}).union(
    f"{underscore}{name}"
    for name in ("metrics", "compiled_metrics", "compile_metrics", "compiled_loss", "compile_loss", "loss_tracker")
    for underscore in ("", "_")
)

# what it has a second time: an exported one as other objects of the same names
_AGAIN = frozenset({"variables", "trainable_variables", "non_trainable_variables"})


def read(path: str, class_name: Optional[str] = None) -> Contents:
    """What a checkpoint holds; its arrays stay there until they are asked for.

    The path is what was given to ``save`` or ``write``, the ``.index`` file, or a folder, of which the latest is read.
    A checkpoint does not name the inner optimizer's class: who knows it may give it.
    """
    return layout_of(path, class_name).contents


class Layout(NamedTuple):
    """A checkpoint with the places of its parts, for who writes it anew."""

    contents: Contents
    graph: ObjectGraph
    value: Callable[[str], Value]  # by key
    owners: Dict[int, str]  # place of a variable of the model's → owner
    optimizer: Optional[int] = None  # its place, if there is one; what follows is about it
    parts: FrozenSet[int] = frozenset()  # all of its places
    hypers: Mapping[str, Value] = types.MappingProxyType({})  # hyperparameters that are variables, with legacy ones
    is_keras_3: bool = False
    is_legacy: bool = False


def layout_of(path: str, class_name: Optional[str] = None) -> Layout:
    """What a checkpoint holds, and where in it."""
    checkpoint = _Checkpoint(prefix_of(path))
    try:
        return _layout(checkpoint, class_name)
    except UnreadableFileError:
        raise
    except (ValueError, TypeError, OverflowError) as error:  # text where a number should be, and its like
        raise checkpoint.broken(error) from error


def _layout(checkpoint: "_Checkpoint", class_name: Optional[str]) -> Layout:
    reading = _Reading(checkpoint, Contents(Writer("checkpoint")), class_name)
    layout = Layout(reading.contents, checkpoint.graph, checkpoint.value, reading.owners)
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
        is_keras_3=TRAINED in children,
        is_legacy="iter" in children,
    )


def prefix_of(path: str) -> str:
    """What the names of a checkpoint's files have in common."""
    if os.path.isdir(path):
        found = sorted(glob.glob(os.path.join(glob.escape(path), "*.index")))
        latest = _tensorflow(path).train.latest_checkpoint(path) if found else None
        found = [latest + ".index"] if latest else found
        if len(found) != 1:
            names = ", ".join(os.path.basename(each) for each in found) or "there is none"
            raise UnreadableFileError(f"{path}: the folder does not say which checkpoint is the latest ({names})")
        path = found[0]
    prefix = re.sub(r"\.(index|data-\d+-of-\d+)$", "", path)
    if not os.path.exists(prefix + ".index"):
        raise FileNotFoundError(f"{prefix}.index: no such file")
    return prefix


def _tensorflow(path: str) -> Any:
    try:
        return importlib.import_module("tensorflow")
    except ImportError as error:
        raise UnreadableFileError(
            f"{path}: checkpoints and SavedModels are read with TensorFlow, which can't be imported: {error}"
        ) from error


class _Checkpoint:
    """The files of a checkpoint, opened."""

    def __init__(self, prefix: str) -> None:
        tf = _tensorflow(prefix)
        self.prefix = prefix
        try:
            self._reader = tf.train.load_checkpoint(prefix)
            self._shapes = self._reader.get_variable_to_shape_map()
            self._types = self._reader.get_variable_to_dtype_map()
        except Exception as error:  # TensorFlow raises many kinds
            raise self.broken(error) from error
        if OBJECT_GRAPH not in self._shapes:
            raise UnreadableFileError(
                f"{prefix}: a checkpoint without a graph of objects, as TensorFlow 1's Saver writes it: save it again, "
                "with tf.train.Checkpoint"
            )
        graph = self._tensor(OBJECT_GRAPH)
        try:
            self.graph = ObjectGraph.parsed(graph)
        except (TypeError, ValueError) as error:
            raise self.broken(error) from error

    def value(self, key: str) -> Value:
        """The array under a key, read when it is asked for."""
        if key not in self._shapes:
            raise UnreadableFileError(f"{self.prefix}: its graph of objects names {key}, which is not there")
        return Value(tuple(self._shapes[key]), self._types[key].name, lambda: self._tensor(key))

    def _tensor(self, key: str) -> Any:
        try:
            return self._reader.get_tensor(key)
        except Exception as error:  # TensorFlow raises many kinds
            raise self.broken(error) from error

    def broken(self, error: Exception) -> UnreadableFileError:
        reason = str(error).split("\n")[0]
        return UnreadableFileError(f"{self.prefix}: not a checkpoint that can be read, or cut off: {reason}")


class _Reading:
    """One checkpoint on its way into contents."""

    def __init__(self, checkpoint: _Checkpoint, contents: Contents, class_name: Optional[str]) -> None:
        self.checkpoint = checkpoint
        self.graph = checkpoint.graph
        self.contents = contents
        self.class_name = class_name
        self.owners: Dict[int, str] = {}  # place of a variable of the model's → owner

    def take(self, optimizer: int) -> Set[int]:
        """Put everything into contents; gives the places of the optimizer's objects."""
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
        for place, path in self.graph.breadth_first():
            if place not in inside and self._is_optimizer(place):
                found[place] = path
                inside.update(child for child in map(self.graph.nodes[place].children.get, _INNER) if child is not None)
        if len(found) > 1:
            names = ", ".join("/".join(path) for path in found.values())
            self.contents.notes.append(f"The checkpoint has {len(found)} optimizers ({names}): the first one is read.")
        return next(iter(found), None)

    def _is_optimizer(self, place: int) -> bool:
        children = self.graph.nodes[place].children
        holders = [place, *(children[name] for name in _INNER if name in children)]
        if any(self._is_counter(self.graph.child(holder, name)) for holder in holders for name in _ITERATIONS):
            return True
        # one that has not taken a step
        return "loss_scale" in children and ("base_optimizer" in children or bool(self.numbers(children["loss_scale"])))

    def _is_counter(self, place: Optional[int]) -> bool:
        value = self._value(place)
        return value is not None and value.shape == () and value.dtype == "int64"

    def inner(self, optimizer: int) -> int:
        """The object that has the inner optimizer's variables: from 2.3 to the end of Keras 2, the optimizer itself."""
        for name in _INNER:
            child = self.graph.child(optimizer, name)
            if child is not None and self.graph.nodes[child].children:  # from 2.3 on the former is there, and empty
                return child
        return optimizer

    def _is_keras_3(self, inner: int) -> bool:
        return TRAINED in self.graph.nodes[inner].children

    def _take_loss_scale(self, optimizer: int, inner: int) -> None:
        loss_scale = self.graph.child(optimizer, "loss_scale")
        state = {} if loss_scale is None else self.numbers(loss_scale)
        if optimizer != inner and self._is_keras_3(inner):
            known = {*_ITERATIONS, *_RATES, _native_skip_behavior.NAME}
            own = {name: value for name, value in self.numbers(optimizer).items() if name not in known}
            state.update({KERAS_3_STATE.get(name, name): value for name, value in own.items()})
        self.contents.loss_scale_state = {name: value.number() for name, value in state.items()}

    def numbers(self, place: int) -> Dict[str, Value]:
        """The variables without dimensions that an object has, by name."""
        values = {name: self._value(child) for name, child in self.graph.nodes[place].children.items()}
        return {name: value for name, value in values.items() if value is not None and value.shape == ()}

    def _take_scalars(self, inner: int) -> None:
        for name, value in self.numbers(inner).items():
            if name in _ITERATIONS:
                self.contents.iterations = value.whole_number()
            elif name in _RATES:
                self.contents.learning_rate = float(value.number())
            elif name not in _NO_SCALARS:
                self.contents.scalars[scalar_named(name)] = value

    def _take_skipped_steps(self, optimizer: int, inner: int) -> None:
        ours = self._value(self.graph.child(optimizer, _native_skip_behavior.NAME))
        holds = (optimizer != inner or self._is_keras_3(inner)) if ours is None else not ours.number()
        self.contents.skipped_steps = HOLD if holds else ADVANCE
        counters = self.graph.child(optimizer, _skip_record.NAME)
        if counters is not None:
            found = {name: value.whole_number() for name, value in self.numbers(counters).items()}
            self.contents.skips = _skip_record.whole(found) if found.get(_skip_record.TOTAL) else {}

    # Slots

    def _take_slots(self, optimizer: int, inner: int, trained: List[int]) -> None:
        for place in dict.fromkeys([inner, optimizer]):
            for slot in self.graph.nodes[place].slots:
                self._take_slot(self.owners.get(slot.owner), slot.name, slot.place)
        names = self._variables_in_lists(inner)
        if trained:
            of_trained = slots_of_trained(list(names.items()), len(trained), self.class_name)
            found = {place: (self.owners.get(trained[index]), slot) for place, (index, slot) in of_trained.items()}
        else:
            found = dict(slots_by_name(names, self.class_name, list(self.contents.variables)))
        for place, (owner, name) in found.items():
            self._take_slot(owner, name, place)
        # the list of all variables begins with the iterations from 2.11 on
        listed = self.graph.listed(self.graph.child(inner, "_variables"))
        is_keras_2_10 = bool(listed) and not trained and self.graph.child(inner, "_iterations") not in listed
        self.contents.has_bare_momentum = is_keras_2_10 and any(
            "rms" in slots for slots in self.contents.slots.values()
        )
        if not self.contents.variables:
            first = {owner: next(iter(slots.values())) for owner, slots in self.contents.slots.items()}
            self.contents.owners = {owner: value.shape for owner, value in first.items()}
        lost = [name for place, name in names.items() if place not in found]
        if lost:
            self.contents.notes.append(f"It is not known whose slots these are: {', '.join(lost)}.")

    def _variables_in_lists(self, inner: int) -> Dict[int, str]:
        """The variables in an optimizer's lists, in order, with their names; but for those that it has by name too."""
        children = self.graph.nodes[inner].children
        lists = [child for name, child in children.items() if name != TRAINED]
        # the list of all of them comes first: its order is that in which they were made
        lists.sort(key=lambda child: child != children.get("_variables"))
        named = set(children.values())
        places = [place for each in lists for place in self.graph.listed(each) if place not in named]
        return {place: self.graph.nodes[place].full_name for place in places if self.graph.nodes[place].key is not None}

    def _take_slot(self, owner: Optional[str], slot: str, place: int) -> None:
        value = self._value(place)
        if owner is not None and value is not None:
            self.contents.slots.setdefault(owner, {})[slot] = value

    # The model

    def _parts_of(self, optimizer: int, trained: Iterable[int]) -> Set[int]:
        """All objects of an optimizer, without the model's that it lists."""
        parts = {place for place, _ in self.graph.walk(optimizer, frozenset({TRAINED}))}
        slots = {slot.place for place in parts for slot in self.graph.nodes[place].slots}
        return (parts | slots) - set(trained)

    def take_variables(self, others: Set[int], trained: List[int]) -> None:
        """The variables of the model: all that are not the optimizer's, in the order in which its layers stand."""
        paths = self._paths(_BESIDES | _AGAIN, others) or self._paths(_BESIDES, others)
        paths = self._with_trained(paths, trained)
        for place, owner in self._named(paths).items():
            value = self._value(place)
            if value is not None:
                self.owners[place] = owner
                self.contents.variables[owner] = value

    def _with_trained(self, paths: Dict[int, Tuple[str, ...]], trained: List[int]) -> Dict[int, Tuple[str, ...]]:
        """Also those that only the optimizer has: Keras 3's models do not track layers in lists of one's own."""
        lonely = {place: ("variable", str(index)) for index, place in enumerate(trained) if place not in paths}
        if lonely and paths.keys() <= set(trained):
            return {place: paths.get(place, lonely.get(place, ())) for place in trained}
        self.contents.is_ordered = not lonely
        return {**paths, **lonely}

    def _named(self, paths: Mapping[int, Tuple[str, ...]]) -> Dict[int, str]:
        """Owners: the variables' own names where they differ, or else each object's path and numbers in it."""
        names = {place: self.graph.nodes[place].full_name for place in paths}
        if all(names.values()) and len(set(names.values())) == len(names):
            return names
        counts: Dict[Tuple[str, ...], int] = {}
        for place, path in paths.items():
            number = counts[path[:-1]] = counts.get(path[:-1], -1) + 1
            names[place] = "/".join((*path[:-1], str(number)))
        return names

    def _paths(self, unnamed: FrozenSet[str], others: Set[int]) -> Dict[int, Tuple[str, ...]]:
        found = self.graph.walk(0, unnamed, others)
        return {place: path for place, path in found if self.graph.nodes[place].key is not None}

    def _value(self, place: Optional[int]) -> Optional[Value]:
        key = None if place is None else self.graph.nodes[place].key
        return None if key is None else self.checkpoint.value(key)


def slots_by_name(
    names: Mapping[int, str], class_name: Optional[str], owners: List[str]
) -> Iterator[Tuple[int, Tuple[str, str]]]:
    """Place → owner and slot, as the new optimizers of Keras 2 name them: ``m/d1/kernel``."""
    owners = owners or [owner_after_word(name) for name in names.values()]  # of an optimizer alone
    words = (word_of(name, owners) for name in names.values())
    class_name = class_name or class_of_words([word for word in words if word is not None])
    for place, name in names.items():
        found = owner_and_slot(name, class_name, owners)
        if found is not None:
            yield place, found


def slots_of_trained(names: List[Tuple[int, str]], count: int, class_name: Optional[str]) -> Dict[int, Tuple[int, str]]:
    """Place → which of the trained variables, and slot, as Keras 3 has them.

    It makes a slot for one variable after the other, in their order, and calls it after the variable's path and the
    slot. The path is not in a checkpoint, but it is the same in all slots of a variable.
    """
    split = []
    for place, name in names:
        last, word = name.split("/")[-1], ending_word(name)  # the scope before it differs from one to the next
        if word is not None:
            split.append((place, last[: -len(word)], word))
    class_name = class_name or class_of_words([word for _, _, word in split])
    by_word: Dict[str, List[str]] = {}
    for _, start, word in split:
        by_word.setdefault(word, []).append(start)
    # a slot that every variable has gives them in order
    whole = next((starts for starts in by_word.values() if len(starts) == count == len(set(starts))), None)
    if whole is None:
        return {}
    index = {start: place for place, start in enumerate(whole)}
    return {
        place: (index[start], slot_of_word(word, class_name) or word) for place, start, word in split if start in index
    }
