"""Write a checkpoint as the Keras of a target writes it, which need not be the installed one.

The model's objects stay as they are in a checkpoint of the same generation; the optimizer's are made anew, under the
names that the target's optimizer has. Its lists of slots are written; its list of all variables, whose order differs
between versions of Keras 2, only for Keras 3, which needs it to restore what is yet to be made.
"""

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from ...registry._documents import ADVANCE
from ...registry.errors import TranslationError
from .. import _skip_record
from .._conversion.target import FIRST_WITH_NEW_OPTIMIZERS, FIRST_WITH_ONE_OBJECT, Aim
from .._rmsprop_momentum import with_rates
from ..keras import _native_skip_behavior
from ..keras._optimizer_config import KERAS_3, LEGACY, NEW
from ..keras._slot_names import KERAS_3_STATE, attributes_of_slot, class_with_slots, words_of
from ..keras._slot_order import ordered
from ._object_graph import VALUE, Attribute, Node, ObjectGraph, Slot
from .checkpoint import OBJECT_GRAPH, TRAINED, Layout

_ALL, _OPERATIONS, _FUNCTIONAL = "_variables", "_operations", "_functional"
# what the product of Nadam's momenta is called among an optimizer's attributes
_SCALARS = {LEGACY: {"momentum_cache": "_m_cache"}, NEW: {"momentum_cache": "_u_product"}}


def family_on(aim: Aim, layout: Layout) -> str:
    """Which of the target's optimizers a checkpoint is for: of the same kind, where the target has them."""
    if aim.is_keras_3:
        return KERAS_3
    return NEW if aim.target.version >= FIRST_WITH_NEW_OPTIMIZERS and not layout.is_legacy else LEGACY


def retold(layout: Layout, aim: Aim, class_name: Optional[str]) -> Tuple[ObjectGraph, Dict[str, Any]]:
    """The graph of objects for the target, and key → a function that gives the value.

    A checkpoint does not name the inner optimizer's class: who knows it gives it.
    """
    if aim.is_keras_3 and not layout.is_keras_3:
        raise TranslationError(
            f"a checkpoint for {aim.target} can't be made of one that Keras 2 wrote, which does not say how Keras 3 "
            "numbers its layers: convert a whole model to .keras, or build the model in code, call "
            "scalekeeper.restore(model, path), and save it"
        )
    return _Retelling(layout, aim, class_name).result()


