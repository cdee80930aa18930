"""Diff blocks: an old and a new program in one block.

A comment before the block says where the old one runs: ``<!-- before: EXPRESSION -->`` where this is true of ``tf``,
``<!-- before: pytorch -->`` beside PyTorch, ``<!-- before: nowhere, because … -->`` in no environment.

    python -m scalekeeper_test_support.page_programs docs/coming_from/keras3.md 12

runs the old program of the diff in this line where its expression is true, and prints whether it is.
"""

import os
import sys
import tempfile
import types

from scalekeeper_test_support.page_blocks import BlockError, all_pages, blocks
from scalekeeper_test_support.repository import ROOT

PYTORCH = "pytorch"
NOWHERE = "nowhere, because "


def new_program(block):
    """Return the program after the change."""
    return _with(block, "+")


def old_program(block):
    """Return the program before the change."""
    return _with(block, "-")


def _with(block, sign):
    """Return the lines with this sign or none; others become blank to keep the line numbers."""
    lines = []
    for line in block.text.splitlines():
        if line[:1] not in ("", " ", "+", "-"):
            raise BlockError(f"line {line!r} of a diff begins with neither a space, + nor -")
        lines.append(line[1:] if line[:1] in (" ", sign) else "")
    return "\n".join(lines) + "\n"


def where_it_runs(block):
    """Return the note that every diff must have."""
    if "before" not in block.notes:
        raise BlockError("a diff without <!-- before: … -->, which says where the old program runs")
    where = block.notes["before"]
    if where.startswith("nowhere") and len(where) <= len(NOWHERE):
        raise BlockError("<!-- before: nowhere, because … --> gives a reason")
    return where


def runs_nowhere(block):
    return where_it_runs(block).startswith(NOWHERE)


def is_expression(block):
    """Return whether the old program runs on a TensorFlow."""
    return where_it_runs(block) != PYTORCH and not runs_nowhere(block)


def all_changes():
    """(page, line, block) of each diff on all pages."""
    for page in all_pages():
        for block in blocks(os.path.join(ROOT, page)):
            if block.language == "diff":
                yield page, block.lines_above, block


def run_program(source, folder, name, lines_above=0, namespace=None):
    """Run a program from a file, where AutoGraph finds it, with the line numbers of its page."""
    path = os.path.join(str(folder), f"{name}_line_{lines_above}.py")
    with open(path, "w", encoding="utf-8") as stream:
        stream.write("\n" * lines_above + source)
    with open(path, encoding="utf-8") as stream:
        code = compile(stream.read(), path, "exec", dont_inherit=True)
    exec(code, types.ModuleType("__main__").__dict__ if namespace is None else namespace)


def run_old_program(block, name):
    """Run the old program of a block in a new folder."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as sources:
        os.chdir(folder)
        run_program(old_program(block), sources, name, block.lines_above)
        os.chdir(ROOT)


def main():
    import tensorflow as tf

    page, line = sys.argv[1], int(sys.argv[2])
    (block,) = [block for name, above, block in all_changes() if (name, above) == (page, line)]
    is_here = bool(eval(where_it_runs(block), {"tf": tf}))
    if is_here:
        run_old_program(block, "old")
    print(is_here)


if __name__ == "__main__":
    main()
