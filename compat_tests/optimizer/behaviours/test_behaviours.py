"""TensorFlow's class and scalekeeper's behave as each row of the table states."""

import json

import pytest

from scalekeeper_test_support.repository import load_script

pytestmark = pytest.mark.each_environment

MEASURE = load_script("compat_tests/optimizer/behaviours/measure.py")
RENDER = load_script("compat_tests/optimizer/behaviours/render.py")
with open(RENDER.EXPECTED, encoding="utf-8") as stream:
    EXPECTED = json.load(stream)
with open(RENDER.MEMBERS, encoding="utf-8") as stream:
    MEMBERS = json.load(stream)

COLUMNS = [column for column in MEASURE.COLUMNS if column in RENDER.VERSIONS]


@pytest.mark.skipif(not COLUMNS, reason=f"{', '.join(MEASURE.COLUMNS)}: not in the table")
@pytest.mark.parametrize("subject", ["own", "ours"])
@pytest.mark.parametrize("row", list(MEASURE.ROWS))
@pytest.mark.parametrize("column", COLUMNS)
def test_a_row_is_what_is_measured_here_and_now(column, row, subject):
    """The measured behaviour equals the expected one: something that works against expectation fails too."""
    assert EXPECTED[row][column][subject] == MEASURE.measure(row, subject, MEASURE.COLUMNS[column])


@pytest.mark.skipif(not COLUMNS, reason=f"{', '.join(MEASURE.COLUMNS)}: not in the table")
@pytest.mark.parametrize("column", COLUMNS)
def test_every_member_is_what_is_measured_here_and_now(column):
    """Each public member is the same as in TensorFlow's classes, in type, value and exception, or as recorded."""
    assert MEASURE.members(MEASURE.COLUMNS[column]) == MEMBERS["versions"][column]


def test_every_different_member_has_a_reason():
    """No table has a hole, and no reason is left over."""
    assert list(MEMBERS["versions"]) == list(RENDER.VERSIONS)
    different = {"LossScaleOptimizer": set(), "policies": set()}
    for classes in MEMBERS["versions"].values():
        assert list(classes) == ["LossScaleOptimizer", "LossScale", "FixedLossScale", "DynamicLossScale"]
        for cls, members in classes.items():
            found = {name for name, difference in members.items() if difference != "="}
            different["LossScaleOptimizer" if cls == "LossScaleOptimizer" else "policies"] |= found
    assert different == {cls: set(reasons) for cls, reasons in MEMBERS["reasons"].items()}
    assert MEMBERS["reasons"] == {
        "LossScaleOptimizer": MEASURE.DIFFERENT_MEMBERS,
        "policies": MEASURE.DIFFERENT_POLICY_MEMBERS,
    }


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
        assert stream.read() == RENDER.page(EXPECTED, MEMBERS)
