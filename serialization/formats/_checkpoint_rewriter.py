"""The object graph of a checkpoint, rewritten for the Keras of a target, which need not be installed.

The model's nodes stay as they are. The optimizer's are created anew, with the names of the target's optimizer. Its
lists of slots are written. Its list of all variables, whose order differs between versions of Keras 2, is written only
for Keras 3, which needs it to restore variables that do not exist yet.
"""

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from ...registry._documents import ADVANCE
from ...registry.errors import TranslationError
from ..keras._slots import class_with_slots
from ..keras.profile import MODEL_NAMES_CHILD, MODEL_NAMES_TRAINED, SKIPPED_STEPS_CHILD, KerasProfile
from ..keras.target import ConversionTarget
from ..training_state import SKIP_COUNTERS, SKIPS, with_rate_in_momentum
from ._checkpoint_layout import OBJECT_GRAPH, Layout
from ._object_graph import VALUE, Attribute, Node, ObjectGraph, Slot

_OPERATIONS, _FUNCTIONAL = "_operations", "_functional"


def rewrite(layout: Layout, target: ConversionTarget, class_name: Optional[str]) -> Tuple[ObjectGraph, Dict[str, Any]]:
    """Return the object graph for a target, and key → a function that reads the value."""
    profile = target.keras.profile_for(None if layout.profile is None else layout.profile.family)
    if profile.trained_child is not None and layout.profile is not profile:
        raise TranslationError(
            f"a checkpoint of Keras 2 does not tell how Keras 3 numbers the layers, so it cannot be converted for "
            f"{target.keras}: convert a whole model to .keras, or build the model in code, call "
            "scalekeeper.restore(model, path) and save it"
        )
    state = layout.state
    inside = sorted({name for each in (*state.slots.values(), state.scalars) for name in each if "." in name})
    if inside:
        raise TranslationError(
            f"the checkpoint has the state of an optimizer inside an optimizer ({', '.join(inside[:3])} …), which is "
            "not converted: build the model in code, call scalekeeper.restore(model, path) and save it"
        )
    return _Rewriter(layout, target, profile, class_name).result()


