"""The programs of ``examples/``, and what their docstrings and the tables of the pages say about them.

The docstring of a program begins with what it shows, and then has the command with the versions that it runs on::

    python examples/cnn_in_fit.py  # TensorFlow 2.0 to 2.21
"""

from typing import Dict, List, NamedTuple, Tuple

import ast
import os
import re

from scalekeeper_test_support import tensorflow_versions
from scalekeeper_test_support.repository import repository_path

_COMMAND = re.compile(
    r"^python examples/(\S+\.py)(?: [^#\n]*)? # (TensorFlow (2\.\d+)(?: to (2\.\d+))?(?: with (.+))?)$", re.M
)
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:e[+-]?\d+)?")


class Program(NamedTuple):
    """A program: its file name, what it shows, its number of lines, and the versions that it names."""

    name: str
    title: str
    lines: int
    versions: str
    first: Tuple[int, ...]
    last: Tuple[int, ...]
    beside: str  # "Keras 3", "transformers" or nothing

    def runs_on(self, tensorflow: str, has_keras_3: bool) -> bool:
        """Return whether the program names this TensorFlow; one that needs another package has a test of its own."""
        is_named = self.first <= _series(tensorflow) <= self.last
        return is_named and (not self.beside or (self.beside == "Keras 3" and has_keras_3))

    @property
    def fast_environments(self) -> List[str]:
        """Return the environments of the fast run with a TensorFlow that the program names."""
        names = tensorflow_versions.FAST_NAMES
        found = {name: tensorflow_versions.environment(name).tensorflow for name in names}
        return [name for name in names if self.runs_on(found[name], name.endswith("keras3"))]


def _series(version: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def programs() -> List[Program]:
    """Return all programs, by name."""
    names = sorted(name for name in os.listdir(repository_path("examples")) if name.endswith(".py"))
    return [_program(name) for name in names]


def _program(name: str) -> Program:
    with open(repository_path("examples", name), encoding="utf-8") as stream:
        text = stream.read()
    docstring = ast.get_docstring(ast.parse(text)) or ""
    commands = _COMMAND.findall(docstring)
    if [command[0] for command in commands] != [name]:
        raise ValueError(
            f"the docstring of {name} must have one line: python examples/{name}  # TensorFlow 2.0 to 2.21"
        )
    ((_, versions, first, last, beside),) = commands
    title = docstring.splitlines()[0]
    return Program(name, title, text.count("\n"), versions, _series(first), _series(last or first), beside)


def table(page: str) -> Dict[str, List[str]]:
    """Return program → the other cells of its row in the table of a page that begins with the column "program"."""
    with open(repository_path(*page.split("/")), encoding="utf-8") as stream:
        rows = re.search(r"^\| program \|.*\n\|[-|]+\n((?:\|.*\n)*)", stream.read(), re.M).group(1)
    cells = [[cell.strip() for cell in row.strip("|\n").split(" | ")] for row in rows.splitlines()]
    return {re.sub(r"[`\[]|\].*", "", first): others for first, *others in cells}


def pattern(cell: str) -> str:
    """Return a regular expression for output as a table shows it: any number for a number, anything for "…".

    >>> bool(re.fullmatch(pattern("`loss 1.5 -> 2e-3`<br>`…`"), "loss 31 -> -0.25, 7"))
    False
    >>> bool(re.fullmatch(pattern("`loss 1.5 -> 2e-3`<br>`…`"), "loss 31 -> -0.25\\nmore"))
    True
    """
    text = "\n".join(line.strip("`") for line in cell.split("<br>"))
    parts = [_NUMBER.pattern.join(map(re.escape, _NUMBER.split(part))) for part in text.split("…")]
    return "(?s:.*)".join(parts)
