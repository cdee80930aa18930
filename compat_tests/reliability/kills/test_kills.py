"""A run that is killed again and again, also while it writes, ends as if it had never been interrupted."""

import json
import pathlib

import pytest

from scalekeeper_test_support import script_runner

pytestmark = pytest.mark.slow

SCRIPT = pathlib.Path(__file__).parent / "kills.py"
KILLS, STEPS = 3, 18


def test_killed_and_resumed():
    """Every state after a step, up to the last, is that of the uninterrupted run: way and moments differ each time."""
    printed = script_runner.run(SCRIPT, "--kills", str(KILLS), "--cases", "1", "--steps", str(STEPS))
    (row,) = json.loads(printed.splitlines()[-1])
    assert row["kills"] == KILLS
    assert row["steps compared"] >= STEPS
