"""Documents: optimizers in YAML or JSON files.

A document is read, the files that it includes are merged into it, overrides change it, references get their values, and
the result is checked. Every step takes and returns nodes that know their places, so that an error of any step points
into the right text.
"""

from typing import AbstractSet, Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import os
import re

from ._argument_checks import is_model, is_optimizer, path_of, unexpected
from ._document_files import error_at, finding, is_json, parsed, source_at
from ._document_parser import MAX_NODES, Node
from ._import_paths import AllowList
from ._includes import with_includes
from ._merging import DEFAULT_LOSS_SCALE, node_of
from ._monitor_options import NAMES as MONITORING
from ._monitor_options import Monitoring, monitoring_of
from ._optimizer_spec import OptimizerSpec, check_optimizer
from ._overrides import INCLUDE, Override, parsed_overrides, with_override
from ._plugins import loss_scales
from ._references import SCHEMA, allowed_variables, with_references
from ._source_text import Position, Source, Span
from ._targets import Target
from ._targets import target as target_named
from .errors import (
    ArgumentTypeError,
    DocumentError,
    Finding,
    InvalidSpecError,
    Problem,
    ScalekeeperError,
    did_you_mean,
    dotted,
    shown,
    unknown,
)

KEYS = (SCHEMA, INCLUDE, "loss_scale", "optimizer", "skipped_steps", *MONITORING)
_PAIR = re.compile(r"\s*(\w+)\s*[:= ]\s*([^\s:=]+)\s*")
SKIPPED_STEPS = NATIVE, ADVANCE, HOLD = ("native", "advance", "hold")


class Access(NamedTuple):
    """The permissions of a document: import paths, folders of other files, environment variables."""

    imports: AllowList = AllowList()
    folders: Tuple[str, ...] = ()
    variables: AbstractSet[str] = frozenset()


def access_of(
    allow: Iterable[str] = (),
    allow_include: "Union[str, os.PathLike[str], Iterable[Union[str, os.PathLike[str]]]]" = (),
    allow_env: Iterable[str] = (),
) -> Access:
    """Return what a caller allows, or raise an error if that is not valid."""
    given = [allow_include] if isinstance(allow_include, (str, os.PathLike)) else list(allow_include)
    if not all(isinstance(folder, (str, os.PathLike)) for folder in given):
        raise ArgumentTypeError(f"allow_include is a list of folders, not {shown(allow_include)}")
    return Access(AllowList(allow), tuple(os.fspath(folder) for folder in given), allowed_variables(allow_env))


class Document(NamedTuple):
    """A valid document: the optimizer to build, its loss scale, and its options.

    Attributes:
        optimizer: The optimizer to build.
        loss_scale: The policy.
        skipped_steps: Whether a skipped step advances ``iterations``: ``"advance"``, ``"hold"`` or ``"native"``.
        target: The TensorFlow that the document was checked for.
        monitoring: The options ``stop_after_skips``, ``attribute_overflows`` and ``watch``.

    Example:
        >>> import scalekeeper
        >>> document = scalekeeper.load_document({"optimizer": "adam", "stop_after_skips": 100}, target="2.3")
        >>> document.loss_scale, document.monitoring.stop_after_skips, document.target.name
        (DynamicLossScale(current_loss_scale=32768.0, num_good_steps=0, initial_loss_scale=32768.0, ...), 100, '2.3')
    """

    optimizer: OptimizerSpec
    loss_scale: Any
    skipped_steps: str
    target: Target
    monitoring: Monitoring = Monitoring()


def load_document(
    document: "Union[str, os.PathLike[str], Mapping[str, Any]]",
    *,
    target: Optional[str] = None,
    allow: Iterable[str] = (),
    overrides: Iterable[str] = (),
    allow_include: "Iterable[Union[str, os.PathLike[str]]]" = (),
    allow_env: Iterable[str] = (),
) -> Document:
    """Read and check a YAML or JSON file, or a mapping, without TensorFlow. Nothing in it is executed.

    Args:
        document: The path of a file, or its content as a mapping.
        target: The TensorFlow that runs it, as for :func:`scalekeeper.registry.target`. Default: the installed one.
        allow: Import paths that the document may use: ``package.module:Class``, or ``package.*``.
        overrides: Changes, in order: ``loss_scale.increment_period=100`` sets a value, ``~loss_scale.maximum`` deletes
            one.
        allow_include: Folders from which the document may include files, besides its own.
        allow_env: Environment variables that the document may refer to.

    Returns:
        The valid document.

    Raises:
        DocumentError: The file or an override can't be read or is not valid.
        InvalidSpecError: The mapping is not valid.
        UnknownTargetError: The target is not known.
        ArgumentError: An entry of ``allow`` is not an import path, or one of ``allow_env`` not a name.

    Example:
        >>> import scalekeeper
        >>> document = scalekeeper.load_document("examples/train.yaml", target="2.3", overrides=["optimizer=sgd"])
        >>> document.optimizer.name, document.loss_scale.params.increment_period
        ('sgd', 500)
        >>> scalekeeper.load_document({"optimizer": "sgd", "loss_scale": 128}).loss_scale
        FixedLossScale(128.0)
    """
    chosen, access = target_named(target), access_of(allow, allow_include, allow_env)
    changes = parsed_overrides(overrides)
    if isinstance(document, Mapping):
        return _check_mapping(document, chosen, access, changes)
    if is_optimizer(document) or is_model(document):
        raise unexpected("build({'optimizer': 'adam'})", "the path of a document or a mapping", document)
    path = path_of(document, "build('train.yaml') or build({'optimizer': 'adam'})")
    return check_text(source_at(path), chosen, access, changes)


