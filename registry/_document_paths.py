"""Paths in a document, as text: ``optimizer.learning_rate.values[2]``."""

from typing import Optional, Union

import re

from ._document_parser import MAX_DEPTH, Node
from .errors import Path, did_you_mean, shown

_PATH = re.compile(r"[\w$-]+(?:\.[\w$-]+|\[[0-9]{1,9}\])*")
_PART = re.compile(r"[\w$-]+|\[[0-9]+\]")


def parsed_path(text: str) -> Optional[Path]:
    """Return the path of a text, or None if the text is not a path."""
    parts = _PART.findall(text) if _PATH.fullmatch(text) else []
    if not 0 < len(parts) <= MAX_DEPTH:
        return None
    return tuple(int(part[1:-1]) if part.startswith("[") else part for part in parts)


def no_such_part(node: Node, part: Union[str, int]) -> str:
    """Return the message for a key or an index that a node does not have."""
    if isinstance(node.children, list):
        length = len(node.children)
        return f"there is no [{part}]: it is a list of {length}" + (f", [0] to [{length - 1}]" if length else "")
    if isinstance(node.children, dict):
        keys = [key for key in node.children if isinstance(key, str)]
        near = did_you_mean(part, keys)
        meant = f"; did you mean {shown(near)}? Set there: " if near is not None else "; set there: "
        return f"the document does not set {shown(part)}{meant}{', '.join(keys) or 'nothing'}"
    return f"there is no {part!r}: it is a value, not a mapping or a list"
