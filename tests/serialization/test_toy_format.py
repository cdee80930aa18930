"""A format that is added by this one file appears wherever formats are listed, read and written."""

import json

import numpy as np
import pytest

import scalekeeper
from scalekeeper.serialization import formats
from scalekeeper.serialization.training_state import TrainingState, Value, Writer, state_dict_of, state_of_dict

MAGIC = "toy 1\n"


class ToyFormat(formats.Format):
    """A line of text, and a training state as JSON."""

    name = "toy"
    title = "toy file"
    phrase = "a toy file"
    label = "toy"
    endings = (".toy",)
    holds_weights = False
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
            state = state_of_dict(json.load(stream))
        state.writer = state.writer._replace(format="toy")
        return state

    def write(self, path, state):
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(MAGIC + json.dumps(state_dict_of(state), default=np.ndarray.tolist))


@pytest.fixture
def toy():
    """The codec, registered for one test."""
    yield formats.register_format(ToyFormat())
    formats.unregister_format("toy")


@pytest.fixture
def state():
    """The state of an SGD with momentum after seven steps."""
    sgd = {"class_name": "SGD", "config": {"learning_rate": 0.125, "momentum": 0.5}}
    return TrainingState(
        Writer("npz", scalekeeper="0.1.0"),
        optimizer_config=sgd,
        owners={"d1/kernel": (2,)},
        slots={"d1/kernel": {"momentum": Value.of(np.float32([1, 2]))}},
        iterations=7,
        learning_rate=0.125,
        loss_scale={"class_name": "FixedLossScale", "config": {"loss_scale_value": 128.0}},
        skipped_steps="hold",
    )


def test_detection(toy, state, tmp_path):
    """By what is inside, not by the name; other files are what they were."""
    path = tmp_path / "any name"
    toy.write(str(path), state)
    assert formats.detect(path) is toy
    (tmp_path / "other.toy").write_text("optimizer: sgd")
    assert formats.detect(tmp_path / "other.toy") is None
    assert (formats.format_by_name("toy"), formats.format_by_ending("a.TOY")) == (toy, toy)


def test_inspect(toy, state, tmp_path):
    """Title, contents and the line that uses it."""
    toy.write(str(tmp_path / "a.toy"), state)
    found = scalekeeper.inspect(tmp_path / "a.toy")
    assert (found.format, found.kind, found.iterations) == ("toy", "toy file", 7)
    assert found.slots == {"d1/kernel": {"momentum": (2,)}}
    assert found.use.startswith("scalekeeper.restore(model, ")


def test_convert_from_and_to(toy, state, tmp_path):
    """From .npz to the toy and back, nothing is lost; the ending chooses the format."""
    formats.format_by_name("npz").write(str(tmp_path / "a.npz"), state)
    there = scalekeeper.convert(tmp_path / "a.npz", tmp_path / "b.toy", "2.10")
    assert (there.destination_format, there.losses, formats.detect(tmp_path / "b.toy")) == ("toy", [], toy)
    back = scalekeeper.convert(tmp_path / "b.toy", tmp_path / "c.npz", "2.10")
    assert (back.source_format, back.losses) == ("toy", [])
    before, after = (scalekeeper.read_state(tmp_path / name) for name in ("a.npz", "c.npz"))
    assert after["slots"]["d1/kernel"]["momentum"].tolist() == before["slots"]["d1/kernel"]["momentum"].tolist()
    assert [after[name] for name in ("iterations", "loss_scale", "skipped_steps")] == (
        [before[name] for name in ("iterations", "loss_scale", "skipped_steps")]
    )


def test_what_convert_refuses(toy, state, tmp_path):
    """A state becomes no model, and plain Keras cannot read the toy."""
    toy.write(str(tmp_path / "a.toy"), state)
    with pytest.raises(scalekeeper.ConversionError):
        scalekeeper.convert(tmp_path / "a.toy", tmp_path / "b.h5", "2.10")
    with pytest.raises(scalekeeper.TranslationError, match="toy"):
        scalekeeper.convert(tmp_path / "a.toy", tmp_path / "b.toy", "2.10-plain")


def test_convert_folder(toy, state, tmp_path):
    """A toy is found by its ending, keeps its format, and gets its ending from --format."""
    (tmp_path / "old").mkdir()
    toy.write(str(tmp_path / "old" / "a.toy"), state)
    (kept,) = scalekeeper.convert_folder(tmp_path / "old", tmp_path / "new", "2.10")
    assert (kept.error, kept.conversion.destination_format) == (None, "toy")
    (changed,) = scalekeeper.convert_folder(tmp_path / "old", tmp_path / "npz", "2.10", format="npz")
    assert (changed.error, changed.destination) == (None, str(tmp_path / "npz" / "a.npz"))


def test_names_are_taken_once(toy):
    """Neither the name nor an ending can be registered again."""

    class Other(ToyFormat):
        name = "other"

    for codec in (ToyFormat(), Other()):
        with pytest.raises(scalekeeper.NameTakenError):
            formats.register_format(codec)


def test_without_it_there_are_six():
    """Nothing of the toy stays behind; an unknown name is an error that lists the known ones."""
    names = [codec.name for codec in formats.formats()]
    assert names == ["h5", "keras", "saved_model", "checkpoint", "npz", "config"]
    with pytest.raises(scalekeeper.ConversionError, match=", ".join(names)):
        formats.format_by_name("toy")