class _Retelling:
    def __init__(self, layout: Layout, aim: Aim, class_name: Optional[str]) -> None:
        self._layout = layout._replace(contents=with_rates(layout.contents))
        self._aim = aim
        self._class_name = class_name
        self._family = family_on(aim, layout)
        self._nodes: List[Node] = []
        self._new: Dict[int, int] = {}  # place in the source → place here
        self._values: Dict[int, Any] = {}  # place of a new variable → how to read it
        self._made: Dict[Tuple[str, str], int] = {}  # owner and slot → place here

    def result(self) -> Tuple[ObjectGraph, Dict[str, Any]]:
        layout = self._layout
        assert layout.optimizer is not None
        self._copy_model()
        optimizer = self._optimizer()
        for place, here in self._new.items():
            for name, child in layout.graph.nodes[place].children.items():
                if child == layout.optimizer:
                    self._nodes[here].children[name] = optimizer
        if layout.is_keras_3 and not self._aim.is_keras_3:
            self._tell_layers_as_keras_2()
        if "optimizer" in self._nodes[0].children and "model" not in self._nodes[0].children:
            self._name_the_root()
        return self._with_keys()

    # The model

    def _copy_model(self) -> None:
        graph, parts = self._layout.graph, self._layout.parts
        kept = [place for place, _ in graph.walk(0, frozenset(), parts)]
        self._new = {place: here for here, place in enumerate(kept)}
        lost = [owner for place, owner in self._layout.owners.items() if place not in self._new]
        if lost:
            raise TranslationError(
                f"the checkpoint has {', '.join(lost[:3])} … in its optimizer only, as Keras 3 has it with layers in "
                "lists of one's own: build the model in code, call scalekeeper.restore(model, path), and save it"
            )
        for place in kept:
            node = graph.nodes[place]
            children = {name: self._new[child] for name, child in node.children.items() if child in self._new}
            self._nodes.append(Node(children, [], list(node.attributes)))

    def _tell_layers_as_keras_2(self) -> None:
        """A model has its layers as ``layer_with_weights-0``, …; variables have no dash before their names."""
        for node in list(self._nodes):
            holder = node
            if _FUNCTIONAL in node.children:  # of a Sequential
                holder = self._nodes[node.children[_FUNCTIONAL]]
            if _OPERATIONS in holder.children:
                listed = ObjectGraph(self._nodes).listed(holder.children[_OPERATIONS])
                for number, place in enumerate(each for each in listed if self._has_variables(each)):
                    node.children[f"layer_with_weights-{number}"] = place
            for name, place in list(node.children.items()):
                if name.startswith("_") and self._nodes[place].key is not None:
                    node.children.setdefault(name[1:], place)

    def _has_variables(self, place: int) -> bool:
        return any(self._nodes[each].key is not None for each, _ in ObjectGraph(self._nodes).walk(place))

    def _name_the_root(self) -> None:
        """A SavedModel's root is the model: put one above it that has model and optimizer."""
        moved = [
            Node({name: place + 1 for name, place in node.children.items()}, _moved(node.slots), node.attributes)
            for node in self._nodes
        ]
        root = Node({"model": 1, "optimizer": moved[0].children["optimizer"]}, [], [])
        self._nodes = [root, *moved]
        self._values = {place + 1: value for place, value in self._values.items()}

    # The optimizer

    def _optimizer(self) -> int:
        contents, family = self._layout.contents, self._family
        inner: Dict[str, int] = {}
        iterations = np.int64(contents.iterations or 0)
        inner["iter" if family == LEGACY else "_iterations"] = self._variable("iter", iterations)
        if contents.learning_rate is not None:
            name = "learning_rate" if family == LEGACY else "_learning_rate"
            inner[name] = self._variable("learning_rate", np.float32(contents.learning_rate))
        for name, value in contents.scalars.items():
            inner[_SCALARS.get(family, _SCALARS[NEW]).get(name, name)] = self._variable(name, value.read())
        if family == LEGACY:
            for name, value in self._layout.hypers.items():
                inner[name] = self._variable(name, value.read())
        return self._wrapped(inner, self._slots(inner))

    def _wrapped(self, inner: Dict[str, int], slots: List[Slot]) -> int:
        """The optimizer's object: one or two, as the target has it."""
        state = {
            name: self._variable(name, _typed(value)) for name, value in self._layout.contents.loss_scale_state.items()
        }
        if self._family == KERAS_3:
            return self._wrapped_as_keras_3(inner, state)
        outer = self._skipping()
        if state or self._aim.target.version < FIRST_WITH_ONE_OBJECT:
            outer["loss_scale"] = self._object(state)
        if self._aim.target.version < FIRST_WITH_ONE_OBJECT:
            return self._object({**outer, "base_optimizer": self._object(inner, slots)})
        if self._family == LEGACY:
            outer["base_optimizer"] = self._object({})
        return self._object({**outer, **inner}, slots)

    def _wrapped_as_keras_3(self, inner: Dict[str, int], state: Mapping[str, int]) -> int:
        inner[TRAINED] = self._list(self._trained())
        inner[_ALL] = self._list([*self._counters(inner), *self._listed_slots()])
        if not state:  # of a fixed scale, which is an argument there
            return self._object(inner)
        own = {name: state[ours] for name, ours in KERAS_3_STATE.items() if ours in state}
        outer = {
            **self._skipping(),
            **own,
            **{name: place for name, place in state.items() if name not in KERAS_3_STATE.values()},
            "_iterations": self._variable("iteration", np.int64(0)),
            "_learning_rate": self._variable("learning_rate", np.float32(0)),
            TRAINED: inner[TRAINED],
        }
        outer[_ALL] = self._list([*self._counters(outer), *own.values()])
        return self._object({**outer, "inner_optimizer": self._object(inner)})

    @staticmethod
    def _counters(children: Mapping[str, int]) -> List[int]:
        return [children[name] for name in ("_iterations", "_learning_rate") if name in children]

    def _listed_slots(self) -> List[int]:
        """In the order of Keras 3's list of all variables."""
        slots = self._layout.contents.slots
        class_name = self._class_name or self._class_of_slots()
        places = ordered(slots, class_name, KERAS_3, list(self._layout.contents.variables))
        return [self._made[place] for place in places]

    def _skipping(self) -> Dict[str, int]:
        """What ours keeps of skipped steps: how many there were, and whether they count, if not as the version does."""
        contents, kept = self._layout.contents, {}
        if self._aim.is_plain:
            return {}
        if contents.skipped_steps not in (None, self._aim.skipped_steps):
            advances = np.int64(contents.skipped_steps == ADVANCE)
            kept[_native_skip_behavior.NAME] = self._variable(_native_skip_behavior.NAME, advances)
        if contents.skips:
            kept[_skip_record.NAME] = self._object(
                {name: self._variable(name, np.int64(contents.skips.get(name, 0))) for name in _skip_record.COUNTERS}
            )
        return kept

    def _slots(self, inner: Dict[str, int]) -> List[Slot]:
        """With legacy optimizers, slots of the graph; with others, lists among the optimizer's attributes."""
        contents = self._layout.contents
        places = {owner: self._new[place] for place, owner in self._layout.owners.items()}
        made = self._made = {
            (owner, name): self._variable(self._slot_name(owner, name), value.read)
            for owner, slots in contents.slots.items()
            for name, value in slots.items()
        }
        if self._family == LEGACY:
            return [Slot(places[owner], name, place) for (owner, name), place in made.items()]
        for name in dict.fromkeys(name for _, name in made):
            listed = [made[owner, name] for owner in contents.variables if (owner, name) in made]
            for attribute in attributes_of_slot(name, self._class_name):
                inner[attribute] = self._list(listed)
        return []

    def _slot_name(self, owner: str, slot: str) -> str:
        """What the target calls a slot's variable: in lists, readers tell by it whose slot it is."""
        if self._family == LEGACY:
            return f"{owner}/{slot}"
        in_keras_2, in_keras_3 = words_of(slot, self._class_name or self._class_of_slots())
        return f"{in_keras_2}/{owner}" if self._family == NEW else f"{owner.replace('/', '_')}_{in_keras_3}"

    def _class_of_slots(self) -> str:
        """A class with such slots, where the checkpoint does not say it: it is for words and their order alone."""
        slots = self._layout.contents.slots
        return class_with_slots({name for each in slots.values() for name in each})

    def _trained(self) -> List[int]:
        """The model's variables that the optimizer trains, in their order."""
        contents = self._layout.contents
        places = {owner: self._new[place] for place, owner in self._layout.owners.items()}
        return [places[owner] for owner in contents.variables if owner in contents.slots or not contents.slots]

    # New objects

    def _object(self, children: Mapping[str, int], slots: Sequence[Slot] = ()) -> int:
        self._nodes.append(Node(dict(children), list(slots), []))
        return len(self._nodes) - 1

    def _list(self, places: Sequence[int]) -> int:
        return self._object({str(number): place for number, place in enumerate(places)})

    def _variable(self, name: str, value: Any) -> int:
        self._nodes.append(Node({}, [], [Attribute(VALUE, name, "")]))
        self._values[len(self._nodes) - 1] = value if callable(value) else lambda: value
        return len(self._nodes) - 1

    def _with_keys(self) -> Tuple[ObjectGraph, Dict[str, Any]]:
        """Everything under a key that says where it is, as TensorFlow does."""
        graph = ObjectGraph(self._nodes)
        paths = {place: "/".join(map(_escaped, path)) for place, path in graph.breadth_first()}
        for place, path in list(paths.items()):
            for slot in self._nodes[place].slots:
                paths[slot.place] = f"{paths[slot.owner]}/.OPTIMIZER_SLOT/{path}/{_escaped(slot.name)}"
        values: Dict[str, Any] = {}
        for place, node in enumerate(self._nodes):
            for number, attribute in enumerate(node.attributes):
                key = f"{paths[place]}/.ATTRIBUTES/{_escaped(attribute.name)}"
                values[key] = self._values.get(place) or self._layout.value(attribute.key).read
                node.attributes[number] = attribute._replace(key=key)
        return graph, values


