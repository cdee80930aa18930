"""The parser of documents: YAML (1.2 core schema) or JSON to plain values with their offsets.

It is not recursive and has limits, so that untrusted text can't take much time or memory. The values are mappings,
lists, text, numbers, booleans and null.
"""

from typing import Any, Dict, Iterator, List, NamedTuple, NoReturn, Optional, Tuple, Union

import json
import re

import yaml

from ._source_text import Source, Span
from .errors import Path, shown

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64
MAX_NODES = 10_000
_MAX_DIGITS = 400

_YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# The YAML 1.2 core schema, in which 1e-3 is a number and `no` is text. PyYAML follows YAML 1.1.
_NULL = re.compile(r"null|Null|NULL|~|")
_TRUE = re.compile(r"true|True|TRUE")
_FALSE = re.compile(r"false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+")
_PREFIXED_INT = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"[-+]?\.(?:inf|Inf|INF)")
_NAN = re.compile(r"\.(?:nan|NaN|NAN)")

HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+', re.DOTALL)


class UnreadableError(Exception):
    """Raised when a text is not valid YAML or JSON at ``offset``."""

    def __init__(self, message: str, offset: int, length: int = 1) -> None:
        super().__init__(message)
        self.message, self.offset, self.length = message, offset, length


class Node:
    """A value and its place in a text.

    Nodes of aliases are shared, so a node is never changed once it is built.

    Attributes:
        span: The place of the value.
        value: The value, if it is neither a mapping nor a list.
        children: The nodes of a mapping or a list.
        keys: The places of the keys of a mapping.
        size: The number of nodes from here on, with aliases each time they are used.
        replaced: The node that this one has replaced, if an including file or an override sets the value again.
        origin: For the value of a reference, the node that it refers to.
        variable: The environment variable that the value comes from.
    """

    __slots__ = ("children", "keys", "origin", "replaced", "size", "span", "value", "variable")

    def __init__(self, span: Span, value: Any = None, children: Any = None) -> None:
        self.span, self.value = span, value
        self.children: Union[Dict[str, Node], List[Node], None] = children
        self.keys: Dict[str, Span] = {}
        self.size = 1
        self.replaced: Optional[Node] = None
        self.origin: Optional[Node] = None
        self.variable: Optional[str] = None

    def copy(self) -> "Node":
        """Return a copy that shares the nodes below."""
        copy = Node(self.span, self.value, self.children)
        copy.keys, copy.size = self.keys, self.size
        copy.replaced, copy.origin, copy.variable = self.replaced, self.origin, self.variable
        return copy

    def with_children(self, children: Any, keys: "Optional[Dict[str, Span]]" = None) -> "Node":
        """Return a copy with other children, and other places of the keys."""
        copy = self.copy()
        copy.value, copy.children, copy.keys = None, children, self.keys if keys is None else keys
        copy.size = 1 + sum(child.size for child in (children.values() if isinstance(children, dict) else children))
        return copy

    def plain(self) -> Any:
        """Return the value without places."""
        if isinstance(self.children, dict):
            return {key: child.plain() for key, child in self.children.items()}
        if isinstance(self.children, list):
            return [child.plain() for child in self.children]
        return self.value

    def child(self, part: Union[str, int]) -> "Optional[Node]":
        """Return the node of a key or an index, or None."""
        if isinstance(self.children, dict):
            return self.children.get(part)  # type: ignore[arg-type]
        if isinstance(self.children, list) and isinstance(part, int) and part < len(self.children):
            return self.children[part]
        return None

    def along(self, path: Path) -> "List[Node]":
        """Return the nodes on a path, from this one to that at the path, or to its closest parent that exists."""
        found = [self]
        for part in path:
            child = found[-1].child(part)
            if child is None:
                break
            found.append(child)
        return found

    def find(self, path: Path, at_key: bool) -> Span:
        """Return the place of the node at a path, or of its closest parent that exists."""
        found = self.along(path)
        if at_key and len(found) == len(path) + 1 and isinstance(path[-1], str):
            return found[-2].keys[path[-1]]
        return found[-1].span


