"""The resolved view of a document: every effective argument with its value and where it comes from."""

from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numbers
import re

import yaml
from pydantic import BaseModel

from ._document_parser import Node, scalar
from ._documents import Access, Document, check_document
from ._merging import DEFAULT_LOSS_SCALE, NOWHERE, as_mapping
from ._optimizer_spec import OPTIMIZERS, SCHEDULES, OptimizerSpec, argument_model
from ._parameters import checked
from ._plugins import loss_scales
from ._references import escaped
from ._targets import Target
from .errors import InvalidSpecError, Path, dotted

FILE, OVERRIDE, PRESET, DEFAULT = "file", "override", "preset", "default"
_PLAIN_TEXT = re.compile(r"[A-Za-z_][\w./:-]*[\w]|[A-Za-z_]", re.ASCII)


class Origin(NamedTuple):
    """Where a value comes from.

    Attributes:
        kind: ``file``, ``override``, ``preset`` or ``default``.
        text: The file and line, the override, the name of the preset, or whose default it is.
        line: The line in the file, or None.
        column: The column in the file or the override, or None.
        replaced: Where values were set that this one has replaced, the last one first.
    """

    kind: str
    text: str
    line: Optional[int] = None
    column: Optional[int] = None
    replaced: Tuple[str, ...] = ()


_UNSET = Origin(DEFAULT, "default")


class Entry(NamedTuple):
    """An effective argument: its path in a document, its value, and where that comes from."""

    path: Path
    value: Any
    origin: Origin


class Difference(NamedTuple):
    """An argument that differs between two views. It is None in a view that does not have it."""

    path: Path
    first: Optional[Entry]
    second: Optional[Entry]


def entries(document: Document, root: Node, access: Access) -> List[Entry]:
    """Return the effective arguments of a valid document, from its resolved nodes."""
    optimizer = as_mapping(root.along(("optimizer",))[-1], ("optimizer",))
    assert optimizer is not None
    default = Origin(DEFAULT, f"default of {document.target}")
    found = list(_arguments(OPTIMIZERS, document.optimizer, optimizer, ("optimizer",), document.target, default))
    found += _parameters(root.child("loss_scale"), access)
    options = {"skipped_steps": document.skipped_steps, **document.monitoring.model_dump()}
    found += [Entry((name,), value, _origin(root.child(name), _UNSET)) for name, value in options.items()]
    return found


def _arguments(
    kind: str, spec: OptimizerSpec, node: Node, path: Path, target: Target, default: Origin
) -> Iterator[Entry]:
    """Yield the arguments of an optimizer or a schedule: the name, the learning rate, and the others by name."""
    name_key = "name" if kind == OPTIMIZERS else "schedule"
    yield Entry((*path, name_key), spec.name, _origin(node.child(name_key), default))
    fields = argument_model(kind, spec.name, target).model_fields
    for name in sorted(fields, key=lambda each: (each != "learning_rate", each)):
        child, here = node.child(name), (*path, name)
        value = spec.arguments[name] if child is not None else fields[name].get_default(call_default_factory=True)
        if isinstance(value, OptimizerSpec):
            assert child is not None
            yield from _arguments(SCHEDULES, value, child, here, target, default)
        else:
            yield Entry(here, value, _origin(child, default))


def _parameters(given: Optional[Node], access: Access) -> Iterator[Entry]:
    """Yield the name and the parameters of a loss scale."""
    node = as_mapping(Node(NOWHERE, DEFAULT_LOSS_SCALE) if given is None else given, ("loss_scale",))
    assert node is not None
    values = node.plain()
    plugin = loss_scales.plugin(values.pop("name"), access.imports.patterns)
    # a path stays as it is: the class may be registered under another name where the document is read
    name = str(node.along(("name",))[-1].value)
    origin = _origin(given and node.child("name"), _UNSET)
    yield Entry(("loss_scale", "name"), name if ":" in name else plugin.name, origin)
    default = Origin(DEFAULT, f"default of {loss_scales.plugin_of(plugin.cls).name}")
    preset = Origin(PRESET, f"preset {plugin.name}")
    for parameter, value in dict(checked(plugin.parameters, values, plugin.name)).items():
        origin = _origin(node.child(parameter), preset if parameter in (plugin.preset or {}) else default)
        yield Entry(("loss_scale", parameter), _plain(value), origin)