def write(prefix: str, graph: ObjectGraph, values: Mapping[str, Any], shards: int = 1) -> None:
    """Write the files of a checkpoint with the installed TensorFlow."""
    import tensorflow as tf

    tensors = {key: tf.convert_to_tensor(read()) for key, read in values.items()}
    tensors[OBJECT_GRAPH] = tf.constant(graph.message())
    names = list(tensors)
    prefixes = [f"{prefix}.part{number}" for number in range(shards)]
    for number, part in enumerate(prefixes):
        chosen = names[number::shards]
        tf.raw_ops.SaveV2(
            prefix=part,
            tensor_names=chosen,
            shape_and_slices=[""] * len(chosen),
            tensors=[tensors[name] for name in chosen],
        )
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes, destination_prefix=prefix, delete_old_dirs=False)


def _typed(value: Any) -> Any:
    """A number of a loss scale's state: TensorFlow has a scale as float32, and a counter as int64."""
    return np.int64(value) if isinstance(value, (int, np.integer)) else np.float32(value)


def _moved(slots: Sequence[Slot]) -> List[Slot]:
    return [Slot(slot.owner + 1, slot.name, slot.place + 1) for slot in slots]


def _escaped(name: str) -> str:
    """A name as a part of a key: a dot and a slash have a meaning there."""
    return name.replace(".", "..").replace("/", ".S")
