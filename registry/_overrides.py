"""Overrides of a document: ``loss_scale.increment_period=100`` sets a value, ``~loss_scale.maximum`` deletes one."""

from typing import Any, Iterable, List, NamedTuple, Optional, Tuple

from ._document_files import error_at, parsed
from ._document_parser import MAX_BYTES, Node
from ._document_paths import no_such_part, parsed_path
from ._merging import DEFAULT_LOSS_SCALE, as_mapping, replacing
from ._source_text import Source, Span
from .errors import ArgumentTypeError, Path, dotted, shown

INCLUDE = "include"
_EXAMPLES = "'loss_scale.increment_period=100' sets a value, '~loss_scale.maximum' deletes one"


class Override(NamedTuple):
    """A change of a document. Without a value, it deletes what is at the path."""

    path: Path
    value: Optional[Node]
    span: Span  # of the path in the text of the override


def parsed_overrides(texts: Iterable[str]) -> Tuple[Override, ...]:
    """Return overrides, or raise an error that points into the first one that is not valid."""
    given: List[Any] = [texts] if isinstance(texts, str) else list(texts)
    return tuple(_override(text, f"<override {number}>") for number, text in enumerate(given, 1))


def _override(text: Any, name: str) -> Override:
    if not isinstance(text, str):
        raise ArgumentTypeError(f"an override is a text such as 'optimizer.learning_rate=1e-3', not {shown(text)}")
    source = Source(name, text[:MAX_BYTES], is_override=True)
    path, span, end = _path_of(source, "~" if text.startswith("~") else "=")
    if text.startswith("~"):
        return Override(path, None, span)
    return Override(path, _value(source, end), span)


def path_and_values(text: str, name: str) -> Tuple[Override, List[Node]]:
    """Return the path, as an override without a value, and the values of ``loss_scale.increment_period=100,500``."""
    source = Source(name, text[:MAX_BYTES], is_override=True)
    path, span, end = _path_of(source, "=")
    if not source.text[end:].strip():
        raise error_at(Span(source, end, end), "values are missing after '=': separate them with commas", "override")
    # the values as a list in brackets, with the opening one in the place of the equals sign
    root = parsed(source, False, " " * (end - 1) + "[" + source.text[end:] + "\n]")
    assert isinstance(root.children, list)
    return Override(path, None, span), root.children


def _path_of(source: Source, sign: str) -> Tuple[Path, Span, int]:
    """Return the path of an override, its place, and the offset after it and the equals sign."""
    text = source.text
    if len(text) >= MAX_BYTES:
        raise error_at(Span(source, 0, 1), f"longer than {MAX_BYTES} characters", "override")
    if len(text.splitlines()) > 1:
        raise error_at(Span(source, 0, 1), "an override is one line", "override")
    start, end = (1, len(text)) if sign == "~" else (0, text.find("="))
    if end < 0:
        raise error_at(Span(source, 0, len(text)), f"an override needs '=': {_EXAMPLES}", "override")
    span = Span(source, start, end)
    path = parsed_path(text[start:end].strip())
    if path is None:
        message = f"{shown(text[start:end])} is not a path such as optimizer.learning_rate.values[0]: {_EXAMPLES}"
        raise error_at(span, message, "override")
    if path[0] == INCLUDE:
        raise error_at(span, "'include' can't be overridden: it is read before the overrides", "override")
    return path, span, end + 1


def _value(source: Source, start: int) -> Node:
    """Return the value of an override. Its text is parsed behind as many spaces as the path takes."""
    text = source.text[start:]
    if not text.strip():
        span = Span(source, start, start)
        raise error_at(span, "the value is missing; write null for null, '' for an empty text", "override")
    node = parsed(source, False, " " * start + text)
    opening = source.text[node.span.start : node.span.start + 1]
    if node.children is not None and opening not in ("{", "["):
        raise error_at(node.span, "write a mapping as {key: value}, a list as [value]", "override")
    return node


def with_override(root: Node, override: Override) -> Node:
    """Return a document with an override. Nodes that other places share are copied, not changed."""
    return _changed(root, override, 0)


def _changed(node: Node, override: Override, depth: int) -> Node:
    container, part, here = _container(node, override, depth), override.path[depth], override.path[:depth]
    child = container.child(part)
    is_last = depth == len(override.path) - 1
    if child is None and (override.value is None or not isinstance(container.children, dict)):
        raise _error(override, no_such_part(container, part))
    new: Optional[Node]
    if not is_last:
        new = _changed(_missing(override, (*here, part)) if child is None else child, override, depth + 1)
    else:
        new = None if override.value is None else replacing(override.value, child)
    if isinstance(container.children, list):
        items: List[Any] = list(container.children)
        at = int(part)
        items[at : at + 1] = [] if new is None else [new]
        return container.with_children(items)
    children, keys = dict(container.children or {}), dict(container.keys)
    key: Any = part
    if new is None:
        del children[key], keys[key]
    else:
        children[key] = new
        keys[key] = override.span if child is None or is_last else keys[key]
    return container.with_children(children, keys)


def _container(node: Node, override: Override, depth: int) -> Node:
    """Return the mapping or list that a part of the path is in."""
    part, here = override.path[depth], override.path[:depth]
    if isinstance(part, int) and node.span is override.span:  # an override does not begin a list
        message = f"the document does not set {dotted(here)}, so it has no [{part}]; give the whole list: [value, …]"
        raise _error(override, message)
    if isinstance(part, int):
        if isinstance(node.children, list):
            return node
    else:
        mapping = as_mapping(node, here)
        if mapping is not None:
            return mapping
    what = "a mapping" if isinstance(node.children, dict) else "a list" if node.children is not None else "a value"
    where = f" ({node.span})" if str(node.span) else ""
    expected = f"it has no [{part}]" if isinstance(part, int) else f"it has no key {part!r}"
    message = f"{dotted(here) or 'the document'} is {what}{where}, so {expected}; give the whole value, or another path"
    raise _error(override, message)


def _missing(override: Override, path: Path) -> Node:
    """Return the mapping that an override begins where a document has nothing."""
    node = Node(override.span).with_children({}, {})
    if path == ("loss_scale",):  # what a document without the key has
        return node.with_children({"name": Node(override.span, DEFAULT_LOSS_SCALE)}, {"name": override.span})
    return node


def _error(override: Override, message: str) -> Exception:
    return error_at(override.span, message, "override", override.path)
