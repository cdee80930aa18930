"""A short version of long_runs.py: a leak, a trace too many, or a step that differs would show in it too."""

import json
import os

import pytest

from scalekeeper_test_support import script_runner

pytestmark = pytest.mark.slow

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "long_runs.py")
STEPS = 3000
# Between two readings. A leak shows in all of them, what is allocated once in a few: so the least counts.
MOST_BYTES_A_STEP = 400
MOST_BLOCKS_A_STEP = 0.9  # pieces of memory of Python's own; each eager operation of TensorFlow 2.15 leaves some


def run(*options):
    printed = script_runner.run(SCRIPT, "--run", "traced", "--steps", str(STEPS), "--save-every", "300", *options)
    return json.loads(printed.splitlines()[-1])


def least_growth(readings):
    """Bytes, or blocks, that each step leaves behind."""
    return min(after - before for before, after in zip(readings[3:], readings[6:])) / (STEPS * 0.3)


@pytest.fixture(scope="module")
def found():
    return run()


@pytest.fixture(scope="module")
def left_by_tensorflow(found):
    """Bytes that the same steps of the bare optimizer leave behind: 2.10 leaves some with each call of any function."""
    if least_growth(found["resident"]) < MOST_BYTES_A_STEP:
        return 0
    return least_growth(run("--optimizer", "bare")["resident"])


def test_memory_stays_flat(found, left_by_tensorflow):
    """Neither the process nor Python's own memory grows with the steps, nor with telemetry and checkpoints."""
    assert least_growth(found["resident"]) - left_by_tensorflow < MOST_BYTES_A_STEP
    assert least_growth(found["blocks"]) < MOST_BLOCKS_A_STEP


def test_the_graph_does_what_the_simulation_does(found):
    """Before each step, scale and counter are those of the pure step, and nothing is traced again."""
    row = found["row"]
    assert (row["steps"], row["traces after the first"], row["differ from the simulation"]) == (STEPS, 0, 0)
    assert row["skipped"] > STEPS / 20


def test_a_leak_would_be_seen(left_by_tensorflow):
    """One kilobyte a step is above both bounds."""
    found = run("--leak", "1024")
    assert least_growth(found["resident"]) - left_by_tensorflow > MOST_BYTES_A_STEP
    assert least_growth(found["blocks"]) > MOST_BLOCKS_A_STEP
