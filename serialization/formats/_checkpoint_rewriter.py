"""The object graph of a checkpoint, rewritten for the Keras of a target, which need not be installed.

The model's nodes stay as they are. The optimizer's are created anew, with the names of the target's optimizer. Its
lists of slots are written. Its list of all variables, whose order differs between versions of Keras 2, is written only
for Keras 3, which needs it to restore variables that do not exist yet.
"""

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from ...registry._documents import ADVANCE
from ...registry.errors import TranslationError
from .._conversion.target import FIRST_WITH_NEW_OPTIMIZERS, FIRST_WITH_ONE_OBJECT, ConversionTarget
from .._record import SKIP_COUNTERS, SKIPS
from ..keras import _native_skip_behavior
from ..keras._optimizer_config import KERAS_3, LEGACY, NEW
from ..keras._slot_names import KERAS_3_STATE, attributes_of_slot, class_with_slots, words_of
from ..keras._slot_order import ordered
from ..training_state import with_rate_in_momentum
from ._checkpoint_layout import OBJECT_GRAPH, TRAINED, Layout
from ._object_graph import VALUE, Attribute, Node, ObjectGraph, Slot

_ALL, _OPERATIONS, _FUNCTIONAL = "_variables", "_operations", "_functional"
# attribute of Nadam's product of momenta
_SCALARS = {LEGACY: {"momentum_cache": "_m_cache"}, NEW: {"momentum_cache": "_u_product"}}


def _family_on(target: ConversionTarget, layout: Layout) -> str:
    """Return the family of the target's optimizer: that of the checkpoint, if the target has it."""
    if target.is_keras_3:
        return KERAS_3
    return NEW if target.target.version >= FIRST_WITH_NEW_OPTIMIZERS and not layout.is_legacy else LEGACY


def rewrite(layout: Layout, target: ConversionTarget, class_name: Optional[str]) -> Tuple[ObjectGraph, Dict[str, Any]]:
    """Return the object graph for a target, and key → a function that reads the value.

    Args:
        layout: The checkpoint.
        target: The target.
        class_name: The class of the inner optimizer, which a checkpoint does not store.

    Raises:
        TranslationError: The target's checkpoint needs more than this one holds.
    """
    if target.is_keras_3 and not layout.is_keras_3:
        raise TranslationError(
            f"a checkpoint of Keras 2 does not tell how Keras 3 numbers the layers, so it cannot be converted for "
            f"{target.target}: convert a whole model to .keras, or build the model in code, call "
            "scalekeeper.restore(model, path) and save it"
        )
    return _Rewriter(layout, target, class_name).result()


