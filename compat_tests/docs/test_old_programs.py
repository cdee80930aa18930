"""The programs that the pages change run as they were, on the TensorFlows that they were written for."""

import pytest

from scalekeeper.registry import target
from scalekeeper_test_support import page_programs, script_runner

pytestmark = pytest.mark.each_environment

WITH_KERAS_3 = [f"2.{minor}-keras3" for minor in range(16, 22)]
WITH_PUBLIC_CLASS = [f"2.{minor}" for minor in range(4, 16)] + [f"2.{minor}-tf_keras" for minor in range(16, 22)]
# (page, expression) → the TensorFlows on which it is true, by the names of targets
RUNS_ON = {
    ("docs/coming_from/keras_3.md", 'hasattr(tf.keras.optimizers.Optimizer, "scale_loss")'): WITH_KERAS_3,
    (
        "docs/coming_from/tensorflow_2_0_to_2_3.md",
        'not hasattr(tf.keras.mixed_precision, "LossScaleOptimizer") and hasattr(tf, "mixed_precision")',
    ): ["2.1", "2.2", "2.3"],
    (
        "docs/coming_from/tensorflow_2_4_to_2_15.md",
        'hasattr(getattr(tf.keras.mixed_precision, "LossScaleOptimizer", None), "get_scaled_loss")',
    ): WITH_PUBLIC_CLASS,
}


def changes():
    return [
        (page, line, block.notes["before"])
        for page, line, block in page_programs.all_changes()
        if page_programs.is_expression(block)
    ]


def test_old_programs():
    """Where the expression of a diff is true of the installed TensorFlow, and only there, its old program runs."""
    installed = target().name
    for page, line, expression in changes():
        printed = script_runner.run(page_programs.__file__, page, str(line)).splitlines()[-1]
        assert (page, line, printed) == (page, line, str(installed in RUNS_ON[page, expression]))


def test_each_runs_somewhere():
    """All expressions stand above, each with the places where it is true."""
    assert {(page, expression) for page, _, expression in changes()} == set(RUNS_ON)
    assert all(RUNS_ON.values())
