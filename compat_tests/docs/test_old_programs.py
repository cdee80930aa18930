"""The programs that the pages change run as they were, on the TensorFlows that they were written for."""

import os

import pytest

from scalekeeper_test_support import page_programs, script_runner

pytestmark = pytest.mark.each_environment

# (page, expression) → the TensorFlows on which it is true, by the names of tox's environments
RUNS_ON = {
    ("docs/coming_from/keras_3.md", 'hasattr(tf.keras.optimizers.Optimizer, "scale_loss")'): ["tf221-keras3"],
    ("docs/coming_from/tensorflow_2_0_to_2_3.md", 'hasattr(tf, "mixed_precision")'): ["tf21", "tf22", "tf23"],
    (
        "docs/coming_from/tensorflow_2_4_to_2_15.md",
        'hasattr(getattr(tf.keras.mixed_precision, "LossScaleOptimizer", None), "get_scaled_loss")',
    ): ["tf210", "tf215", "tf221-tfkeras"],
}


def changes():
    return [
        (page, line, block.notes["before"])
        for page, line, block in page_programs.all_changes()
        if page_programs.is_expression(block)
    ]


def test_old_programs():
    """Where the expression of a diff is true of the installed TensorFlow, and only there, its old program runs."""
    installed = os.environ["SCALEKEEPER_ENVIRONMENT"].partition("-")[2]
    for page, line, expression in changes():
        printed = script_runner.run(page_programs.__file__, page, str(line)).splitlines()[-1]
        assert (page, line, printed) == (page, line, str(installed in RUNS_ON[page, expression]))


def test_each_runs_somewhere():
    """All expressions stand above, each with the places where it is true."""
    assert {(page, expression) for page, _, expression in changes()} == set(RUNS_ON)
    assert all(RUNS_ON.values())
