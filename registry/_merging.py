"""Merging of nodes: the later value wins, and mappings merge."""

from typing import Any, Mapping, Optional

import numbers

from ._document_parser import MAX_DEPTH, Node
from ._plugins import loss_scales
from ._source_text import Span
from .errors import InvalidSpecError, Path, Problem

DEFAULT_LOSS_SCALE = "dynamic"  # of a document without the key
NOWHERE = Span(None, 0, 0)
# the parts of a document that a name alone can stand for
_NAMED_PARTS = (("optimizer",), ("loss_scale",))


def merged(below: Node, above: Node, path: Path = ()) -> Node:
    """Return both as one node: what ``above`` sets replaces what ``below`` sets, and mappings merge."""
    if isinstance(above.children, dict):
        base = as_mapping(below, path)
        if base is not None and isinstance(base.children, dict):
            children = dict(base.children)
            for key, child in above.children.items():
                children[key] = merged(children[key], child, (*path, key)) if key in children else child
            return above.with_children(children, {**base.keys, **above.keys})
    return replacing(above, below)


def replacing(node: Node, replaced: Optional[Node]) -> Node:
    """Return a copy of a node that knows which one it has replaced."""
    copy = node.copy()
    copy.replaced = replaced
    return copy


def as_mapping(node: Node, path: Path) -> Optional[Node]:
    """Return a mapping; that of a name or a number which stands for one; or None.

    ``optimizer: adam`` stands for ``{name: adam}``, and ``loss_scale: 128`` for a fixed loss scale.
    """
    if isinstance(node.children, dict):
        return node
    if node.children is not None or path not in _NAMED_PARTS:
        return None
    if isinstance(node.value, str):
        return node.with_children({"name": node}, {"name": node.span})
    if path == ("loss_scale",) and isinstance(node.value, numbers.Real) and not isinstance(node.value, bool):
        name, parameter = loss_scales.number
        children = {"name": Node(node.span, name), parameter: node}
        return node.with_children(children, dict.fromkeys(children, node.span))
    return None


def node_of(value: Any, depth: int = 0) -> Node:
    """Return the nodes of plain values that a program gives; they have no place."""
    if depth > MAX_DEPTH:
        raise InvalidSpecError([Problem((), f"nested deeper than {MAX_DEPTH} levels", "type")])
    if isinstance(value, Mapping):
        children = {key: node_of(child, depth + 1) for key, child in value.items()}
        return Node(NOWHERE).with_children(children, dict.fromkeys(children, NOWHERE))
    if isinstance(value, list):
        return Node(NOWHERE).with_children([node_of(child, depth + 1) for child in value])
    return Node(NOWHERE, value)
