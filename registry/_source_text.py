"""A document's text, and the way to point at a place in it."""

from typing import List, NamedTuple

import bisect
import re
import unicodedata

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_WIDEST = 100


class Place(NamedTuple):
    """A line and a column, both counted from 1, as editors do."""

    line: int
    column: int


class Source:
    """The name and the text of a document."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self._starts: List[int] = [0] + [match.end() for match in _LINE_BREAK.finditer(text)]

    def place(self, offset: int) -> Place:
        """Where the character at this offset stands."""
        line = bisect.bisect_right(self._starts, offset)
        return Place(line, offset - self._starts[line - 1] + 1)

    def excerpt(self, offset: int, length: int = 1) -> str:
        """The line of this offset, and under it a caret for each character from there on that belongs to the matter."""
        place = self.place(offset)
        start = self._starts[place.line - 1]
        end = self._starts[place.line] if place.line < len(self._starts) else len(self.text)
        line = self.text[start:end].rstrip("\r\n")
        before, marked = place.column - 1, max(1, min(length, len(line) - place.column + 1))
        # a very long line is cut so that what it is about can be seen
        if len(line) > _WIDEST:
            cut = max(0, min(before - _WIDEST // 2, len(line) - _WIDEST))
            line, before, marked = line[cut : cut + _WIDEST], before - cut, min(marked, _WIDEST - (before - cut))
        line = "".join(char if char.isprintable() else " " if char == "\t" else "\ufffd" for char in line)
        margin = f"{place.line:>4} | "
        return "{}{}\n{}{}{}".format(
            margin, line, " " * (len(margin) - 2) + "| ", " " * _width(line[:before]), "^" * max(1, marked)
        )


def _width(text: str) -> int:
    """Columns of a terminal that the text takes."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )
