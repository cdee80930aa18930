"""Documents that include others: ``include: base.yaml``."""

from typing import Iterable, List, NamedTuple, Optional, Tuple

import os

from ._document_files import error_at, is_json, parsed, source_at
from ._document_parser import MAX_BYTES, Node
from ._merging import merged
from ._overrides import INCLUDE
from .errors import DocumentError, shown

MAX_FILES = 32
MAX_CHAIN = 8

_Chain = Tuple[Tuple[str, str], ...]  # the files that include one another: path on the disk, name in messages


class _Budget:
    """The number of files and characters that may still be read."""

    def __init__(self, characters: int) -> None:
        self.files, self.characters = MAX_FILES, characters


class _Folders(NamedTuple):
    """The folders, without symbolic links, from which a document may include files."""

    paths: Tuple[str, ...]

    def cover(self, path: str) -> bool:
        return any(_is_inside(path, folder) for folder in self.paths)


def with_includes(root: Node, allowed: Iterable[str]) -> Node:
    """Return a document with the files that it includes, in which later files and the document itself win.

    Names are relative to the file that has them. Files must be in the folder of the document, in a subfolder, or in an
    allowed folder, whatever symbolic links say.
    """
    if not isinstance(root.children, dict) or INCLUDE not in root.children:
        return root
    source = root.span.source
    path = source.path if source is not None else None
    folders = [os.path.realpath(folder) for folder in allowed]
    chain: _Chain = ()
    if path is not None:
        folders.insert(0, os.path.realpath(os.path.dirname(path) or os.curdir))
        chain = ((os.path.realpath(path), root.span.name),)
    budget = _Budget(MAX_BYTES - (len(source.text) if source is not None else 0))
    return _expanded(root, path, chain, _Folders(tuple(folders)), budget)


def _expanded(node: Node, path: Optional[str], chain: _Chain, folders: _Folders, budget: _Budget) -> Node:
    if not isinstance(node.children, dict) or INCLUDE not in node.children:
        return node
    below: Optional[Node] = None
    for name in _names(node.children[INCLUDE]):
        part = _read(name, path, chain, folders, budget)
        below = part if below is None else merged(below, part)
    children = {key: child for key, child in node.children.items() if key != INCLUDE}
    own = node.with_children(children, {key: span for key, span in node.keys.items() if key != INCLUDE})
    return own if below is None else merged(below, own)


def _names(node: Node) -> List[Node]:
    """Return the nodes of the names in ``include``: one, or a list."""
    found = node.children if isinstance(node.children, list) else [node]
    for each in found:
        if each.children is not None or not isinstance(each.value, str) or not each.value:
            given = shown(each.plain())
            raise error_at(each.span, f"{given} is not the name of a file, nor a list of names", "include", (INCLUDE,))
        if "${" in each.value:
            raise error_at(each.span, "a file name can't have references", "include", (INCLUDE,))
    return found


def _read(name: Node, path: Optional[str], chain: _Chain, folders: _Folders, budget: _Budget) -> Node:
    """Return the nodes of an included file, with those of the files that it includes itself."""

    def error(message: str) -> DocumentError:
        return error_at(name.span, message, "include", (INCLUDE,))

    given = str(name.value)
    joined = os.path.join(os.path.dirname(path or ""), given)
    shown_name = os.path.normpath(joined)  # for messages alone: with symbolic links it may be another file
    try:
        real = os.path.realpath(joined)
    except ValueError as problem:  # a NUL in the name
        raise error(f"{shown(given)} can't be read: {problem}") from None
    if not folders.cover(real):
        raise error(_outside(given, chain))
    names = [each for _, each in chain]
    if real in [each for each, _ in chain]:
        first = [each for each, _ in chain].index(real)
        raise error("a cycle: " + " includes ".join([*names[first:], names[first]]))
    if len(chain) > MAX_CHAIN:
        raise error(f"more than {MAX_CHAIN} files include one another: " + " includes ".join([*names, shown_name]))
    if budget.files == 0:
        raise error(f"more than {MAX_FILES} files are included")
    budget.files -= 1
    if os.path.exists(real) and not os.path.isfile(real):
        raise error(f"{shown(given)} can't be read: it is not a file")
    try:
        source = source_at(real, shown_name)
    except DocumentError as problem:
        first_problem = problem.findings[0].problem
        if first_problem.kind != "file":
            raise
        raise error(f"{shown(given)} {first_problem.message}") from None
    budget.characters -= len(source.text)
    if budget.characters < 0:
        raise error(f"the document and the files that it includes are larger than {MAX_BYTES // 1024} KiB together")
    node = parsed(source, is_json(source))
    if not isinstance(node.children, dict):
        message = f"an included file is a mapping with keys of a document, not {shown(node.plain())}"
        raise error_at(node.span, message, "type")
    return _expanded(node, joined, (*chain, (real, shown_name)), folders, budget)


def _outside(given: str, chain: _Chain) -> str:
    why = f"it is outside of the folder of {chain[0][1]}" if chain else "this document has no folder of its own"
    return (
        f"including {shown(given)} is not allowed: {why}. To allow a folder, pass allow_include=[folder] or, on the "
        "command line, --allow-include FOLDER"
    )


def _is_inside(path: str, folder: str) -> bool:
    try:
        return os.path.commonpath([folder, path]) == folder
    except ValueError:  # on Windows, another drive
        return False
