"""The programs of examples/ run where they say, print what the index shows, and do what they claim."""

import json
import os
import re
import tarfile

import pytest
import tensorflow as tf

from scalekeeper_test_support import example_programs, script_runner
from scalekeeper_test_support.installed_keras import IS_KERAS_3
from scalekeeper_test_support.repository import ROOT, repository_path

OUTPUTS = {name: cells[-1] for name, cells in example_programs.table("examples/README.md").items()}
INSTALLED = [each for each in example_programs.programs() if each.runs_on(tf.__version__, IS_KERAS_3)]


def custom_policy(lines):
    """The policy backs off at the second bad step in a row only, and bad steps leave the variable alone."""
    variables = ["0.900", "0.900", "0.710", "0.710", "0.710", "0.439"]
    assert [re.search("variable ([^,]*)", line).group(1) for line in lines] == variables
    scales = [re.search("'current_loss_scale': ([^,]*)", line).group(1) for line in lines]
    assert scales == ["4096.0"] * 4 + ["2048.0"] * 2


def custom_training_loop(lines):
    """The loss falls to less than a tenth, and no step is skipped."""
    first, last, scale, good_steps = numbers(lines[0])
    assert last < first / 10
    assert (scale, good_steps) == (2**15, 100)


def fit_mixed_precision(lines):
    """The loss falls to less than a tenth, and the loss scale grows."""
    first, last, scale, _ = numbers(lines[0])
    assert last < first / 10
    assert scale >= 2**17


def cnn_in_fit(lines):
    """It learns; the loss scale falls from 2^24 with each skipped step, and then grows."""
    learns_while_the_scale_grows(lines, steps=60)


def transformer_in_fit(lines):
    """It learns; the loss scale falls from 2^24 with each skipped step, and then grows."""
    learns_while_the_scale_grows(lines, steps=100)


def learns_while_the_scale_grows(lines, steps):
    first, last, accuracy = numbers(lines[0])
    assert last < first / 10
    assert accuracy > 0.9
    skipped, taken, *scales = numbers(lines[1].replace("loss scale after", ""))
    assert taken == steps
    assert 1 <= skipped < steps / 4
    assert 2.0**24 / 2**skipped <= min(scales) < 2.0**24
    assert any(after > before for before, after in zip(scales, scales[1:]))


def gradient_accumulation(lines):
    """One of 40 steps is skipped as a whole, and the weights are those of a training with whole batches."""
    first, last, skipped, *state = numbers(lines[0])
    difference, *other_state = numbers(lines[1])
    assert last < first / 5
    # 7 good steps, one skipped, 32 good ones: 2^15 / 2 × 2 × 2
    assert (skipped, state) == (1, [2.0**16, 0])
    assert (difference < 1e-5, other_state) == (True, state)


def two_optimizers(lines):
    """The generator learns; a step in which any optimizer skips halves the loss scale once, not twice."""
    first, last, real = numbers(lines[0])
    assert abs(last - real) < abs(first - real) / 3
    *skipped, initial, final, halved, doubled = numbers(lines[1])
    assert 1 <= max(skipped) <= halved <= sum(skipped) <= 30
    assert doubled >= 1
    assert final == initial * 2.0 ** (doubled - halved)


def mirrored_strategy(lines):
    """The poisoned batch of each of six epochs is skipped by both replicas, and their weights are equal."""
    before, after, skipped, steps = numbers(lines[0])
    assert after < before / 3
    assert (skipped, steps) == (6, 48)
    replicas, scale, good_steps = numbers(lines[1])
    assert "equal weights: True" in lines[1]
    # halved six times, and doubled by each seven good steps between two poisoned batches
    assert (replicas, scale, good_steps) == (2, 4096 / 2**6 * 2**5, 5)


def two_workers(lines):
    """The overflow of worker 1 is skipped by both, and their weights are equal."""
    found = [numbers(line) for line in sorted(lines)]
    for index, (worker, first, last, skipped, scale, *_) in enumerate(found):
        assert (worker, skipped, scale) == (index, 1, 2.0**13)  # 14 good steps, a skipped one, 5 good ones
        assert last < first / 100
    assert found[0][5:] == found[1][5:]
    assert len(found[0][5:]) == 4


