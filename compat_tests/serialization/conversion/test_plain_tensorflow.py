"""Files that were converted for the installed TensorFlow are read by its own class, in a process without this package.

A part of them, which covers every producer, format, policy and optimizer. All of them, for six targets:
``python -m tox -e py311-tf215-converted`` and its like.
"""

import json

import pytest

from scalekeeper.registry import target
from scalekeeper_test_support import script_runner
from scalekeeper_test_support.golden import matrix
from scalekeeper_test_support.repository import load_script, repository_path

pytestmark = pytest.mark.long

SCRIPT = "compat_tests/golden/converted.py"
converted = load_script(SCRIPT)
TARGET = target().name


def part():
    """Each producer in each format, with a loss scale that is known here; each policy with each optimizer."""
    seen, taken = set(), []
    for row in sorted(converted.plan(TARGET), key=lambda row: matrix.spread(f"{row[0]} {row[2]}")):
        case, _, file_format = row
        pairs = {(case.policy, case.optimizer, file_format)}
        if converted.is_expressible(case, TARGET):
            pairs.add((case.producer, file_format))
        if not pairs <= seen:
            seen |= pairs
            taken.append(row)
    return taken


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Return what plain TensorFlow made of the part."""
    folder = tmp_path_factory.mktemp("converted")
    chosen = part()
    converted.write(str(folder), TARGET, chosen)
    (folder / "part").write_text("\n".join("|".join([*row[0], *row[1:]]) for row in chosen))
    printed = script_runner.run(repository_path(SCRIPT), "read", str(folder), TARGET, "--part", "part")
    return json.loads(printed.splitlines()[-1])


def test_what_is_not_announced_as_lost_is_there(rows):
    """Training goes on to the ground truth, or the conversion has said what is lost."""
    assert [row for row in rows if not converted.is_announced(row)] == []


def test_what_is_announced_as_lost_is_lost(rows):
    """No conversion is refused for a loss that is none: of the state of plain files, all that is not lost is there."""
    idle = [row for row in rows if row["grade"] == 4 and any("reads none from" in loss for loss in row["losses"])]
    assert idle == []


def test_every_producer_has_a_file_with_all_of_its_state(rows):
    """By a checkpoint, or on Keras 3 by a .keras file."""
    whole = {row["producer"] for row in rows if row["grade"] >= 3}
    assert whole == {producer.name for producer in matrix.producers()}
