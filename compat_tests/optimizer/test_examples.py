"""The examples run, and do what they say."""

import os
import re

import pytest

from scalekeeper_test_support import script_runner

pytestmark = pytest.mark.slow

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def run(name):
    return script_runner.run(os.path.join(ROOT, "examples", name)).splitlines()


def test_custom_policy():
    """The policy backs off at the second non-finite step in a row only; such steps leave the variable alone."""
    lines = run("custom_policy.py")
    assert [re.search("variable ([^,]*)", line).group(1) for line in lines] == [
        "0.900",
        "0.900",
        "0.710",
        "0.710",
        "0.710",
        "0.439",
    ]
    assert [re.search("'current_loss_scale': ([^,]*)", line).group(1) for line in lines] == ["4096.0"] * 4 + [
        "2048.0"
    ] * 2


@pytest.mark.parametrize(("name", "scale"), [("custom_training_loop.py", 2**15), ("fit_mixed_precision.py", 2**17)])
def test_training(name, scale):
    """The loss falls to less than a tenth; where the scale may grow, it does."""
    (line,) = run(name)
    first, last = (float(number) for number in re.search("loss (.*) -> (.*?),", line).groups())
    assert last < first / 10
    assert float(re.search("'current_loss_scale': ([0-9.]*)", line).group(1)) >= scale


def test_two_optimizers():
    """The mean of the generator approaches that of the data, and one loss scale has counted each step once."""
    (line,) = run("two_optimizers.py")
    first, last = (float(number) for number in re.search("mean (.*) -> (.*?),", line).groups())
    assert abs(last - 3) < abs(first - 3) / 3
    assert line.endswith("{'current_loss_scale': 32768.0, 'good_steps': 300}")


def test_recording_a_trace():
    """Forty steps are recorded, and their sizes are known."""
    (line,) = run("record_trace.py")
    assert "Trace of 40 steps, 0 of them not finite, largest gradients from " in line


def test_build_from_a_file():
    """build("train.yaml") gives the ready wrapper with its schedule."""
    import tensorflow as tf

    import scalekeeper

    optimizer = scalekeeper.build(os.path.join(ROOT, "examples", "train.yaml"))
    assert isinstance(optimizer, scalekeeper.LossScaleOptimizer)
    assert isinstance(optimizer.inner_optimizer, tf.keras.optimizers.Adam)
    assert optimizer.loss_scale.state() == {"current_loss_scale": 4096.0, "good_steps": 0}
    # 0.9 for each 1 000 steps: after 2 000 the rate is 0.81 of the first one
    _ = optimizer.iterations
    optimizer.inner_optimizer.iterations.assign(2000)
    optimizer.apply_gradients([(tf.constant(1.0), tf.Variable(1.0))])
    rate = optimizer.inner_optimizer.learning_rate
    rate = rate(2000) if callable(rate) else rate  # new optimizers give the current rate, others the schedule
    assert float(rate) == pytest.approx(0.00081, rel=1e-3)


def test_build_with_a_choice_of_skipped_steps():
    """The document's choice reaches the optimizer."""
    import tensorflow as tf

    import scalekeeper

    optimizer = scalekeeper.build({"optimizer": "sgd", "skipped_steps": "advance"})
    optimizer.apply_gradients([(tf.constant(float("nan")), tf.Variable(1.0))])
    assert optimizer.iterations.numpy() == 1