def check_text(source: Source, target: Target, access: Access, overrides: Sequence[Override] = ()) -> Document:
    """Read and check the text of a document."""
    return check_nodes(resolved(source, access, overrides), target, access, source.name)


def resolved(source: Source, access: Access, overrides: Sequence[Override] = ()) -> Node:
    """Return the nodes of a document with its included files, overrides and references."""
    try:
        return _resolved(parsed(source, is_json(source)), access, overrides)
    except DocumentError as error:
        raise DocumentError(source.name, error.findings) from None


def _resolved(root: Node, access: Access, overrides: Sequence[Override]) -> Node:
    root = with_includes(root, access.folders)
    for override in overrides:
        root = with_override(root, override)
    root = with_references(root, access.variables)
    if root.size > MAX_NODES:
        message = f"more than {MAX_NODES} values, with included files, overrides and references"
        raise DocumentError(root.span.name, [finding(Problem((), message, "size"), root.span)])
    return root


def check_nodes(root: Node, target: Target, access: Access, name: str) -> Document:
    """Check a resolved document; problems point to their places."""
    try:
        return check_document(root.plain(), target, access.imports)
    except InvalidSpecError as error:
        raise DocumentError(name, _findings(error.problems, root, name)) from None


def _check_mapping(
    document: Mapping[str, Any], target: Target, access: Access, overrides: Sequence[Override]
) -> Document:
    """Check a document that a program gives. An error is a DocumentError only if it points into a text."""
    try:
        return check_nodes(_resolved(node_of(document), access, overrides), target, access, "<mapping>")
    except DocumentError as error:
        if any(found.place is not None for found in error.findings):
            raise DocumentError("<mapping>", error.findings) from None
        raise InvalidSpecError([found.problem for found in error.findings]) from None


def check_loss_scale(
    source: Source, access: Access, overrides: Sequence[Override] = (), *, as_json: Optional[bool] = None
) -> Tuple[Any, Any]:
    """Return the loss scale of a document as a spec and as an object, and ignore the rest of the document.

    The text may also be the spec of a loss scale alone: a mapping with a name.
    """
    try:
        root = parsed(source, is_json(source) if as_json is None else as_json)
        is_document = isinstance(root.children, dict) and not {"optimizer", "loss_scale", INCLUDE}.isdisjoint(
            root.children
        )
        if not is_document:
            root = root.with_children({"loss_scale": root}, {"loss_scale": root.span})
        _require_known_keys(overrides)
        root = _resolved(root, access, overrides)
        return _loss_scale_of(root, access, ("loss_scale",) if is_document else ())
    except DocumentError as error:
        raise DocumentError(source.name, error.findings) from None


def changed_loss_scale(
    spec: Union[str, float], text: str, access: Access, overrides: Sequence[Override]
) -> Tuple[Any, Any]:
    """Return the loss scale of a name or a number with overrides, as a spec and as an object.

    ``text`` is what was given, which errors point into.
    """
    span = Span(Source("POLICY", text), 0, len(text))
    root = Node(span).with_children({"loss_scale": Node(span, spec)}, {"loss_scale": span})
    _require_known_keys(overrides)
    root = _resolved(root, access, overrides)
    return _loss_scale_of(root, access, ("loss_scale",))


def _require_known_keys(overrides: Sequence[Override]) -> None:
    """Raise an error for an override that would be ignored with the rest of the document because of its name."""
    for override in overrides:
        key = override.path[0]
        if key not in KEYS:
            remedy = f"A parameter of the loss scale is loss_scale.{dotted(override.path)}."
            message = unknown("key", key, KEYS, remedy=remedy)
            raise error_at(override.span, message, "extra_forbidden", override.path)


def _loss_scale_of(root: Node, access: Access, shown_path: Tuple[str, ...]) -> Tuple[Any, Any]:
    """Return the loss scale of a resolved document; ``shown_path`` is where messages say that it is."""
    spec = root.plain().get("loss_scale", DEFAULT_LOSS_SCALE)
    try:
        return spec, loss_scales.resolve(spec, allow=access.imports.patterns)
    except InvalidSpecError as error:
        findings = []
        for found in _findings([problem.under("loss_scale") for problem in error.problems], root, ""):
            problem = found.problem._replace(path=shown_path + found.problem.path[1:])
            findings.append(found._replace(problem=problem))
        raise DocumentError(root.span.name, findings) from None