class Event(NamedTuple):
    """An event of the JSON or YAML parser: ``open`` or ``close`` of ``{`` or ``[``, ``scalar``, or ``alias``."""

    kind: str
    start: int
    end: int
    value: Any = None
    anchor: Optional[str] = None


def read(source: Source, is_json: bool, text: Optional[str] = None) -> Node:
    """Return the value of a text, or raise an :class:`UnreadableError`.

    Args:
        source: The text that the places of the value are in.
        is_json: Whether it is JSON.
        text: A text to parse instead of that of the source: of the same length, with some characters replaced.
    """
    text = source.text if text is None else text
    return _build(_json_events(text) if is_json else _yaml_events(text), source)


def scalar(text: str) -> Any:
    """Return the value of a plain YAML scalar, or raise an :class:`UnreadableError`."""
    return _yaml_scalar(text, 0)


def _build(events: Iterator[Event], source: Source) -> Node:
    """Build the tree of nodes from events, within the limits."""
    open_nodes: List[Tuple[Node, Optional[str], Optional[Event]]] = []  # container, its anchor, the pending key
    anchors: Dict[str, Optional[Node]] = {}
    root: Optional[Node] = None
    for event in events:
        if event.kind == "close":
            node, anchor, _ = open_nodes.pop()
            node.span = node.span._replace(end=event.end)
        else:
            anchor = event.anchor
            is_alias = event.kind == "alias"
            span = Span(source, event.start, event.end)
            node = _aliased(anchors, event) if is_alias else Node(span, event.value)
            if event.kind == "open":
                if len(open_nodes) >= MAX_DEPTH:
                    raise UnreadableError(f"nested deeper than {MAX_DEPTH} levels", event.start)
                node.children = {} if event.value == "{" else []
                node.value = None
                if anchor is not None:
                    anchors[anchor] = None  # an alias inside it would be recursive
                open_nodes.append((node, anchor, None))
                continue
        if anchor is not None and event.kind != "alias":
            anchors[anchor] = node
        if not open_nodes:
            root = node
            continue
        parent, parent_anchor, key = open_nodes[-1]
        if isinstance(parent.children, list):
            parent.children.append(node)
        elif key is None:
            _require_text_key(node, event)
            open_nodes[-1] = (parent, parent_anchor, event)
            continue
        else:
            assert parent.children is not None
            if key.value in parent.children:
                first = source.position(parent.keys[key.value].start)
                message = f"the key {shown(key.value)} is there twice, first at line {first.line}"
                raise UnreadableError(message, key.start, key.end - key.start)
            parent.children[key.value] = node
            parent.keys[key.value] = Span(source, key.start, key.end)
            open_nodes[-1] = (parent, parent_anchor, None)
        parent.size += node.size
        if parent.size > MAX_NODES:
            raise UnreadableError(f"more than {MAX_NODES} values (aliases count each time)", event.start)
    if root is None:
        raise UnreadableError("the document is empty", 0)
    return root


def _aliased(anchors: Dict[str, Optional[Node]], event: Event) -> Node:
    node = anchors.get(event.anchor or "", event)
    if node is event:
        raise UnreadableError(f"the alias *{event.anchor} has no anchor before it", event.start)
    if not isinstance(node, Node):
        raise UnreadableError(f"the alias *{event.anchor} stands inside what it refers to", event.start)
    return node


def _require_text_key(node: Node, event: Event) -> None:
    if event.kind != "scalar" or not isinstance(node.value, str):
        what = "a list or mapping" if node.children is not None else shown(node.value)
        raise UnreadableError(f"a key must be text, not {what}", node.span.start, node.span.end - node.span.start)
    if node.value == "<<":
        message = "YAML 1.2 has no merge keys: write the keys themselves, or put them into a file and include it"
        raise UnreadableError(message, node.span.start, node.span.end - node.span.start)


