"""scalekeeper doctor on a saved model: findings, figures, exit codes, and one message for bad input."""

import json
import subprocess
import sys
import warnings

import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner

import scalekeeper
from scalekeeper.cli import main
from scalekeeper.cli._commands.doctor import named_data
from scalekeeper_test_support.installed_keras import MODEL_SUFFIXES, global_policy, set_global_policy

pytestmark = pytest.mark.slow

layers = tf.keras.layers
# Keras of TensorFlow 2.0 saves layers in mixed precision as float32 layers
KEEPS_FLOAT16 = not tf.__version__.startswith("2.0.")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that computes in float16, healthy data, and data with one bad sample."""
    found = tmp_path_factory.mktemp("doctor")
    before = global_policy()
    set_global_policy("mixed_float16")
    try:
        inputs = tf.keras.Input((4,), name="data")
        inside = layers.Dense(8, activation="tanh", name="inside")(inputs)
        model = tf.keras.Model(inputs, layers.Dense(1, dtype="float32", name="out")(inside))
        model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1), 1024.0), loss="mse")
        with warnings.catch_warnings():
            if not KEEPS_FLOAT16:
                warnings.simplefilter("ignore")
            scalekeeper.save_model(model, str(found / f"model{MODEL_SUFFIXES[0]}"))
    finally:
        set_global_policy(before)
    x = np.random.RandomState(0).randn(40, 4).astype(np.float32)
    y = x.sum(axis=1, keepdims=True)
    np.savez(str(found / "good.npz"), x=x, y=y)
    bad = x.copy()
    bad[35, 2] = np.nan
    np.savez(str(found / "bad.npz"), data=bad, out=y)
    np.savez(str(found / "unknown.npz"), data=x, out=y, extra=y)
    np.savez(str(found / "narrow.npz"), x=x[:, :3], y=y)
    np.savez(str(found / "objects.npz"), x=np.array([print], object))
    np.savez(str(found / "number.npz"), x=np.float32(1), y=np.float32(1))
    np.savez(str(found / "no targets.npz"), x=x)
    np.savez(str(found / "many.npz"), x=x * np.nan, y=y)
    (found / "text.npz").write_text("x: 1")
    return found


@pytest.fixture
def doctor(folder):
    """``doctor("good.npz", "--json")`` returns the exit code and the output."""

    def run(data, *options):
        path = str(folder / f"model{MODEL_SUFFIXES[0]}")
        before = global_policy()
        result = CliRunner().invoke(main, ["doctor", path, "--data", str(folder / data), *map(str, options)])
        set_global_policy(before)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, result.output

    return run


def test_healthy_model(doctor, folder):
    """The verdict, the loss scale and a row for each layer; exit code 0."""
    code, output = doctor("good.npz", "--plot", folder / "picture.png")
    lines = output.splitlines()
    assert code == 0, output
    runs = "in float32 and as it is" if KEEPS_FLOAT16 else "in float32"
    assert lines[0].endswith(f"nothing breaks in float16: 2 layers, 2 batches, {runs}")
    assert lines[1].startswith("loss scale: 2^")
    assert [line.split()[0] for line in lines[2:5]] == ["layer", "inside", "out"]
    assert (folder / "picture.png").stat().st_size > 0


def test_bad_sample(doctor):
    """The input and the sample are named; exit code 1."""
    code, output = doctor("bad.npz", "--json")
    found = json.loads(output)
    assert (code, found["healthy"]) == (1, False)
    assert (found["findings"][0]["kind"], found["findings"][0]["layer"]) == ("data", "data")
    assert "sample 35" in found["findings"][0]["message"]
    assert (found["origin"]["layer"], found["origin"]["batch"], found["origin"]["samples"]) == ("inside", 1, [3])


def test_many_bad_samples(doctor):
    """The first ones are named, and the number of the others."""
    code, output = doctor("many.npz", "--json")
    assert code == 1
    assert json.loads(output)["findings"][0]["message"] == (
        "NaN or infinity in samples 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 30 others"
    )


def test_the_number_of_an_index_that_is_too_large(folder, tmp_path):
    """The message is that of TensorFlow, without the name of a function and of a device in front of it."""
    words = tf.keras.Input((3,), dtype="int32", name="words")
    embedded = layers.Embedding(10, 2, name="embedded")(words)
    model = tf.keras.Model(words, layers.Dense(1, name="out")(layers.Flatten(name="flat")(embedded)))
    model.compile("sgd", loss="mse")
    path = str(tmp_path / f"words{MODEL_SUFFIXES[0]}")
    scalekeeper.save_model(model, path)
    np.savez(str(tmp_path / "words.npz"), x=np.full((4, 3), 1005, np.int32), y=np.ones((4, 1), np.float32))
    result = CliRunner().invoke(main, ["doctor", path, "--data", str(tmp_path / "words.npz")])
    assert result.exit_code == 1
    assert "InvalidArgumentError: indices[0,0] = 1005" in result.output


def test_some_of_the_inputs():
    """The message names the input or the target that is missing, and no other."""

    class Model:
        input_names, output_names = ["a", "b"], ["p", "q"]

    array = np.ones((2, 1), np.float32)
    for given, missing in ((("a", "p", "q"), "the input b is missing"), (("a", "b", "q"), "the target p is missing")):
        with pytest.raises(scalekeeper.ArgumentError, match=f"data.npz: .*; {missing}$"):
            named_data(Model(), dict.fromkeys(given, array), "data.npz")
    x, y, weights = named_data(Model(), dict.fromkeys(("a", "b", "q", "p", "sample_weight"), array), "data.npz")
    assert (len(x), len(y), weights is array) == (2, 2, True)


def test_loss_and_loss_scale(doctor):
    """Both can be given; a scale that is too high is found."""
    code, output = doctor("good.npz", "--loss", "mae", "--loss-scale", 2**22, "--json")
    found = json.loads(output)
    assert (code, found["scale_in_use"]) == (int(KEEPS_FLOAT16), 2.0**22)
    assert {each["kind"] for each in found["findings"]} == ({"loss_scale_too_high"} if KEEPS_FLOAT16 else set())


@pytest.mark.parametrize(
    ("data", "options", "code", "message"),
    [
        ("missing.npz", [], 1, "no such file"),
        ("text.npz", [], 1, "not a .npz file"),
        ("objects.npz", [], 1, "not a .npz file"),
        ("unknown.npz", [], 1, "extra is none of them"),
        ("narrow.npz", [], 1, "narrow.npz: "),
        ("number.npz", [], 1, "one of the arrays is a single number"),
        ("no targets.npz", [], 1, "there are no targets: add an array y"),
        ("good.npz", ["--loss", "no such loss"], 1, "no such loss"),
        ("good.npz", ["--plot", "picture.pdf"], 2, ".png or .svg"),
        ("good.npz", ["--batches", "0"], 2, "--batches"),
    ],
)
def test_bad_input(doctor, data, options, code, message):
    """One message that tells what is wrong."""
    found, output = doctor(data, *options)
    assert found == code
    assert message in output


def test_data_is_read_before_tensorflow_is_imported(folder):
    """Wrong data ends the command at once, and imports neither TensorFlow nor a module that is not allowed."""
    program = (
        "import sys\nfrom click.testing import CliRunner\nfrom scalekeeper.cli import main\n"
        f"result = CliRunner().invoke(main, ['doctor', 'model', '--data', {str(folder / 'text.npz')!r}])\n"
        "assert result.exit_code == 1, result.output\nprint('tensorflow' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    assert result.stdout == "False\n"