def check_document(data: Any, target: Target, allow: AllowList) -> Document:
    """Check plain values and raise one error with all problems."""
    if not isinstance(data, Mapping):
        message = f"a document is a mapping with the key 'optimizer', not {shown(data)}"
        pair = _PAIR.fullmatch(data) if isinstance(data, str) else None
        if pair is not None:
            message += f"; a colon and a space are between key and value: {shown(': '.join(pair.groups()))}"
        raise InvalidSpecError([Problem((), message, "type")])
    problems: List[Problem] = [
        Problem((key,), unknown("key", key, KEYS), "extra_forbidden", True) for key in data if key not in KEYS
    ]
    if not isinstance(data.get(SCHEMA, ""), str):
        problems.append(Problem((SCHEMA,), f"{shown(data[SCHEMA])} must be a string", "type"))
    skipped_steps = data.get("skipped_steps", SKIPPED_STEPS[0])
    if skipped_steps not in SKIPPED_STEPS:
        near = did_you_mean(skipped_steps, SKIPPED_STEPS)
        meant = "; valid" if near is None else f"; did you mean {shown(near)}? Valid"
        message = f"{shown(skipped_steps)} is not possible{meant}: {', '.join(SKIPPED_STEPS)}"
        problems.append(Problem(("skipped_steps",), message, "unknown_name"))
    parts: Dict[str, Any] = {}
    if "optimizer" not in data:
        problems.append(Problem((), "the key 'optimizer' is missing", "missing"))
    else:
        _check_part("optimizer", lambda: check_optimizer(data["optimizer"], target), parts, problems)
    scale = data.get("loss_scale", DEFAULT_LOSS_SCALE)
    _check_part("loss_scale", lambda: loss_scales.resolve(scale, allow=allow.patterns), parts, problems)
    _check_part("", lambda: monitoring_of(data, "a document"), parts, problems)
    if problems:
        raise InvalidSpecError(problems)
    return Document(parts["optimizer"], parts["loss_scale"], skipped_steps, target, parts[""])


def _check_part(key: str, check: Any, parts: Dict[str, Any], problems: List[Problem]) -> None:
    try:
        parts[key] = check()
    except InvalidSpecError as error:
        problems += [problem.under(key) if key else problem for problem in error.problems]
    except ScalekeeperError as error:
        problems.append(Problem((key, "name"), str(error), "plugin"))


def _findings(problems: Iterable[Problem], root: Node, name: str) -> List[Finding]:
    """Return problems with their places, those of the document itself first, from top to bottom."""
    found = [finding(_explained(problem, root), root.find(problem.path, problem.at_key)) for problem in problems]
    return sorted(found, key=lambda each: (each.source not in ("", name), each.source, each.place or Position(0, 0)))


def _explained(problem: Problem, root: Node) -> Problem:
    """Add what a value has replaced, and take out what an environment variable holds."""
    nodes = root.along(problem.path)
    problem = problem._replace(message=_without_variables(problem, nodes))
    replaced = nodes[-1].replaced if not problem.at_key else None
    if replaced is not None and str(replaced.span):
        what = f" it to {shown(replaced.value)}" if replaced.children is None else f" {dotted(problem.path)}"
        return problem._replace(message=f"{problem.message} ({replaced.span} had set{what})")
    return problem


def _without_variables(problem: Problem, nodes: List[Node]) -> str:
    """Return the message of a problem without values of environment variables, which may be secret.

    The variables are those anywhere in the part of the document that the problem is in.
    """
    message, last = problem.message, nodes[-1]
    hidden = list(_of_variables(nodes[min(1, len(nodes) - 1)]))
    if not hidden:
        return message
    if last.variable is not None and message.startswith(shown(last.value) + " "):
        rest = message[len(shown(last.value)) :]
        if not any(_holds(rest, node.value) for node in hidden):
            return f"${{env:{last.variable}}}{rest}"
    if any(_holds(message, node.value) for node in hidden):
        names = sorted({str(node.variable) for node in hidden})
        return f"not valid with the value of {' and '.join(names)}, which is not shown"
    return message


def _of_variables(node: Node) -> Iterable[Node]:
    if node.variable is not None:
        yield node
    for child in node.children.values() if isinstance(node.children, dict) else node.children or ():
        yield from _of_variables(child)


def _holds(message: str, value: Any) -> bool:
    """Return whether a message has a value in some form."""
    forms = {shown(value), str(value)}
    if isinstance(value, (int, float)):
        forms |= {f"{value:g}", shown(float(value)) if abs(value) < 1e300 else ""}
    if isinstance(value, str):
        forms |= {value[at : at + 12] for at in range(max(1, len(value) - 11))}
    return any(form and form in message for form in forms)