def _yaml_events(text: str) -> Iterator[Event]:
    documents = 0
    half = HALF_CHARACTER.search(text)  # Python reads bytes of the command line that are not text as these
    if half is not None:
        raise UnreadableError(f"the character U+{ord(half.group()):04X} is not allowed in YAML", half.start())
    event: Any  # newer type stubs say that marks are optional
    try:
        for event in yaml.parse(text, Loader=_YAML_LOADER):
            start, end = event.start_mark.index, event.end_mark.index
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise UnreadableError("a second document starts here; a file holds one", start)
            elif isinstance(event, yaml.AliasEvent):
                yield Event("alias", start, end, anchor=event.anchor)
            elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                _refuse_tag(event.tag, start)
                bracket = "{" if isinstance(event, yaml.MappingStartEvent) else "["
                yield Event("open", start, end, bracket, event.anchor)
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                yield Event("close", start, end)
            elif isinstance(event, yaml.ScalarEvent):
                _refuse_tag(event.tag, start)
                value = _yaml_scalar(event.value, start) if event.implicit[0] else event.value
                yield Event("scalar", start, end, value, event.anchor)
    except yaml.reader.ReaderError as error:
        character = error.character if isinstance(error.character, str) else chr(error.character)
        message = f"the character U+{ord(character[:1]):04X} is not allowed in YAML"
        raise UnreadableError(message, max(0, text.find(character))) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark is not None and text[mark.index : mark.index + 1] == "\t":
            raise UnreadableError("YAML does not allow tabs for indentation; use spaces", mark.index) from None
        context = f" ({error.context})" if error.context else ""
        raise UnreadableError(f"not YAML: {error.problem}{context}", mark.index if mark else 0) from None
    except yaml.YAMLError as error:
        raise UnreadableError(f"not YAML: {error}", 0) from None


def _refuse_tag(tag: Optional[str], offset: int) -> None:
    if tag is not None:
        raise UnreadableError(f"the tag {shown(tag)} is not allowed: values are plain", offset)


def _yaml_scalar(text: str, offset: int) -> Any:
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text):
        return True
    if _FALSE.fullmatch(text):
        return False
    if _INT.fullmatch(text) or _PREFIXED_INT.fullmatch(text):
        return _integer(text, offset)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _INFINITY.fullmatch(text):
        return float(text.replace(".", ""))
    if _NAN.fullmatch(text):
        return float("nan")
    return text


def _integer(text: str, offset: int) -> int:
    if len(text) > _MAX_DIGITS:
        raise UnreadableError(f"a number of {len(text)} digits is too large", offset)
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def _json_events(text: str) -> Iterator[Event]:
    """Check the syntax with the json module, then find the offsets of the tokens."""
    if not text.strip():
        return
    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise UnreadableError(f"not JSON: {error.msg}", min(error.pos, max(0, len(text) - 1))) from None
    except _NotJsonError as error:
        name = str(error)
        raise UnreadableError(f"not JSON: {name} is not a JSON number", text.find(name), len(name)) from None
    except RecursionError:
        raise UnreadableError(f"nested deeper than {MAX_DEPTH} levels", 0) from None
    for match in _JSON_TOKEN.finditer(text):
        token, start, end = match.group(), match.start(), match.end()
        if token in "{[":
            yield Event("open", start, end, token)
        elif token in "}]":
            yield Event("close", start, end)
        elif token not in ":,":
            is_integer = re.fullmatch(r"-?[0-9]+", token) is not None
            value = _integer(token, start) if is_integer else json.loads(token)
            if isinstance(value, str) and HALF_CHARACTER.search(value):
                raise UnreadableError("half of a pair of \\u escapes is not a character", start, end - start)
            yield Event("scalar", start, end, value)


class _NotJsonError(Exception):
    pass


def _refuse_constant(name: str) -> NoReturn:
    raise _NotJsonError(name)
