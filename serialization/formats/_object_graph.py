"""The graph of objects in a checkpoint: which object has which, under which name, and where its values are."""

from typing import Any, Collection, Dict, Iterator, List, NamedTuple, Optional, Tuple

import re

from ._wire_format import encoded, fields, text

VALUE = "VARIABLE_VALUE"
_NUMBER = re.compile("[0-9]{1,9}")


class Attribute(NamedTuple):
    """Something that an object keeps in a checkpoint: a variable its value."""

    name: str
    full_name: str  # what it is called in TensorFlow; empty where it is not said
    key: str  # under which the checkpoint has it


class Slot(NamedTuple):
    """A slot of an optimizer: whose it is, its name, and where it is, by places in the graph."""

    owner: int
    name: str
    place: int


class Node(NamedTuple):
    """An object. One with a key is a variable."""

    children: Dict[str, int]  # name → place in the graph
    slots: List[Slot]
    attributes: List[Attribute]

    @property
    def key(self) -> Optional[str]:
        """Under which the checkpoint has a variable's value."""
        return next((each.key for each in self.attributes if each.name == VALUE), None)

    @property
    def full_name(self) -> str:
        """What a variable is called in TensorFlow; empty where it is not said."""
        return next((each.full_name for each in self.attributes if each.name == VALUE), "")


class ObjectGraph:
    """Objects by place; the root is the first."""

    def __init__(self, nodes: List[Node]) -> None:
        self.nodes = nodes

    @classmethod
    def parsed(cls, data: bytes) -> "ObjectGraph":
        """From a ``TrackableObjectGraph`` message."""
        nodes = [_node(value) for number, value in fields(data) if number == 1]
        places = [place for node in nodes for place in [*node.children.values(), *(slot.place for slot in node.slots)]]
        owners = [slot.owner for node in nodes for slot in node.slots]
        if not nodes or any(not 0 <= place < len(nodes) for place in places + owners):
            raise ValueError("its object graph points at objects that are not there")
        return cls(nodes)

    def message(self) -> bytes:
        """The same as a message again."""
        return encoded([(1, _message(node)) for node in self.nodes])

    def child(self, place: int, *path: str) -> Optional[int]:
        """The object that a path leads to, or None."""
        for name in path:
            if name not in self.nodes[place].children:
                return None
            place = self.nodes[place].children[name]
        return place

    def listed(self, place: Optional[int]) -> List[int]:
        """The objects in a list, in its order."""
        if place is None:
            return []
        numbered = {int(name): child for name, child in self.nodes[place].children.items() if _NUMBER.fullmatch(name)}
        return [numbered[number] for number in sorted(numbered)]

    def walk(
        self, start: int, unnamed: Collection[str] = (), closed: Collection[int] = ()
    ) -> Iterator[Tuple[int, Tuple[str, ...]]]:
        """Each object that can be reached, an object's own before the next one's; with its path.

        No path has one of the names ``unnamed`` in it, or leads through an object in ``closed``.
        """
        seen = set(closed)
        waiting: List[Tuple[int, Tuple[str, ...]]] = [(start, ())]
        while waiting:
            place, path = waiting.pop()
            if place in seen:
                continue
            seen.add(place)
            yield place, path
            children = self.nodes[place].children.items()
            waiting.extend(reversed([(child, (*path, name)) for name, child in children if name not in unnamed]))

    def breadth_first(self, start: int = 0) -> Iterator[Tuple[int, Tuple[str, ...]]]:
        """Each object that can be reached, nearest first, with its path."""
        seen = {start}
        layer: List[Tuple[int, Tuple[str, ...]]] = [(start, ())]
        while layer:
            yield from layer
            following = []
            for place, path in layer:
                for name, child in self.nodes[place].children.items():
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
            node.attributes.append(Attribute(*(text(inside.get(place, b"")) for place in (1, 2, 3))))
        else:
            node.slots.append(Slot(inside.get(1, 0), text(inside.get(2, b"")), inside.get(3, 0)))
    return node


def _message(node: Node) -> bytes:
    children = [(1, encoded([(1, place), (2, name)])) for name, place in node.children.items()]
    attributes = [(2, encoded([(1, each.name), (2, each.full_name), (3, each.key)])) for each in node.attributes]
    slots = [(3, encoded([(1, slot.owner), (2, slot.name), (3, slot.place)])) for slot in node.slots]
    return encoded([*children, *attributes, *slots])
