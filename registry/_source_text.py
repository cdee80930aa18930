"""The text of a document, with line and column of an offset."""

from typing import List, NamedTuple, Optional

import bisect
import re
import unicodedata

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_WIDEST = 100


class Position(NamedTuple):
    """A line and a column, both counted from 1, as in editors."""

    line: int
    column: int


class Source:
    """The name and the text of a document, of a file that it includes, or of an override.

    ``path`` is the file that the text was read from, if there is one.
    """

    def __init__(self, name: str, text: str, path: Optional[str] = None, *, is_override: bool = False) -> None:
        self.name = name
        self.text = text
        self.path = path
        self.is_override = is_override
        self._starts: List[int] = [0] + [match.end() for match in _LINE_BREAK.finditer(text)]

    def position(self, offset: int) -> Position:
        """Return line and column of an offset."""
        line = bisect.bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1)

    def excerpt(self, offset: int, length: int = 1) -> str:
        """Return the line of an offset, with carets under ``length`` characters from there."""
        position = self.position(offset)
        start = self._starts[position.line - 1]
        end = self._starts[position.line] if position.line < len(self._starts) else len(self.text)
        line = self.text[start:end].rstrip("\r\n")
        before, marked = position.column - 1, max(1, min(length, len(line) - position.column + 1))
        # shorten a very long line around the marked characters
        if len(line) > _WIDEST:
            cut = max(0, min(before - _WIDEST // 2, len(line) - _WIDEST))
            line, before, marked = line[cut : cut + _WIDEST], before - cut, min(marked, _WIDEST - (before - cut))
        line = "".join(char if char.isprintable() else " " if char == "\t" else "\ufffd" for char in line)
        margin = f"{position.line:>4} | "
        return "{}{}\n{}{}{}".format(
            margin, line, " " * (len(margin) - 2) + "| ", " " * _width(line[:before]), "^" * max(1, marked)
        )


class Span(NamedTuple):
    """A part of a text; without a source, of no text: a value that a program gives."""

    source: Optional[Source]
    start: int
    end: int

    @property
    def name(self) -> str:
        return self.source.name if self.source is not None else ""

    @property
    def position(self) -> Optional[Position]:
        return self.source.position(self.start) if self.source is not None else None

    @property
    def excerpt(self) -> str:
        return self.source.excerpt(self.start, self.end - self.start) if self.source is not None else ""

    def __str__(self) -> str:
        return "{}:{}:{}".format(self.name, *self.position) if self.position is not None else ""


def _width(text: str) -> int:
    """Return the width of a text on a terminal."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )
