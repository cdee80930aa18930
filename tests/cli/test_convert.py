"""scalekeeper convert, as a person and as a program would call it; what needs no TensorFlow."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile

import h5py
import numpy as np
import pytest
from click.testing import CliRunner

import scalekeeper
from scalekeeper.cli import main
from scalekeeper_test_support.golden import archives, matrix

NOBODY = 65534  # a user that owns no files


@pytest.fixture(scope="module")
def folder():
    """Return what ours wrote on TensorFlow 2.3 after five steps of Adam with a dynamic scale."""
    with archives.unpacked(matrix.Producer("scalekeeper", "tf23")) as unpacked:
        yield os.path.join(unpacked, "dynamic-adam")


def run(*arguments):
    result = CliRunner().invoke(main, ["convert", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def digest(path):
    with open(path, "rb") as stream:
        return hashlib.sha256(stream.read()).hexdigest()


def test_what_would_be_lost_is_refused(folder, tmp_path):
    """It is listed, nothing is written, and the exit code is 1."""
    code, output = run(f"{folder}/model.h5", tmp_path / "state.npz", "--to", "2.15")
    assert code == 1
    assert "would drop\n  the model, its layers and its weights" in output
    assert "--allow-loss" in output
    assert os.listdir(str(tmp_path)) == []


def test_the_state_of_a_model(folder, tmp_path):
    """With the loss allowed, all of the optimizer's state is in the new file; the source is as it was."""
    before = digest(f"{folder}/model.h5")
    code, output = run(f"{folder}/model.h5", tmp_path / "state.npz", "--to", "2.15", "--allow-loss")
    assert code == 0
    assert "converted for TensorFlow 2.15.1" in output
    assert "lost: the model" in output
    found, source = scalekeeper.inspect(tmp_path / "state.npz"), scalekeeper.inspect(f"{folder}/model.h5")
    assert (found.iterations, found.loss_scale, found.slots) == (source.iterations, source.loss_scale, source.slots)
    assert found.loss_scale.state == {"current_loss_scale": 512.0, "good_steps": 2.0}
    assert digest(f"{folder}/model.h5") == before


def test_a_dry_run_writes_nothing(folder, tmp_path):
    """It says what would be lost, and is not an error."""
    code, output = run(f"{folder}/model.h5", tmp_path / "state.npz", "--dry-run", "--json")
    report = json.loads(output)
    assert code == 0
    assert [each.split(":")[0] for each in report["losses"]] == ["the model, its layers and its weights"]
    assert (report["source_format"], report["destination_format"], report["written"]) == ("h5", "npz", False)
    assert os.listdir(str(tmp_path)) == []


def test_nothing_is_overwritten_without_force(folder, tmp_path):
    """The old file stays; with --force it is replaced."""
    destination = tmp_path / "config.json"
    destination.write_text("old")
    code, output = run(f"{folder}/config.json", destination, "--to", "keras3")
    assert code == 1
    assert "--force" in output
    assert destination.read_text() == "old"
    code, _ = run(f"{folder}/config.json", destination, "--to", "keras3", "--force")
    assert code == 0
    config = json.loads(destination.read_text())
    assert config["module"] == "keras.optimizers"
    assert config["config"]["dynamic_growth_steps"] == 3


def test_the_source_is_never_the_destination(folder, tmp_path):
    """Not even by force, or by another name."""
    source = tmp_path / "config.json"
    with open(f"{folder}/config.json", encoding="utf-8") as stream:
        source.write_text(stream.read())
    link = tmp_path / "link.json"
    os.symlink(str(source), str(link))
    for destination in (source, link):
        code, output = run(source, destination, "--to", "2.10", "--force")
        assert code == 1
        assert "overlaps with the source" in output


def test_a_folder_is_never_replaced(folder, tmp_path):
    """Any folder is refused, also the one that the source is in."""
    for place in ("state.npz", "state"):
        destination = tmp_path / place
        destination.mkdir()
        (destination / "precious").write_text("kept")
        code, output = run(f"{folder}/state.npz", destination, "--format", "npz", "--force")
        assert code == 1
        assert "is a folder, which is never replaced" in output
        assert (destination / "precious").read_text() == "kept"
    source = tmp_path / "state" / "state.npz"
    shutil.copy(f"{folder}/state.npz", str(source))
    code, output = run(source, tmp_path / "state", "--format", "npz", "--force")
    assert code == 1
    assert "overlaps with the source" in output
    assert digest(str(source)) == digest(f"{folder}/state.npz")


@pytest.mark.parametrize(
    ("source", "destination", "options", "message"),
    [
        ("config.json", "new.h5", [], "a configuration holds no state"),
        ("state.npz", "new.h5", [], "a training state holds no model"),
        ("model.h5", "new", [], "--format"),
        ("model.h5", "new.keras", ["--to", "2.3"], "choose .h5"),
        ("model.h5", "new.npz", ["--to", "2.3-plain"], "plain Keras cannot read an .npz file"),
        ("model.h5", "new.npz", ["--to", "3.0"], "unknown target '3.0'"),
        ("state.npz", "new.json", ["--to", "2.3", "--format", "saved_model"], "a training state holds no model"),
        ("no.h5", "new.npz", [], "no such file"),
        ("expected.json", "new.json", [], "no training state"),
    ],
)
def test_what_can_not_be(folder, tmp_path, source, destination, options, message):
    """One message that says why, exit code 1, and nothing is written."""
    code, output = run(f"{folder}/{source}", tmp_path / destination, *options)
    assert code == 1
    assert message in output
    assert os.listdir(str(tmp_path)) == []


