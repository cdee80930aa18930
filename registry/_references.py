"""References in a document: ``${optimizer.learning_rate}``, and ``${env:NAME}`` for allowed environment variables."""

from typing import AbstractSet, Any, Optional, Tuple

import os
import re

from ._document_files import error_at
from ._document_parser import HALF_CHARACTER, MAX_DEPTH, MAX_NODES, Node, UnreadableError, scalar
from ._document_paths import no_such_part, parsed_path
from .errors import ArgumentError, DocumentError, Path, shown

SCHEMA = "$schema"
PATTERN = r"\$\{[^{}]*\}"  # for JSON Schema, too

_REFERENCE = re.compile(PATTERN)
_ESCAPED = "$${"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # only ASCII: similar-looking letters must not pass
_LONGEST_VARIABLE = 10_000
_MOST_WORK = 10 * MAX_NODES

_Following = Tuple[str, ...]


def allowed_variables(names: Any) -> AbstractSet[str]:
    """Return the names of environment variables, or raise an error if one can't be a name."""
    found = frozenset((names,) if isinstance(names, str) else names)
    for name in found:
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise ArgumentError(f"{shown(name)} is not the name of an environment variable: give exact names")
    return found


def escaped(text: str) -> str:
    """Return a text such that a document takes it as it is."""
    return text.replace("${", _ESCAPED)


def with_references(root: Node, variables: AbstractSet[str]) -> Node:
    """Return a document with the values of its references.

    A reference is the whole of a value. The value of an environment variable is a scalar, read as in YAML, and never a
    reference. ``$${`` is the text ``${``.
    """
    return _Resolver(root, variables).resolved(root, (), 0, ())


class _Resolver:
    def __init__(self, root: Node, variables: AbstractSet[str]) -> None:
        self._root, self._variables, self._left = root, variables, _MOST_WORK

    def resolved(self, node: Node, path: Path, depth: int, following: _Following) -> Node:
        """Return a node with the values of all references in it."""
        self._spend(node, path, depth)
        if isinstance(node.children, dict):
            children = {
                key: child if path == () and key == SCHEMA else self.resolved(child, (*path, key), depth + 1, following)
                for key, child in node.children.items()
            }
            is_same = all(children[key] is child for key, child in node.children.items())
            return node if is_same else node.with_children(children)
        if isinstance(node.children, list):
            items = [self.resolved(child, (*path, at), depth + 1, following) for at, child in enumerate(node.children)]
            is_same = all(new is old for new, old in zip(items, node.children))
            return node if is_same else node.with_children(items)
        if not isinstance(node.value, str) or "${" not in node.value:
            return node
        inner = self._inner(node, path)
        if inner is None:
            copy = node.copy()
            copy.value = node.value.replace(_ESCAPED, "${")
            return copy
        if inner.startswith("env:"):
            return self._of_variable(node, path, inner[len("env:") :])
        self._require_no_cycle(node, path, inner, following)
        target = self._target(node, path, inner, depth + 1, (*following, inner))
        found = self.resolved(target, path, depth + 1, (*following, inner)).copy()
        found.span, found.origin, found.replaced = node.span, target, node.replaced
        return found

    def _inner(self, node: Node, path: Path) -> Optional[str]:
        """Return what is between the braces of a reference; None for a text in which all are escaped."""
        text = str(node.value)
        if _REFERENCE.fullmatch(text):
            return text[2:-1]
        if "${" in text.replace(_ESCAPED, ""):
            message = (
                "a reference is the whole of a value, such as ${optimizer.learning_rate} or ${env:NAME}; "
                "write $${ for the text ${"
            )
            raise self._error(node, path, message)
        return None

    def _target(self, site: Node, path: Path, inner: str, depth: int, following: _Following) -> Node:
        """Return the node that a reference refers to, with the references in it as they are."""
        parts = parsed_path(inner)
        if parts is None:
            message = f"{shown(inner)} is not a path: write ${{optimizer.learning_rate}} or ${{env:NAME}}"
            raise self._error(site, path, message)
        node = self._root
        for part in parts:
            node = self._followed(node, path, depth, following)
            child = node.child(part)
            self._spend(site, path, depth)
            if child is None:
                reason = no_such_part(node, part)
                raise self._error(site, path, f"${{{inner}}} refers to nothing: {reason}")
            node = child
        return node

    def _followed(self, node: Node, path: Path, depth: int, following: _Following) -> Node:
        """Return the mapping or list that a node is or refers to, or the node if it is a value."""
        while isinstance(node.value, str) and _REFERENCE.fullmatch(node.value):
            inner = node.value[2:-1]
            if inner.startswith("env:"):
                break
            self._spend(node, path, depth)
            self._require_no_cycle(node, path, inner, following)
            following, depth = (*following, inner), depth + 1
            node = self._target(node, path, inner, depth, following)
        return node

    def _of_variable(self, node: Node, path: Path, name: str) -> Node:
        if not _VARIABLE.fullmatch(name):
            raise self._error(node, path, f"{shown(name)} is not the name of an environment variable")
        if name not in self._variables:
            message = (
                f"reading the environment variable {name} is not allowed. To allow it, pass allow_env=[{name!r}] or, "
                f"on the command line, --allow-env {name}"
            )
            raise self._error(node, path, message)
        text = os.environ.get(name)
        if text is None or not text.strip():
            reason = "not set" if text is None else "empty"
            raise self._error(node, path, f"the environment variable {name} is {reason}")
        if HALF_CHARACTER.search(text):  # Python reads bytes that are not text as these
            raise self._error(node, path, f"the value of the environment variable {name} is not text")
        copy = node.copy()
        try:
            if len(text) > _LONGEST_VARIABLE:
                raise UnreadableError("its value is too long", 0)
            copy.value, copy.variable = scalar(text.strip()), name
        except UnreadableError:
            raise self._error(node, path, f"the value of the environment variable {name} is too long") from None
        return copy

    def _require_no_cycle(self, node: Node, path: Path, inner: str, following: _Following) -> None:
        if inner in following:
            chain = [*following[following.index(inner) :], inner]
            raise self._error(node, path, "a cycle of references: " + " → ".join(chain))

    def _spend(self, node: Node, path: Path, depth: int) -> None:
        self._left -= 1
        if depth > MAX_DEPTH:
            raise self._error(node, path, f"nested deeper than {MAX_DEPTH} levels, with what references refer to")
        if self._left < 0:
            raise self._error(node, path, f"more than {MAX_NODES} values, with what references refer to")

    def _error(self, node: Node, path: Path, message: str) -> DocumentError:
        return error_at(node.span, message, "reference", path)
