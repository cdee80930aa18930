"""Commands that import TensorFlow print nothing but their own output."""

import os
import subprocess
import sys

import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper.testing import CHECKS
from scalekeeper_test_support.installed_keras import MODEL_SUFFIXES

pytestmark = pytest.mark.slow("py313-tf221-keras3")

PROGRAM = os.path.join(os.path.dirname(sys.executable), "scalekeeper")


def run(*arguments):
    """Return the exit code, the output and the errors of a command, with TensorFlow's default log level."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_CPP")}
    ended = subprocess.run([PROGRAM, *arguments], env=environment, capture_output=True, text=True)
    return ended.returncode, ended.stdout, ended.stderr


def test_convert_and_verify(tmp_path):
    """No line of TensorFlow's log, in either stream."""
    inputs = tf.keras.Input((4,))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs))
    model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1), "dynamic"), loss="mse")
    source, destination = str(tmp_path / f"model{MODEL_SUFFIXES[0]}"), str(tmp_path / "converted.h5")
    scalekeeper.save_model(model, source)
    code, output, errors = run("convert", source, destination, "--to", "2.10", "--no-probe")
    assert (code, errors) == (0, "")
    assert [line.rpartition(":")[0].split(" (")[0].strip() for line in output.splitlines()] == [source, "to"]
    code, output, errors = run("verify", source, destination, "--no-outputs")
    assert (code, errors) == (0, "")
    assert output.splitlines()[2].startswith("  equal")


def test_check():
    """No line of TensorFlow's log, in either stream."""
    left_out = [each for check in CHECKS if check.name != "graph_step" for each in ("--leave-out", check.name)]
    code, output, errors = run("check", "none", *left_out)
    assert (code, errors) == (0, "")
    assert output.startswith(f"none: 1 passed, 0 failed, {len(CHECKS) - 1} not run\n")
    assert len(output.splitlines()) == 1 + len(CHECKS)
