"""The object graph in a checkpoint: its nodes, their named children, and the keys of their values."""

from typing import Any, Collection, Dict, Iterator, List, NamedTuple, Optional, Tuple

import re

from ._wire_format import encoded, fields, text

VALUE = "VARIABLE_VALUE"
_NUMBER = re.compile("[0-9]{1,9}")


class Attribute(NamedTuple):
    """A value that an object stores in a checkpoint, such as that of a variable."""

    name: str
    full_name: str  # its name in TensorFlow; may be empty
    key: str  # of the value in the checkpoint


class Slot(NamedTuple):
    """A slot of an optimizer: the node ids of its owner and of the slot itself."""

    owner: int
    name: str
    node_id: int


class Node(NamedTuple):
    """An object. A node with a key is a variable."""

    children: Dict[str, int]  # name → node id
    slots: List[Slot]
    attributes: List[Attribute]

    @property
    def key(self) -> Optional[str]:
        """The key of a variable's value in the checkpoint."""
        return next((each.key for each in self.attributes if each.name == VALUE), None)

    @property
    def full_name(self) -> str:
        """The name of a variable in TensorFlow; may be empty."""
        return next((each.full_name for each in self.attributes if each.name == VALUE), "")


class ObjectGraph:
    """A list of nodes, of which the first is the root. A node's id is its index in the list."""

    def __init__(self, nodes: List[Node]) -> None:
        self.nodes = nodes

    @classmethod
    def parsed(cls, data: bytes) -> "ObjectGraph":
        """Return the graph of a ``TrackableObjectGraph`` message."""
        nodes = [_node(value) for number, value in fields(data) if number == 1]
        ids = [each for node in nodes for each in [*node.children.values(), *(slot.node_id for slot in node.slots)]]
        owners = [slot.owner for node in nodes for slot in node.slots]
        if not nodes or any(not 0 <= each < len(nodes) for each in ids + owners):
            raise ValueError("its object graph refers to nodes that do not exist")
        return cls(nodes)

    def message(self) -> bytes:
        """Return the graph as a ``TrackableObjectGraph`` message."""
        return encoded([(1, _message(node)) for node in self.nodes])

    def child(self, node_id: int, *path: str) -> Optional[int]:
        """Return the node at a path of names, or None."""
        for name in path:
            if name not in self.nodes[node_id].children:
                return None
            node_id = self.nodes[node_id].children[name]
        return node_id

    def named(self, node_id: int, *path: str) -> Dict[str, int]:
        """Return the children of the node at a path of names; none if there is no such node."""
        found = self.child(node_id, *path)
        return {} if found is None else self.nodes[found].children

    def listed(self, node_id: Optional[int]) -> List[int]:
        """Return the nodes in a list, in its order."""
        if node_id is None:
            return []
        numbered = {int(name): child for name, child in self.nodes[node_id].children.items() if _NUMBER.fullmatch(name)}
        return [numbered[number] for number in sorted(numbered)]

    def walk(
        self, start: int, unnamed: Collection[str] = (), closed: Collection[int] = ()
    ) -> Iterator[Tuple[int, Tuple[str, ...]]]:
        """Yield each reachable node with its path, depth first.

        Args:
            start: The node to start from.
            unnamed: Names that no path contains.
            closed: Nodes that no path leads through.
        """
        seen = set(closed)
        waiting: List[Tuple[int, Tuple[str, ...]]] = [(start, ())]
        while waiting:
            node_id, path = waiting.pop()
            if node_id in seen:
                continue
            seen.add(node_id)
            yield node_id, path
            children = self.nodes[node_id].children.items()
            waiting.extend(reversed([(child, (*path, name)) for name, child in children if name not in unnamed]))

    def breadth_first(self, start: int = 0) -> Iterator[Tuple[int, Tuple[str, ...]]]:
        """Yield each reachable node with its path, breadth first."""
        seen = {start}
        layer: List[Tuple[int, Tuple[str, ...]]] = [(start, ())]
        while layer:
            yield from layer
            following = []
            for node_id, path in layer:
                for name, child in self.nodes[node_id].children.items():
                    if child not in seen:
                        seen.add(child)
                        following.append((child, (*path, name)))
            layer = following


def _node(message: Any) -> Node:
    node = Node({}, [], [])
    for number, value in fields(message):
        if number > 3:
            continue
        inside = dict(fields(value))
        if number == 1:
            node.children[text(inside.get(2, b""))] = inside.get(1, 0)
        elif number == 2:
            node.attributes.append(Attribute(*(text(inside.get(field, b"")) for field in (1, 2, 3))))
        else:
            node.slots.append(Slot(inside.get(1, 0), text(inside.get(2, b"")), inside.get(3, 0)))
    return node


def _message(node: Node) -> bytes:
    children = [(1, encoded([(1, node_id), (2, name)])) for name, node_id in node.children.items()]
    attributes = [(2, encoded([(1, each.name), (2, each.full_name), (3, each.key)])) for each in node.attributes]
    slots = [(3, encoded([(1, slot.owner), (2, slot.name), (3, slot.node_id)])) for slot in node.slots]
    return encoded([*children, *attributes, *slots])
