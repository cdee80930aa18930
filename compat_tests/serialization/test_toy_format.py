"""A format that is added by one file works in restore, convert, the demo and the checks of policies."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper.serialization import formats
from scalekeeper_test_support.small_model import build, train

TOY = """
import json

import numpy as np

from scalekeeper.serialization import formats
from scalekeeper.serialization.training_state import state_dict_of, state_of_dict
from scalekeeper.serialization.training_state import Value

MAGIC = "toy 1\\n"


class ToyFormat(formats.Format):
    name = "toy"
    title = "toy file"
    phrase = "a toy file"
    label = "toy"
    endings = (".toy",)
    run_files = ("run.toy",)

    def matches(self, path):
        try:
            with open(path, encoding="utf-8") as stream:
                return stream.readline() == MAGIC
        except (OSError, ValueError):
            return False

    def read(self, path, class_name=None):
        with open(path, encoding="utf-8") as stream:
            stream.readline()
            weights, state_dict = json.load(stream)
        state = state_of_dict(state_dict)
        state.variables = {name: Value.of(np.float32(value)) for name, value in weights.items()}
        return state

    def write(self, path, state):
        weights = {name: value.read().tolist() for name, value in state.variables.items()}
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(MAGIC + json.dumps([weights, state_dict_of(state)], default=lambda array: array.tolist()))


CODEC = formats.register_format(ToyFormat())
"""


@pytest.fixture(scope="module")
def toy():
    """The codec, registered while this module runs."""
    names = {}
    exec(TOY, names)
    yield names["CODEC"]
    formats.unregister_format("toy")


def trained():
    """A model after five steps."""
    model = build()
    model.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.125, momentum=0.5), "dynamic"), "mse")
    train(model, 5)
    return model


def values(model):
    """Everything that must come back."""
    state = model.optimizer.state_dict()
    # by order: up to TF 2.2 a second model has other names
    slots = [{name: each.tolist() for name, each in slots.items()} for slots in state["slots"].values()]
    weights = [weight.tolist() for weight in model.get_weights()]
    return weights, slots, state["iterations"], state["loss_scale"]


def test_restore(toy, tmp_path):
    """Weights, slots, iterations and loss scale come back into a model that is built in code."""
    model, other = trained(), build()
    toy.save_run(model, str(tmp_path))
    other.compile(scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(0.125, momentum=0.5), "dynamic"), "mse")
    other.set_weights([np.zeros_like(weight) for weight in other.get_weights()])
    report = scalekeeper.restore(other, tmp_path / "run.toy")
    assert (report.missing, report.unused) == ([], [])
    assert values(other) == values(model)


def test_convert_a_model(toy, tmp_path):
    """An H5 model becomes a toy, without its layers, which the conversion reports."""
    model = trained()
    scalekeeper.save_model(model, str(tmp_path / "model.h5"))
    done = scalekeeper.convert(tmp_path / "model.h5", tmp_path / "model.toy", allow_loss=True)
    assert (done.destination_format, len(done.losses)) == ("toy", 1)
    assert scalekeeper.inspect(tmp_path / "model.toy").iterations == int(model.optimizer.iterations.numpy())


def test_the_checks_of_policies(toy):
    """There is a check of the state in a toy file, and it passes for a sound policy."""
    from scalekeeper.testing._all_checks import all_checks
    from scalekeeper.testing._check_runner import outcome_of
    from scalekeeper.testing._subject import Subject

    (check,) = (each for each in all_checks() if each.name == "state_in_toy")
    outcome, error = outcome_of(check, Subject(scalekeeper.DynamicLossScale))
    assert outcome.status == "passed", error


@pytest.mark.long
def test_the_demo(tmp_path):
    """The demo saves a run as a toy, and a new process that knows the format continues it to the bit."""
    pytest.importorskip("matplotlib")
    (tmp_path / "sitecustomize.py").write_text(f"try:\n    exec({TOY!r})\nexcept ImportError:\n    pass\n")
    code = "import sys; from scalekeeper.cli._main import main; main(sys.argv[1:])"
    options = ["demo", "--steps", "20", "--folder", str(tmp_path / "out"), "--json"]
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *options],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    assert "toy" in json.dumps(json.loads(done.stdout.decode()))
    assert (tmp_path / "out" / "saved" / "run.toy").exists()
