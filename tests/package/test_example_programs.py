"""The programs of examples/ are short, name their versions, and are in the index and on the documentation page."""

import pytest

from scalekeeper_test_support import example_programs
from scalekeeper_test_support.example_programs import programs, table
from scalekeeper_test_support.tensorflow_versions import TENSORFLOWS

PROGRAMS = programs()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_is_short(program):
    """It has at most 60 lines."""
    assert program.lines <= 60


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_names_versions_that_are_tested(program):
    """The first and the last TensorFlow exist, and the fast run has one of them, unless it needs another package."""
    series = {tuple(map(int, version.split(".")[:2])) for version in TENSORFLOWS}
    assert {program.first, program.last} <= series
    assert program.first <= program.last
    assert bool(program.fast_environments) != (program.beside == "transformers")


def test_the_index_lists_every_program():
    """examples/README.md has the title and the versions of each docstring, and the output."""
    rows = table("examples/README.md")
    assert {name: cells[:2] for name, cells in rows.items()} == {
        each.name: [each.title.rstrip("."), each.versions] for each in PROGRAMS
    }
    assert all(cells[2] for cells in rows.values())


def test_the_page_lists_every_program():
    """docs/examples.md has the title and the versions of each docstring."""
    expected = {"examples/" + each.name: [each.title.rstrip("."), each.versions] for each in PROGRAMS}
    assert table("docs/examples.md") == expected


def test_versions():
    """A program with a range runs on both ends and between them; one for Keras 3 does not run beside tf_keras."""
    everywhere, moved = (each for each in PROGRAMS if each.name in ("cnn_in_fit.py", "move_to_keras_3.py"))
    assert [everywhere.runs_on(version, False) for version in ("2.0.4", "2.10.1", "2.21.0", "2.22.0")] == [True] * 3 + [
        False
    ]
    assert [moved.runs_on("2.21.0", True), moved.runs_on("2.21.0", False), moved.runs_on("2.15.1", True)] == [
        True,
        False,
        False,
    ]
    assert moved.fast_environments == ["py313-tf221-keras3"]


@pytest.mark.parametrize(
    ("cell", "printed", "is_equal"),
    [
        ("`loss 1.5`<br>`2 skipped`", "loss 0.25\n31 skipped", True),
        ("`loss 1.5`<br>`2 skipped`", "loss nan\n31 skipped", False),
        ("`loss 1.5`<br>`2 skipped`", "loss 0.25", False),
        ("`equal: True`", "equal: False", False),
        ("`code -9`<br>`…`", "code 9\nand\nmore", True),
    ],
)
def test_output_is_compared_up_to_numbers(cell, printed, is_equal):
    """Words and lines have to be equal; NaN is not a number."""
    import re

    assert bool(re.fullmatch(example_programs.pattern(cell), printed)) == is_equal
