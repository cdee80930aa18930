"""Documents: optimizers in YAML or JSON files."""

from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple, Union

import os

from ._document_parser import MAX_BYTES, Node, UnreadableError, read
from ._import_paths import AllowList
from ._monitor_options import NAMES as MONITORING
from ._monitor_options import Monitoring, monitoring_of
from ._optimizer_spec import OptimizerSpec, check_optimizer
from ._plugins import loss_scales
from ._source_text import Position, Source
from ._targets import Target
from ._targets import target as target_named
from .errors import DocumentError, Finding, InvalidSpecError, Problem, ScalekeeperError, shown, unknown

KEYS = ("$schema", "loss_scale", "optimizer", "skipped_steps", *MONITORING)
DEFAULT_LOSS_SCALE = "dynamic"
SKIPPED_STEPS = NATIVE, ADVANCE, HOLD = ("native", "advance", "hold")


class Document(NamedTuple):
    """A valid document: the optimizer to build, its loss scale, and its options."""

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
) -> Document:
    """Read and check a YAML or JSON file, or a mapping, without TensorFlow. Nothing in it is executed.

    Args:
        document: The path of a file, or its content as a mapping.
        target: The TensorFlow that runs it, as for :func:`scalekeeper.registry.target`. Default: the installed one.
        allow: Import paths that the document may use: ``package.module:Class``, or ``package.*``.

    Returns:
        The valid document.

    Raises:
        DocumentError: The file can't be read or is not valid.
        InvalidSpecError: The mapping is not valid.
        UnknownTargetError: The target is not known.
        ArgumentError: An entry of ``allow`` is not an import path.

    >>> import scalekeeper
    >>> document = scalekeeper.load_document("examples/train.yaml", target="2.3")
    >>> document.optimizer.name, document.loss_scale.params.increment_period
    ('adam', 500)
    >>> scalekeeper.load_document({"optimizer": "sgd", "loss_scale": 128}).loss_scale
    FixedLossScale(128.0)
    """
    chosen, allowed = target_named(target), AllowList(allow)
    if isinstance(document, Mapping):
        return check_document(document, chosen, allowed)
    return check_text(source_at(os.fspath(document)), chosen, allowed)


def check_text(source: Source, target: Target, allow: AllowList) -> Document:
    """Read and check the text of a document."""
    try:
        root = read(source, _is_json(source))
    except UnreadableError as problem:
        raise _not_read(source, problem) from None
    try:
        return check_document(root.plain(), target, allow)
    except InvalidSpecError as error:
        raise DocumentError(source.name, _findings(error.problems, source, root)) from None


def check_loss_scale(source: Source, allow: AllowList, *, is_json: Optional[bool] = None) -> Tuple[Any, Any]:
    """Return the loss scale of a document as a spec and as an object, and ignore the rest of the document.

    The text may also be the spec of a loss scale alone: a mapping with a name.
    """
    try:
        root = read(source, _is_json(source) if is_json is None else is_json)
    except UnreadableError as problem:
        raise _not_read(source, problem) from None
    data, path = root.plain(), []
    if isinstance(data, Mapping) and ("optimizer" in data or "loss_scale" in data):
        data, path = data.get("loss_scale", DEFAULT_LOSS_SCALE), ["loss_scale"]
    try:
        return data, loss_scales.resolve(data, allow=allow.patterns)
    except InvalidSpecError as error:
        problems = [problem.under(*path) for problem in error.problems]
        raise DocumentError(source.name, _findings(problems, source, root)) from None


def _not_read(source: Source, problem: UnreadableError) -> DocumentError:
    position, excerpt = source.position(problem.offset), source.excerpt(problem.offset, problem.length)
    return DocumentError(source.name, [Finding(Problem((), problem.message, "syntax"), position, excerpt)])


def _is_json(source: Source) -> bool:
    """Return whether the extension of the name, or else the first character, is that of JSON."""
    name = source.name.lower()
    return name.endswith(".json") or (not name.endswith((".yaml", ".yml")) and source.text.lstrip()[:1] == "{")


def check_document(data: Any, target: Target, allow: AllowList) -> Document:
    """Check plain values and raise one error with all problems."""
    if not isinstance(data, Mapping):
        message = f"a document is a mapping with the key 'optimizer', not {shown(data)}"
        raise InvalidSpecError([Problem((), message, "type")])
    problems: List[Problem] = [
        Problem((key,), unknown("key", key, KEYS), "extra_forbidden", True) for key in data if key not in KEYS
    ]
    if not isinstance(data.get("$schema", ""), str):
        problems.append(Problem(("$schema",), "{} must be a string".format(shown(data["$schema"])), "type"))
    skipped_steps = data.get("skipped_steps", SKIPPED_STEPS[0])
    if skipped_steps not in SKIPPED_STEPS:
        message = f"{shown(skipped_steps)} is not possible; valid: {', '.join(SKIPPED_STEPS)}"
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


def source_at(path: str) -> Source:
    """Read the text of a file."""
    try:
        with open(path, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, f"can't be read: {error.strerror or error}") from None
    except ValueError as error:  # a NUL in the name
        raise _unreadable(path, f"can't be read: {error}") from None
    return source_of(path, data)


def source_of(name: str, data: bytes) -> Source:
    """Return the content of a file as text, or raise an error if it is not text or too long."""
    if len(data) > MAX_BYTES:
        raise _unreadable(name, f"is larger than a document may be ({MAX_BYTES // 1024} KiB)")
    try:
        return Source(name, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        source = Source(name, data[: error.start].decode("utf-8-sig", "replace"))
        problem = Problem((), f"not UTF-8 text: byte 0x{data[error.start]:02x}", "encoding")
        raise DocumentError(name, [Finding(problem, source.position(len(source.text)), "")]) from None


def _unreadable(name: str, message: str) -> DocumentError:
    return DocumentError(name, [Finding(Problem((), message, "file"), None, "")])


def _findings(problems: Iterable[Problem], source: Source, root: Node) -> List[Finding]:
    found = []
    for problem in problems:
        offset, length = root.find(problem.path, problem.at_key)
        found.append(Finding(problem, source.position(offset), source.excerpt(offset, length)))
    return sorted(found, key=lambda finding: finding.place or Position(0, 0))
