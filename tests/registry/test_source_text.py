"""Pointing at a place in a text."""

import pytest

from scalekeeper.registry._source_text import Source


@pytest.mark.parametrize(
    ("offset", "expected"), [(0, (1, 1)), (2, (1, 3)), (3, (2, 1)), (5, (3, 1)), (8, (4, 1)), (9, (4, 2))]
)
def test_lines_and_columns(offset, expected):
    """Both counted from 1; a line ends with any of the three line breaks."""
    assert Source("x", "ab\nc\rd\r\ne").position(offset) == expected


def test_the_excerpt_marks_what_is_meant():
    """The line, and carets below it."""
    assert Source("x", "first\na: wrong\n").excerpt(9, 5) == "   2 | a: wrong\n     |    ^^^^^"


def test_what_goes_on_over_the_line_is_marked_to_its_end():
    """A mapping over several lines is marked on its first line."""
    assert Source("x", "{a,\nb}").excerpt(0, 6) == "   1 | {a,\n     | ^^^"


def test_wide_and_combining_characters_keep_the_caret_in_place():
    """A terminal shows 漢 two columns wide and a combining accent not at all."""
    assert Source("x", "漢e\u0301 x").excerpt(4) == "   1 | 漢e\u0301 x\n     |     ^"


def test_tabs_and_control_characters_are_shown_as_one_column():
    """Nothing in a document can move the cursor or colour the terminal."""
    assert Source("x", "\ta\x1b[31mb").excerpt(7) == "   1 |  a\ufffd[31mb\n     |        ^"


def test_a_long_line_is_cut_around_the_matter():
    """At most 100 characters of it, with the place in sight."""
    line, caret = Source("x", "a" * 500 + "!" + "b" * 500).excerpt(500).split("\n")
    assert len(line) == 7 + 100
    assert line[caret.index("^")] == "!"


def test_the_end_of_the_text():
    """A place behind the last character can be pointed at."""
    assert Source("x", "ab").excerpt(2) == "   1 | ab\n     |   ^"