def resume_after_kill(lines):
    """The killed run goes on from the last file to the same losses and the same file, to the bit."""
    assert re.match("steps 0 to 30:", lines[0])
    assert re.match("steps 20 to 30:", lines[1])
    whole, resumed = (numbers(line) for line in lines[:2])
    assert whole[3:] == resumed[3:]  # the last loss, skipped steps, the loss scale
    assert whole[3] < whole[2] / 5
    assert whole[4] >= 1
    assert lines[2] == "exit code -9, same losses: True, same files: True"


def move_to_keras_3(lines):
    """The states are those that TensorFlow 2.3 recorded, and both models go on to the same weights."""
    with tarfile.open(repository_path("compat_tests", "golden", "files", "tensorflow", "tf23.tar.xz")) as archive:
        expected = json.load(archive.extractfile("dynamic-adam/expected.json"))
    state = [expected["iterations"], *expected["state"].values()]
    checkpoint, converted, trained = (numbers(line.partition("loss ")[2]) for line in lines[:3])
    assert lines[0].startswith("checkpoint, complete: True")
    assert checkpoint[1:] == state == [5, 512, 2]
    assert converted == [checkpoint[0], 5, 1024, 0]  # an H5 file of TensorFlow has no state of the loss scale
    assert trained[0] < checkpoint[0] / 1.5
    # 22 good steps since the last skipped one: doubled seven times
    assert trained[1:] == [25, 512 * 2**7, 1]
    # TensorFlow 2.3 writes beta_1 as a float32, which 0.9 in the code is not
    (difference,) = numbers(lines[3])
    assert difference < 1e-5


def record_trace(lines):
    """Forty steps are recorded, and their sizes are known."""
    assert "Trace of 40 steps, 0 of them not finite, largest gradients from " in lines[0]


# the last needs transformers, and is in compat_tests/packages/test_transformers.py
CLAIMS = {
    "cnn_in_fit.py": cnn_in_fit,
    "custom_policy.py": custom_policy,
    "custom_training_loop.py": custom_training_loop,
    "fit_mixed_precision.py": fit_mixed_precision,
    "gradient_accumulation.py": gradient_accumulation,
    "mirrored_strategy.py": mirrored_strategy,
    "move_to_keras_3.py": move_to_keras_3,
    "record_trace.py": record_trace,
    "resume_after_kill.py": resume_after_kill,
    "transformer_in_fit.py": transformer_in_fit,
    "two_optimizers.py": two_optimizers,
    "two_workers.py": two_workers,
}


def numbers(text):
    return [float(each) for each in re.findall(r"(?<![\w.])-?\d+(?:\.\d*)?(?:e[+-]?\d+)?", text)]


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(each, id=each.name, marks=pytest.mark.slow(*each.fast_environments, is_divided=True))
        for each in INSTALLED
    ],
)
def test_program(program):
    """It prints what the index shows, up to the numbers, and the numbers are those that it claims."""
    printed = script_runner.run(repository_path("examples", program.name)).rstrip("\n")
    assert re.fullmatch(example_programs.pattern(OUTPUTS[program.name]), printed), printed
    CLAIMS[program.name](printed.splitlines())


def test_every_program_has_a_claim():
    """A new program gets a check of what it prints; the one for transformers has it in its own environment."""
    names = {each.name for each in example_programs.programs() if each.beside != "transformers"}
    assert set(CLAIMS) == names


@pytest.mark.slow
def test_build_from_a_file():
    """build("train.yaml") gives the ready wrapper with its schedule."""
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


@pytest.mark.slow
def test_build_with_a_choice_of_skipped_steps():
    """The document's choice reaches the optimizer."""
    import scalekeeper

    optimizer = scalekeeper.build({"optimizer": "sgd", "skipped_steps": "advance"})
    optimizer.apply_gradients([(tf.constant(float("nan")), tf.Variable(1.0))])
    assert optimizer.iterations.numpy() == 1