def _origin(node: Optional[Node], default: Origin) -> Origin:
    """Return where the value of a node comes from; without a node, it is the default."""
    source = node.span.source if node is not None else None
    if node is None or source is None:
        return default
    line, column = source.position(node.span.start)
    replaced = tuple(_short(each) for each in _replaced(node) if each.span.source is not None)
    text = _short(node)
    if node.variable is not None:
        text += f" (${{env:{node.variable}}})"
    elif node.origin is not None and node.origin.span.source is not None:
        text += f" (from {_short(node.origin)})"
    if isinstance(node.children, list):  # overrides of elements
        others = (_short(child) for child in node.children if child.span.source not in (None, source))
        text += "".join(f" and {other}" for other in dict.fromkeys(others))
    if source.is_override:
        return Origin(OVERRIDE, text, None, column, replaced)
    return Origin(FILE, text, line, column, replaced)


def _short(node: Node) -> str:
    """Return ``file:line``, or the text of an override."""
    source = node.span.source
    if source is None:
        return ""
    return f"override {source.text}" if source.is_override else f"{source.name}:{source.position(node.span.start).line}"


def _replaced(node: Node) -> Iterator[Node]:
    while node.replaced is not None:
        node = node.replaced
        yield node


def differences(first: Sequence[Entry], second: Sequence[Entry]) -> List[Difference]:
    """Return the arguments whose values differ, and those that only one view has."""
    ours, theirs = ({entry.path: entry for entry in each} for each in (first, second))
    paths = [*ours, *(path for path in theirs if path not in ours)]
    found = [Difference(path, ours.get(path), theirs.get(path)) for path in paths]
    return [
        each for each in found if each.first is None or each.second is None or each.first.value != each.second.value
    ]


# As a document


def document_of(view: Sequence[Entry], target: Target, access: Access) -> Tuple[Dict[str, Any], List[Entry]]:
    """Return a document that states every argument, and the entries that it leaves out.

    Some defaults can't be written, such as None where a constructor takes no None. They are defaults, so leaving them
    out is the same.
    """
    left_out = [entry for entry in view if not _is_writable(entry.value)]
    while True:
        document = _nested(entry for entry in view if entry not in left_out)
        try:
            check_document(document, target, access.imports)
            return document, left_out
        except InvalidSpecError as error:
            paths = {problem.path for problem in error.problems}
            more = [
                entry
                for entry in view
                if entry.origin.kind in (DEFAULT, PRESET) and entry not in left_out and entry.path in paths
            ]
            if not more:
                raise
            left_out += more


def _nested(view: Iterable[Entry]) -> Dict[str, Any]:
    document: Dict[str, Any] = {}
    for entry in view:
        part = document
        for key in entry.path[:-1]:
            part = part.setdefault(str(key), {})
        part[str(entry.path[-1])] = entry.value
    return document


def _is_writable(value: Any) -> bool:
    if isinstance(value, list):
        return all(_is_writable(each) for each in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_writable(each) for key, each in value.items())
    return value is None or isinstance(value, (bool, int, float, str))


def _plain(value: Any) -> Any:
    """Return a parameter as plain values, as far as it can be one."""
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, numbers.Real) and not isinstance(value, (bool, int, float)):
        return float(value)
    return value


def yaml_lines(document: Mapping[str, Any], view: Sequence[Entry], left_out: Sequence[Entry]) -> List[str]:
    """Return a document as YAML, with the origin of each value as a comment."""
    comments = {entry.path: entry.origin.text for entry in view}
    lines = list(_yaml_mapping(document, (), comments))
    if left_out:
        lines.append("# defaults that can't be written:")
        for each in left_out:
            value = yaml_text(each.value) if _is_writable(each.value) else str(each.value)
            lines.append(f"#   {_one_line(dotted(each.path))}: {_one_line(value)}")
    return lines


def _yaml_mapping(values: Mapping[str, Any], path: Path, comments: Mapping[Path, str]) -> Iterator[str]:
    for key, value in values.items():
        here, indent = (*path, key), "  " * len(path)
        if here in comments:
            yield f"{indent}{yaml_text(key)}: {yaml_text(value)}  # {_one_line(comments[here])}"
        else:
            yield f"{indent}{yaml_text(key)}:"
            yield from _yaml_mapping(value, here, comments)


def yaml_text(value: Any) -> str:
    """Return plain values as YAML in one line, without references."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{yaml_text(key)}: {yaml_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(yaml_text(each) for each in value) + "]"
    if isinstance(value, str):
        text = escaped(value)
        if _PLAIN_TEXT.fullmatch(text) and isinstance(scalar(text), str):
            return text
        quoted: str = yaml.safe_dump(text, default_style='"', allow_unicode=True, width=float("inf"))
        return quoted.rstrip("\n")
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) and value - value != 0:  # infinity or NaN
        return ".nan" if value != value else ".inf" if value > 0 else "-.inf"
    return repr(value)


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
