"""TensorFlow's class and scalekeeper's behave as each row of the table states."""

import json

import pytest

from scalekeeper_test_support.repository import load_script

pytestmark = pytest.mark.each_environment

MEASURE = load_script("compat_tests/optimizer/behaviours/measure.py")
RENDER = load_script("compat_tests/optimizer/behaviours/render.py")
with open(RENDER.EXPECTED, encoding="utf-8") as stream:
    EXPECTED = json.load(stream)

COLUMNS = [column for column in MEASURE.COLUMNS if column in RENDER.VERSIONS]


@pytest.mark.skipif(not COLUMNS, reason=f"{', '.join(MEASURE.COLUMNS)}: not in the table")
@pytest.mark.parametrize("subject", ["own", "ours"])
@pytest.mark.parametrize("row", list(MEASURE.ROWS))
@pytest.mark.parametrize("column", COLUMNS)
def test_a_row_is_what_is_measured_here_and_now(column, row, subject):
    """The measured behaviour equals the expected one: something that works against expectation fails too."""
    assert EXPECTED[row][column][subject] == MEASURE.measure(row, subject, MEASURE.COLUMNS[column])


def test_every_row_is_expected_on_every_version():
    """The table has no holes, and no rows that nothing measures."""
    assert list(MEASURE.ROWS) == [f"B{number}" for number in range(1, 27)]
    assert list(EXPECTED) == list(MEASURE.ROWS)
    for entries in EXPECTED.values():
        assert list(entries) == ["behaviour", *RENDER.VERSIONS]
        for version in RENDER.VERSIONS:
            assert {"own", "ours"} <= set(entries[version]) <= {"own", "ours", "reason"}


def test_the_page_is_what_the_table_renders_to():
    """docs/behaviours.md is never edited by hand."""
    with open(RENDER.PAGE, encoding="utf-8") as stream:
        assert stream.read() == RENDER.page(EXPECTED)
