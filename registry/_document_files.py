"""Reading of documents: files to texts, texts to nodes, and errors that point into them."""

from typing import Optional, Tuple, Union

from ._document_parser import MAX_BYTES, Node, UnreadableError, read
from ._source_text import Source, Span
from .errors import DocumentError, Finding, Problem


def source_at(path: str, name: Optional[str] = None) -> Source:
    """Read the text of a file. ``name`` is its name in messages, if that is not the path."""
    name = path if name is None else name
    try:
        with open(path, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise _unreadable(name, f"can't be read: {error.strerror or error}") from None
    except ValueError as error:  # a NUL in the name
        raise _unreadable(name, f"can't be read: {error}") from None
    return source_of(name, data, path)


def source_of(name: str, data: bytes, path: Optional[str] = None) -> Source:
    """Return the content of a file as text, or raise an error if it is not text or too long."""
    if len(data) > MAX_BYTES:
        raise _unreadable(name, f"is larger than a document may be ({MAX_BYTES // 1024} KiB)")
    try:
        return Source(name, data.decode("utf-8-sig"), path)
    except UnicodeDecodeError as error:
        source = Source(name, data[: error.start].decode("utf-8-sig", "replace"))
        problem = Problem((), f"not UTF-8 text: byte 0x{data[error.start]:02x}", "encoding")
        raise DocumentError(name, [Finding(problem, source.position(len(source.text)), "", name)]) from None


def _unreadable(name: str, message: str) -> DocumentError:
    return DocumentError(name, [Finding(Problem((), message, "file"), None, "", name)])


def is_json(source: Source) -> bool:
    """Return whether the extension of the name, or else the first character, is that of JSON."""
    name = source.name.lower()
    return name.endswith(".json") or (not name.endswith((".yaml", ".yml")) and source.text.lstrip()[:1] == "{")


def parsed(source: Source, as_json: bool, text: Optional[str] = None) -> Node:
    """Return the nodes of a text, or raise an error that points to what can't be read."""
    try:
        return read(source, as_json, text)
    except UnreadableError as problem:
        offset = min(problem.offset, len(source.text))  # what is parsed may be longer than the text
        span = Span(source, offset, offset + problem.length)
        is_reference = "${" in (span.excerpt.splitlines() or [""])[0] and not as_json
        hint = "; inside of {…} and […], a reference is in quotes: '${…}'" if is_reference else ""
        raise error_at(span, problem.message + hint, "syntax") from None


def finding(problem: Problem, span: Span) -> Finding:
    """Return a problem with its place."""
    return Finding(problem, span.position, span.excerpt, span.name)


def error_at(span: Span, message: str, kind: str, path: Tuple[Union[str, int], ...] = ()) -> DocumentError:
    """Return an error that points to a place."""
    return DocumentError(span.name, [finding(Problem(path, message, kind), span)])
