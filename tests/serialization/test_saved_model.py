"""SavedModels without variables, put together by hand; those with some need TensorFlow to be read."""

import json

import pytest

from scalekeeper import UnreadableFileError
from scalekeeper.registry._documents import ADVANCE, HOLD
from scalekeeper.serialization.formats import saved_model

MODEL = {"class_name": "Sequential", "config": {"name": "tiny"}}
OPTIMIZER = {"class_name": "LossScaleOptimizer", "config": {}}


def metadata(version):
    training = {"loss": "mse", "optimizer_config": OPTIMIZER}
    return json.dumps({"keras_version": version, "model_config": MODEL, "training_config": training})


@pytest.fixture
def write(tmp_path, field):
    """A function that writes a SavedModel: with metadata in the graph, or beside it."""

    def write(version, tensorflow, *, is_apart, record=None):
        root = field(4, field(1, "_tf_keras_sequential") + (b"" if is_apart else field(3, metadata(version))))
        graph = field(1, field(5, tensorflow)) + field(7, field(1, root) + field(1, b""))
        (tmp_path / "saved_model.pb").write_bytes(field(1, 1) + field(2, graph))
        if is_apart:
            node = field(2, 1) + field(3, "root.layer-0") + field(5, "{}")
            nodes = field(1, node) + field(1, field(3, "root") + field(5, metadata(version)))
            (tmp_path / "keras_metadata.pb").write_bytes(nodes)
        if record is not None:
            (tmp_path / "assets.extra").mkdir()
            (tmp_path / "assets.extra" / "scalekeeper.json").write_text(json.dumps(record))
        return str(tmp_path)

    return write


@pytest.mark.parametrize(
    ("version", "tensorflow", "is_apart", "skipped_steps"),
    [("2.2.4-tf", "2.0.4", False, HOLD), ("2.4.0", "2.4.4", False, ADVANCE), ("2.15.0", "2.15.1", True, ADVANCE)],
)
def test_the_model_is_described(write, version, tensorflow, is_apart, skipped_steps):
    """In the graph's nodes up to 2.4, in a file of its own after that."""
    contents = saved_model.read(write(version, tensorflow, is_apart=is_apart))
    assert contents.writer == ("saved_model", version, tensorflow, None)
    assert contents.model_config == MODEL
    assert contents.training_config == {"loss": "mse"}
    assert contents.optimizer_config == OPTIMIZER
    assert contents.skipped_steps == skipped_steps


def test_what_ours_adds(write):
    """The record lies in a folder that TensorFlow copies and does not read."""
    record = {"version": 1, "written_by": {"scalekeeper": "0.1.0"}, "skipped_steps": HOLD, "iterations": 5}
    contents = saved_model.read(write("2.15.0", "2.15.1", is_apart=True, record=record))
    assert (contents.skipped_steps, contents.iterations, contents.writer.scalekeeper) == (HOLD, 5, "0.1.0")


def test_a_model_that_keras_does_not_describe(tmp_path, field):
    """One that was exported has a graph and nothing else: a note says so."""
    (tmp_path / "saved_model.pb").write_bytes(field(2, field(1, field(5, "2.21.0"))))
    contents = saved_model.read(str(tmp_path))
    assert (contents.model_config, contents.optimizer_config) == (None, None)
    assert "exported" in contents.notes[0]


@pytest.mark.parametrize("name", ["saved_model.pb", "keras_metadata.pb"])
@pytest.mark.parametrize("damage", [lambda data: data[:-3], lambda data: b"\xff" * 40, lambda data: b"{}" * 9])
def test_a_broken_file_is_one_kind_of_error(write, tmp_path, name, damage):
    """Cut off or foreign: the message names the SavedModel."""
    path = write("2.15.0", "2.15.1", is_apart=True)
    file = tmp_path / name
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(UnreadableFileError, match="not a SavedModel that can be read"):
        saved_model.read(path)


def test_an_empty_graph_is_no_saved_model(tmp_path):
    """An empty file is a protocol buffer too, but it says nothing."""
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(UnreadableFileError, match="no graph is in it"):
        saved_model.read(str(tmp_path))