class _Rewriter:
    """The rewriting of one checkpoint."""

    def __init__(
        self, layout: Layout, target: ConversionTarget, profile: KerasProfile, class_name: Optional[str]
    ) -> None:
        self._layout = layout._replace(state=with_rate_in_momentum(layout.state))
        self._target = target
        self._class_name = class_name
        self._profile = profile
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
        if layout.profile is not None and layout.profile.trained_child and not self._profile.trained_child:
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
        state, profile = self._layout.state, self._profile
        inner: Dict[str, int] = {}
        inner[profile.iterations_child] = self._variable("iter", np.int64(state.iterations or 0))
        if state.learning_rate is not None:
            inner[profile.learning_rate_child] = self._variable("learning_rate", np.float32(state.learning_rate))
        for name, value in state.scalars.items():
            inner[profile.scalar_children.get(name, name)] = self._variable(name, value.read())
        if profile.has_slots:
            for name, value in self._layout.hypers.items():
                inner[name] = self._variable(name, value.read())
        return self._wrapped(inner, self._slots(inner))

    def _wrapped(self, inner: Dict[str, int], slots: List[Slot]) -> int:
        """Return the node of the optimizer: one node or two, as on the target."""
        profile, version = self._profile, self._target.keras.tensorflow
        state = {
            name: self._variable(name, _typed(value)) for name, value in self._layout.state.loss_scale_state.items()
        }
        if profile.loss_scale_child is None:
            return self._wrapped_with_own_state(inner, state)
        outer = {**self._skip_nodes(), **self._model_names()}
        if profile.writes_loss_scale_child(version, bool(state)):
            outer[profile.loss_scale_child] = self._object(state)
        child = profile.inner_child(version)
        if child is not None:
            return self._object({**outer, child: self._object(inner, slots)})
        if profile.placeholder_child is not None:
            outer[profile.placeholder_child] = self._object({})
        return self._object({**outer, **inner}, slots)

    def _wrapped_with_own_state(self, inner: Dict[str, int], state: Mapping[str, int]) -> int:
        """Return the node of an optimizer whose loss-scale state is among its own children, as in Keras 3."""
        profile = self._profile
        trained = {} if profile.trained_child is None else {profile.trained_child: self._list(self._trained())}
        inner.update(trained)
        if profile.variables_child is not None:
            inner[profile.variables_child] = self._list([*self._counters(inner), *self._listed_slots()])
        child = profile.inner_child(self._target.keras.tensorflow)
        if not state or child is None:  # a fixed scale is an argument of the inner optimizer
            return self._object({**inner, **self._model_names()})
        own = {name: state[key] for name, key in profile.state_names.items() if key in state}
        outer = {
            **self._skip_nodes(),
            **self._model_names(),
            **own,
            **{name: node_id for name, node_id in state.items() if name not in profile.state_names.values()},
            profile.iterations_child: self._variable("iteration", np.int64(0)),
            profile.learning_rate_child: self._variable("learning_rate", np.float32(0)),
            **trained,
        }
        if profile.variables_child is not None:
            outer[profile.variables_child] = self._list([*self._counters(outer), *own.values()])
        return self._object({**outer, child: self._object(inner)})

    def _counters(self, children: Mapping[str, int]) -> List[int]:
        names = (self._profile.iterations_child, self._profile.learning_rate_child)
        return [children[name] for name in names if name in children]

    def _listed_slots(self) -> List[int]:
        """Return the slots in the order of the list of all variables."""
        slots = self._layout.state.slots
        class_name = self._class_name or self._class_of_slots()
        order = self._profile.ordered_slots(slots, class_name, list(self._layout.state.variables))
        return [self._made[slot] for slot in order]

    def _skip_nodes(self) -> Dict[str, int]:
        """Return what scalekeeper stores of skipped steps: counters, and whether they count, if the target differs."""
        state, nodes = self._layout.state, {}
        if self._target.is_plain:
            return {}
        if state.skipped_steps not in (None, self._target.keras.skipped_steps):
            advances = np.int64(state.skipped_steps == ADVANCE)
            nodes[SKIPPED_STEPS_CHILD] = self._variable(SKIPPED_STEPS_CHILD, advances)
        if state.skips:
            nodes[SKIPS] = self._object(
                {name: self._variable(name, np.int64(state.skips.get(name, 0))) for name in SKIP_COUNTERS}
            )
        return nodes

    def _model_names(self) -> Dict[str, int]:
        """Return the node with the names of nested models, which scalekeeper stores."""
        assert self._layout.optimizer is not None
        stored = self._layout.graph.named(self._layout.optimizer, MODEL_NAMES_CHILD)
        if not stored or self._target.is_plain:
            return {}
        names = {
            name: self._new[node_id]
            for name, node_id in stored.items()
            if not name.startswith(f"{MODEL_NAMES_TRAINED}/") and node_id in self._new
        }
        if not self._profile.has_slots and self._profile.trained_child is None:
            names.update({f"{MODEL_NAMES_TRAINED}/{index}": each for index, each in enumerate(self._trained())})
        return {MODEL_NAMES_CHILD: self._object(names)}

    def _slots(self, inner: Dict[str, int]) -> List[Slot]:
        """Create the slots: slots of the graph for legacy optimizers, lists among the attributes for others."""
        state = self._layout.state
        node_ids = {owner: self._new[node_id] for node_id, owner in self._layout.owners.items()}
        made = self._made = {
            (owner, name): self._variable(self._slot_name(owner, name), value.read)
            for owner, slots in state.slots.items()
            for name, value in slots.items()
        }
        if self._profile.has_slots:
            return [Slot(node_ids[owner], name, node_id) for (owner, name), node_id in made.items()]
        for name in dict.fromkeys(name for _, name in made):
            listed = [made[owner, name] for owner in state.variables if (owner, name) in made]
            attributes = self._profile.slot_attributes(name, self._class_name)
            if not attributes:
                raise TranslationError(
                    f"no optimizer of {self._target.keras} has the slot {name}: build the model in code, call "
                    "scalekeeper.restore(model, path) and save it"
                )
            for attribute in attributes:
                inner[attribute] = self._list(listed)
        return []

    def _slot_name(self, owner: str, slot: str) -> str:
        """Return the target's name of a slot variable, by which readers of lists tell its owner."""
        return self._profile.slot_variable_name(owner, slot, self._class_name or self._class_of_slots())

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