def test_a_folder(folder, tmp_path):
    """Everything in it, to the same places; a broken file is named, stops nothing, and the exit code says so."""
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    for name, place in (("config.json", "deep/config.json"), ("state.npz", "state.npz")):
        shutil.copy(f"{folder}/{name}", str(source / place))
    (source / "broken.h5").write_bytes(b"\x89HDF\r\n\x1a\n nothing more")
    (source / "notes.txt").write_text("not ours")
    code, output = run(source, tmp_path / "new", "--to", "2.10", "--recursive")
    words = " ".join(output.split())
    assert code == 1
    assert "2 of 3 converted, 1 failed" in words
    assert "broken.h5 failed: " in words
    found = sorted(
        os.path.relpath(os.path.join(parent, name), str(tmp_path / "new"))
        for parent, _, names in os.walk(str(tmp_path / "new"))
        for name in names
    )
    assert found == ["deep/config.json", "state.npz"]
    code, output = run(source, tmp_path / "again", "--to", "2.10", "--recursive", "--json")
    assert code == 1
    assert [each["error"] is None for each in json.loads(output)] == [False, True, True]


def test_a_folder_of_nothing(tmp_path):
    """Is an error, and so is a file where a folder belongs."""
    code, output = run(tmp_path, tmp_path / "new", "--recursive")
    assert (code, "no files that can be converted" in output) == (1, True)
    (tmp_path / "file").write_text("")
    code, output = run(tmp_path / "file", tmp_path / "new", "--recursive")
    assert (code, "not a folder" in output) == (1, True)


def test_a_destination_below_a_file(folder, tmp_path):
    """A path through a file is a message of one line, and the file is unchanged."""
    (tmp_path / "file").write_text("kept")
    code, output = run(f"{folder}/config.json", tmp_path / "file" / "new.json", "--to", "2.10")
    assert (code, output.startswith("Error: "), "Traceback" in output) == (1, True, False)
    assert (tmp_path / "file").read_text() == "kept"


@contextlib.contextmanager
def without_privileges():
    """Act as a user that permission bits restrict: root may write everywhere."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


def test_a_folder_that_may_not_be_written_to(folder, tmp_path):
    """Permission denied is the system's message, and nothing is written."""
    run(f"{folder}/config.json", tmp_path / "new.json", "--to", "2.10")  # imports what a conversion imports
    with tempfile.TemporaryDirectory() as parent:  # tmp_path is below a folder that only its owner may enter
        os.chmod(parent, 0o755)
        source, locked = os.path.join(parent, "config.json"), os.path.join(parent, "locked")
        shutil.copyfile(f"{folder}/config.json", source)
        os.chmod(source, 0o644)
        os.mkdir(locked)
        os.chmod(locked, 0o555)
        with without_privileges():
            code, output = run(source, os.path.join(locked, "new.json"), "--to", "2.10")
        assert (code, os.listdir(locked)) == (1, [])
        assert output.startswith("Error: ")
        assert os.strerror(errno.EACCES) in output


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_disk(folder, tmp_path, monkeypatch):
    """The message of the system; what was there before is there still, and nothing else."""
    destination = tmp_path / "state.npz"
    destination.write_bytes(b"old")

    def full(*arguments, **keywords):
        with open("/dev/full", "wb") as stream:
            stream.write(b"x" * 2**20)

    monkeypatch.setattr(np, "savez", full)
    code, output = run(f"{folder}/state.npz", destination, "--to", "2.10", "--force")
    assert code == 1
    assert os.strerror(errno.ENOSPC) in output
    assert os.listdir(str(tmp_path)) == ["state.npz"]
    assert destination.read_bytes() == b"old"


def test_a_model_without_an_optimizer(folder, tmp_path):
    """Has no training state; the command says so."""
    path = tmp_path / "weights.h5"
    with h5py.File(f"{folder}/model.h5", "r") as old, h5py.File(str(path), "w") as new:
        old.copy("model_weights", new)
        new.attrs["keras_version"] = old.attrs["keras_version"]
        new.attrs["model_config"] = old.attrs["model_config"]
    code, output = run(path, tmp_path / "new.npz")
    assert code == 1
    assert "no training state" in output
    assert os.listdir(str(tmp_path)) == ["weights.h5"]


def test_names_that_lead_nowhere(folder, tmp_path):
    """Wrong weight_names are one message."""
    path = tmp_path / "model.h5"
    shutil.copy(f"{folder}/model.h5", str(path))
    with h5py.File(str(path), "a") as file:
        file["optimizer_weights"].attrs["weight_names"] = np.array([b"no/such/weight:0"])
    code, output = run(path, tmp_path / "new.npz", "--allow-loss")
    assert code == 1
    assert "no/such/weight:0" in output
    assert os.listdir(str(tmp_path)) == ["model.h5"]
