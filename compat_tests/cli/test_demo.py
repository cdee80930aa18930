"""scalekeeper demo as it is: a process that trains, saves, and starts others that go on."""

import os
import re
import subprocess
import sys

import pytest

import scalekeeper
from scalekeeper.serialization._keras_introspection import installed_keras, keeps_policies
from scalekeeper_test_support import pseudo_terminal
from scalekeeper_test_support.installed_keras import IS_KERAS_3, MODEL_SUFFIXES

pytestmark = pytest.mark.slow

STEPS = 60  # the scale of the document below has met float16's limit several times by then, before and after the save
DOCUMENT = """
optimizer: {name: sgd, learning_rate: 0.01, momentum: 0.9}
loss_scale: {name: dynamic, initial_loss_scale: 65536, increment_period: 4}
"""
FORGETFUL = '''
import tensorflow as tf
from scalekeeper import LossScale


class Forgetful(LossScale):
    """Grows at every fourth step, which it counts where nobody who saves it looks."""

    def __init__(self):
        self.current_loss_scale = tf.Variable(64.0, trainable=False)
        self.hidden = {"steps": [tf.Variable(0, trainable=False)]}

    def __call__(self):
        return tf.convert_to_tensor(self.current_loss_scale)

    def update(self, grads):
        steps = self.hidden["steps"][0].assign_add(1)
        factor = tf.where(steps % 4 == 0, 2.0, 1.0)
        return self.current_loss_scale.assign(self.current_loss_scale * factor), tf.constant(True)

    def get_config(self):
        return {}
'''
# 2.0 writes no SavedModel of layers that compute in float16
FORMATS = {
    "H5": "model.h5",
    **({".keras": "model.keras"} if ".keras" in MODEL_SUFFIXES else {}),
    **({"SavedModel": "model"} if "" in MODEL_SUFFIXES and keeps_policies(installed_keras()) else {}),
    "checkpoint": "checkpoint",
    "state": "state.npz",
    "config": "optimizer.json",
}


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The folder in which it was run, and what was seen on a terminal of 80 columns."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "mine.yaml").write_text(DOCUMENT)
    code, text = pseudo_terminal.run(80, "demo", "mine.yaml", "--steps", str(STEPS), folder=str(folder))
    assert code == 0, text[-3000:]
    return folder, text


def last_frame(text):
    """Return what is left on the screen."""
    lines = [line.rstrip() for line in pseudo_terminal.lines_of(text)]
    return lines[max(place for place, line in enumerate(lines) if line.startswith("format")) :]


def test_every_format_is_in_the_table_and_equal(shown):
    """A row for each format that this version has, with a difference of 0."""
    rows = [line.split() for line in last_frame(shown[1])]
    found = {row[0]: row for row in rows if row and row[-1] == "equal" and row[0] != "format"}
    assert list(found) == list(FORMATS)
    assert {row[-2] for row in found.values()} == {"0"}
    assert f"{len(FORMATS)} of {len(FORMATS)} resumed runs equal it to the bit" in " ".join(last_frame(shown[1]))


def test_it_fits_a_terminal(shown):
    """No line is longer than 80 columns; the bar tells the scale, the loss and the skipped steps."""
    lines = pseudo_terminal.lines_of(shown[1])
    assert max(map(len, lines)) <= 80
    bars = [line for line in lines if re.search("━.* 60/60 scale [0-9]+ +loss [0-9.]+ +skipped [0-9]+", line)]
    assert len(bars) > 0
    assert "Traceback" not in shown[1]
    assert "tensorflow/" not in shown[1]
    assert "InitializeLog" not in shown[1]


def test_the_given_document_was_used(shown):
    """It is named and copied, and the scale has overflowed before and after the save, and grown again."""
    folder, text = shown
    assert "sgd with DynamicLossScale, from mine.yaml" in text
    assert (folder / "scalekeeper-demo" / "document.yaml").read_text() == DOCUMENT
    state = scalekeeper.read_state(folder / "scalekeeper-demo" / "saved" / "state.npz")
    half = state["skips"]["total"]
    skipped = int(re.search("run skipped ([0-9]+) steps", " ".join(last_frame(text))).group(1))
    assert half >= 2
    assert skipped - half >= 2


def test_the_files_are_there_and_load(shown):
    """Each in its place, and whole models load in this process, with the state of half of the steps."""
    saved = shown[0] / "scalekeeper-demo" / "saved"
    assert all((saved / name).exists() for name in FORMATS.values())
    model = scalekeeper.load_model(str(saved / ("model.keras" if IS_KERAS_3 else "model.h5")))
    assert model.optimizer.telemetry.steps == STEPS // 2


def test_the_picture_is_one(shown):
    """A PNG file of some size; and nothing but what belongs there is in the folder."""
    folder = shown[0] / "scalekeeper-demo"
    data = (folder / "loss_scale.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(data) > 20000
    assert sorted(os.listdir(folder)) == ["compared", "document.yaml", "loss_scale.png", "saved"]
    assert len(os.listdir(folder / "compared")) == 1 + len(FORMATS)


@pytest.mark.long
def test_what_differs_is_said_in_a_pipe(tmp_path):
    """A policy that keeps a part of its state to itself: exit code 1, in plain lines; files of the user do no harm."""
    (tmp_path / "mine.py").write_text(FORGETFUL)
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')\n")
    (tmp_path / "mine.yaml").write_text("optimizer: adam\nloss_scale: {name: 'mine:Forgetful'}\n")
    program = os.path.join(os.path.dirname(sys.executable), "scalekeeper")
    options = ["--allow", "mine.*", "--steps", "20", "--format", "state", "--folder", "out"]
    command = [program, "demo", "mine.yaml", *options]
    done = subprocess.run(command, cwd=str(tmp_path), capture_output=True)
    text = done.stdout.decode()
    assert (done.returncode, done.stderr) == (1, b"")
    assert [character for character in text if character < " " and character != "\n"] == []
    lines = text.splitlines()
    (row,) = (line.split() for line in lines if line.startswith("state  "))
    # ten steps make two growths and two steps of a third, which the continuation begins to count anew
    assert row[-3:] == ["1024", "1.0e+03", "no"]
    assert "0 of 1 resumed runs equal it to the bit." in lines
    assert "step 20 of 20: scale" in text
    assert "━" not in text