class _Rewriter:
    """The rewriting of one checkpoint."""

    def __init__(self, layout: Layout, target: ConversionTarget, class_name: Optional[str]) -> None:
        self._layout = layout._replace(state=with_rate_in_momentum(layout.state))
        self._target = target
        self._class_name = class_name
        self._family = _family_on(target, layout)
        self._nodes: List[Node] = []
        self._new: Dict[int, int] = {}  # node in the source → node here
        self._values: Dict[int, Any] = {}  # new variable → function that reads its value
        self._made: Dict[Tuple[str, str], int] = {}  # owner and slot → node

    def result(self) -> Tuple[ObjectGraph, Dict[str, Any]]:
        layout = self._layout
        assert layout.optimizer is not None
        self._copy_model()
        optimizer = self._optimizer()
        for node_id, here in self._new.items():
            for name, child in layout.graph.nodes[node_id].children.items():
                if child == layout.optimizer:
                    self._nodes[here].children[name] = optimizer
        if layout.is_keras_3 and not self._target.is_keras_3:
            self._name_layers_for_keras_2()
        if "optimizer" in self._nodes[0].children and "model" not in self._nodes[0].children:
            self._add_root()
        return self._with_keys()

    # The model

    def _copy_model(self) -> None:
        graph, parts = self._layout.graph, self._layout.parts
        kept = [node_id for node_id, _ in graph.walk(0, frozenset(), parts)]
        self._new = {node_id: here for here, node_id in enumerate(kept)}
        untracked = [owner for node_id, owner in self._layout.owners.items() if node_id not in self._new]
        if untracked:
            raise TranslationError(
                f"the checkpoint lists {', '.join(untracked[:3])} … in its optimizer only, because Keras 3 does "
                "not track layers in Python lists: build the model in code, call scalekeeper.restore(model, path) and "
                "save it"
            )
        for node_id in kept:
            node = graph.nodes[node_id]
            children = {name: self._new[child] for name, child in node.children.items() if child in self._new}
            self._nodes.append(Node(children, [], list(node.attributes)))

    def _name_layers_for_keras_2(self) -> None:
        """Add layers as ``layer_with_weights-0``, …, and variables without the underscore before their names."""
        for node in list(self._nodes):
            holder = node
            if _FUNCTIONAL in node.children:  # of a Sequential
                holder = self._nodes[node.children[_FUNCTIONAL]]
            if _OPERATIONS in holder.children:
                listed = ObjectGraph(self._nodes).listed(holder.children[_OPERATIONS])
                for number, node_id in enumerate(each for each in listed if self._has_variables(each)):
                    node.children[f"layer_with_weights-{number}"] = node_id
            for name, node_id in list(node.children.items()):
                if name.startswith("_") and self._nodes[node_id].key is not None:
                    node.children.setdefault(name[1:], node_id)

    def _has_variables(self, node_id: int) -> bool:
        return any(self._nodes[each].key is not None for each, _ in ObjectGraph(self._nodes).walk(node_id))

    def _add_root(self) -> None:
        """Add a root with model and optimizer above the root of a SavedModel, which is the model."""
        moved = [
            Node({name: node_id + 1 for name, node_id in node.children.items()}, _moved(node.slots), node.attributes)
            for node in self._nodes
        ]
        root = Node({"model": 1, "optimizer": moved[0].children["optimizer"]}, [], [])
        self._nodes = [root, *moved]
        self._values = {node_id + 1: value for node_id, value in self._values.items()}

    # The optimizer

    def _optimizer(self) -> int:
        state, family = self._layout.state, self._family
        inner: Dict[str, int] = {}
        iterations = np.int64(state.iterations or 0)
        inner["iter" if family == LEGACY else "_iterations"] = self._variable("iter", iterations)
        if state.learning_rate is not None:
            name = "learning_rate" if family == LEGACY else "_learning_rate"
            inner[name] = self._variable("learning_rate", np.float32(state.learning_rate))
        for name, value in state.scalars.items():
            inner[_SCALARS.get(family, _SCALARS[NEW]).get(name, name)] = self._variable(name, value.read())
        if family == LEGACY:
            for name, value in self._layout.hypers.items():
                inner[name] = self._variable(name, value.read())
        return self._wrapped(inner, self._slots(inner))

    def _wrapped(self, inner: Dict[str, int], slots: List[Slot]) -> int:
        """Return the node of the optimizer: one node or two, as on the target."""
        state = {
            name: self._variable(name, _typed(value)) for name, value in self._layout.state.loss_scale_state.items()
        }
        if self._family == KERAS_3:
            return self._wrapped_as_keras_3(inner, state)
        outer = self._skip_nodes()
        if state or self._target.target.version < FIRST_WITH_ONE_OBJECT:
            outer["loss_scale"] = self._object(state)
        if self._target.target.version < FIRST_WITH_ONE_OBJECT:
            return self._object({**outer, "base_optimizer": self._object(inner, slots)})
        if self._family == LEGACY:
            outer["base_optimizer"] = self._object({})
        return self._object({**outer, **inner}, slots)

    def _wrapped_as_keras_3(self, inner: Dict[str, int], state: Mapping[str, int]) -> int:
        inner[TRAINED] = self._list(self._trained())
        inner[_ALL] = self._list([*self._counters(inner), *self._listed_slots()])
        if not state:  # a fixed scale, which is an argument in Keras 3
            return self._object(inner)
        own = {name: state[ours] for name, ours in KERAS_3_STATE.items() if ours in state}
        outer = {
            **self._skip_nodes(),
            **own,
            **{name: node_id for name, node_id in state.items() if name not in KERAS_3_STATE.values()},
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
        """Return the slots in the order of Keras 3's list of all variables."""
        slots = self._layout.state.slots
        class_name = self._class_name or self._class_of_slots()
        node_ids = ordered(slots, class_name, KERAS_3, list(self._layout.state.variables))
        return [self._made[node_id] for node_id in node_ids]

    def _skip_nodes(self) -> Dict[str, int]:
        """Return what scalekeeper stores of skipped steps: counters, and whether they count, if the target differs."""
        state, nodes = self._layout.state, {}
        if self._target.is_plain:
            return {}
        if state.skipped_steps not in (None, self._target.skipped_steps):
            advances = np.int64(state.skipped_steps == ADVANCE)
            nodes[_native_skip_behavior.NAME] = self._variable(_native_skip_behavior.NAME, advances)
        if state.skips:
            nodes[SKIPS] = self._object(
                {name: self._variable(name, np.int64(state.skips.get(name, 0))) for name in SKIP_COUNTERS}
            )
        return nodes

    def _slots(self, inner: Dict[str, int]) -> List[Slot]:
        """Create the slots: slots of the graph for legacy optimizers, lists among the attributes for others."""
        state = self._layout.state
        node_ids = {owner: self._new[node_id] for node_id, owner in self._layout.owners.items()}
        made = self._made = {
            (owner, name): self._variable(self._slot_name(owner, name), value.read)
            for owner, slots in state.slots.items()
            for name, value in slots.items()
        }
        if self._family == LEGACY:
            return [Slot(node_ids[owner], name, node_id) for (owner, name), node_id in made.items()]
        for name in dict.fromkeys(name for _, name in made):
            listed = [made[owner, name] for owner in state.variables if (owner, name) in made]
            for attribute in attributes_of_slot(name, self._class_name):
                inner[attribute] = self._list(listed)
        return []

    def _slot_name(self, owner: str, slot: str) -> str:
        """Return the target's name of a slot variable, by which readers of lists tell its owner."""
        if self._family == LEGACY:
            return f"{owner}/{slot}"
        in_keras_2, in_keras_3 = words_of(slot, self._class_name or self._class_of_slots())
        return f"{in_keras_2}/{owner}" if self._family == NEW else f"{owner.replace('/', '_')}_{in_keras_3}"

    def _class_of_slots(self) -> str:
        """Return a class with such slots, for names and order, if the inner optimizer's class is unknown."""
        slots = self._layout.state.slots
        return class_with_slots({name for each in slots.values() for name in each})

    def _trained(self) -> List[int]:
        """Return the model variables that the optimizer trains, in order."""
        state = self._layout.state
        node_ids = {owner: self._new[node_id] for node_id, owner in self._layout.owners.items()}
        return [node_ids[owner] for owner in state.variables if owner in state.slots or not state.slots]

    # New nodes

    def _object(self, children: Mapping[str, int], slots: Sequence[Slot] = ()) -> int:
        self._nodes.append(Node(dict(children), list(slots), []))
        return len(self._nodes) - 1

    def _list(self, node_ids: Sequence[int]) -> int:
        return self._object({str(number): node_id for number, node_id in enumerate(node_ids)})

    def _variable(self, name: str, value: Any) -> int:
        self._nodes.append(Node({}, [], [Attribute(VALUE, name, "")]))
        self._values[len(self._nodes) - 1] = value if callable(value) else lambda: value
        return len(self._nodes) - 1

    def _with_keys(self) -> Tuple[ObjectGraph, Dict[str, Any]]:
        """Give every value the key that TensorFlow would give it: its path."""
        graph = ObjectGraph(self._nodes)
        paths = {node_id: "/".join(map(_escaped, path)) for node_id, path in graph.breadth_first()}
        for node_id, path in list(paths.items()):
            for slot in self._nodes[node_id].slots:
                paths[slot.node_id] = f"{paths[slot.owner]}/.OPTIMIZER_SLOT/{path}/{_escaped(slot.name)}"
        values: Dict[str, Any] = {}
        for node_id, node in enumerate(self._nodes):
            for number, attribute in enumerate(node.attributes):
                key = f"{paths[node_id]}/.ATTRIBUTES/{_escaped(attribute.name)}"
                values[key] = self._values.get(node_id) or self._layout.value(attribute.key).read
                node.attributes[number] = attribute._replace(key=key)
        return graph, values


def write(prefix: str, graph: ObjectGraph, values: Mapping[str, Any], shards: int = 1) -> None:
    """Write the files of a checkpoint."""
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
    """Return a number of a loss scale's state with TensorFlow's type: float32 for a scale, int64 for a counter."""
    return np.int64(value) if isinstance(value, (int, np.integer)) else np.float32(value)


def _moved(slots: Sequence[Slot]) -> List[Slot]:
    return [Slot(slot.owner + 1, slot.name, slot.node_id + 1) for slot in slots]


def _escaped(name: str) -> str:
    """Escape a name for a key, in which dots and slashes have a meaning."""
    return name.replace(".", "..").replace("/", ".S")
