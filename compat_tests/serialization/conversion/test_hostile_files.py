"""Files that are broken, or that mean harm: one kind of error, nothing is run, nothing is written."""

import base64
import json
import marshal
import os
import random
import shutil
import sys

import h5py
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper.serialization.formats import checkpoint
from scalekeeper_test_support import hostile_files, import_spellings
from scalekeeper_test_support.golden import archives, matrix


@pytest.fixture(scope="module")
def folder():
    """Return what ours wrote on 2.15: all formats but one."""
    with archives.unpacked(matrix.Producer("scalekeeper", "tf215")) as unpacked:
        yield os.path.join(unpacked, "dynamic-adam")


def refused(source, destination, kind=scalekeeper.ScalekeeperError, **options):
    """The error of a conversion that leaves nothing behind."""
    parent = os.path.dirname(str(destination))
    before = sorted(os.listdir(parent))
    with pytest.raises(kind) as caught:
        scalekeeper.convert(source, destination, allow_loss=True, **options)
    assert sorted(os.listdir(parent)) == before
    return str(caught.value)


def test_code_in_a_file_is_never_run(folder, tmp_path):
    """A Lambda layer holds code: it is refused before anything is built of it; inspect does not mind it."""
    source, marker = tmp_path / "model.h5", tmp_path / "marker"
    shutil.copy(os.path.join(folder, "model.h5"), str(source))
    code = compile(f"open({str(marker)!r}, 'w').close()", "lambda", "exec")
    text = base64.encodebytes(marshal.dumps(code)).decode("ascii")
    with h5py.File(str(source), "a") as file:
        config = json.loads(file.attrs["model_config"])
        layer = config["config"]["layers"][1]
        layer["class_name"] = "Lambda"
        layer["config"] = {"name": "d1", "function": [text, None, None], "function_type": "lambda", "arguments": {}}
        file.attrs["model_config"] = json.dumps(config)
    for name in ("new.h5", "new.ckpt"):
        assert "scalekeeper runs no code from a file" in refused(source, tmp_path / name)
    assert scalekeeper.inspect(source).iterations == 5
    assert not marker.exists()


def test_a_class_from_anywhere_is_not_imported(folder, tmp_path):
    """A configuration names a module of its own: it is not looked for."""
    source = tmp_path / "model.h5"
    shutil.copy(os.path.join(folder, "model.h5"), str(source))
    with h5py.File(str(source), "a") as file:
        config = json.loads(file.attrs["model_config"])
        config["config"]["layers"][1].update(module="antigravity", class_name="Popen", registered_name="Popen")
        file.attrs["model_config"] = json.dumps(config)
    assert "has no layer 'Popen'" in refused(source, tmp_path / "new.h5")


def test_from_config_imports_nothing(tmp_path, monkeypatch):
    """Whatever classes and modules a configuration names: none is looked for outside of Keras and the registry."""
    (tmp_path / "canary.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    tried = 0
    for name in ("canary:Scale", "canary.Scale", "canary>Scale", "Custom>canary", "os:system"):
        for config in import_spellings.configurations_with(name):
            inside = config["config"] if "optimizer" in str(config["config"]) else {"inner_optimizer": config}
            with pytest.raises(scalekeeper.ScalekeeperError):
                scalekeeper.LossScaleOptimizer.from_config(inside)
            tried += 1
    assert (tried, "canary" in sys.modules) == (20, False)


@pytest.mark.parametrize("name", ["saved_model", "checkpoint"])
def test_missing_pieces(folder, tmp_path, name):
    """Values that are not there are an error, for inspect too."""
    source = tmp_path / name
    shutil.copytree(os.path.join(folder, name), str(source))
    for parent, _, names in os.walk(str(source)):
        for each in names:
            if ".data-" in each:
                os.remove(os.path.join(parent, each))
    path = source if name == "saved_model" else source / "checkpoint"
    refused(path, tmp_path / "new.ckpt", kind=scalekeeper.UnreadableFileError)
    with pytest.raises(scalekeeper.UnreadableFileError):
        scalekeeper.inspect(path)


@pytest.mark.parametrize(
    ("name", "suffix"), [("model.h5", ".h5"), ("model.keras", ".h5"), ("checkpoint/checkpoint.index", ".ckpt")]
)
def test_broken_at_random_places(folder, tmp_path, name, suffix):
    """Cut off, with flipped bits, odd numbers, parts elsewhere: a scalekeeper error and no file, or a file."""
    rng = random.Random(3)
    with open(os.path.join(folder, name), "rb") as stream:
        data = stream.read()
    source = tmp_path / "source"
    source.mkdir()
    path = source / os.path.basename(name)
    if suffix == ".ckpt":
        shutil.copy(os.path.join(folder, "checkpoint", "checkpoint.data-00000-of-00001"), str(source))
    errors = 0
    ways = [hostile_files.cut_off, hostile_files.with_flipped_bits] * 3 + [*hostile_files.BREAKING]
    for turn, way in enumerate(ways):
        path.write_bytes(way(rng, data, data))
        made = tmp_path / f"made{turn}"
        made.mkdir()
        try:
            scalekeeper.convert(path, made / f"new{suffix}", allow_loss=True)
            assert os.listdir(str(made))
        except scalekeeper.ScalekeeperError:
            errors += 1
            assert os.listdir(str(made)) == []
    assert errors >= len(ways) // 2


# Checkpoints are several files


def iterations_in(prefix):
    return checkpoint.read(str(prefix)).iterations


@pytest.fixture
def pair(tmp_path):
    """Two checkpoints that tell each other apart."""
    for number, flavour in enumerate(("tf215", "tf20")):
        with archives.unpacked(matrix.Producer("scalekeeper", flavour)) as unpacked:
            shutil.copytree(os.path.join(unpacked, "dynamic-adam", "checkpoint"), str(tmp_path / f"source{number}"))
    return [tmp_path / f"source{number}" / "checkpoint" for number in range(2)]


def test_a_checkpoint_is_replaced_whole(pair, tmp_path):
    """Again and again: what is read is the last one, and no piece of another is left."""
    folder = tmp_path / "new"
    counts = []
    for turn in range(3):
        scalekeeper.convert(pair[turn % 2], folder / "it.ckpt", "2.3", force=True)
        assert iterations_in(folder / "it.ckpt") == iterations_in(pair[turn % 2])
        counts.append(len(os.listdir(str(folder))))
        assert tf.train.load_checkpoint(str(folder / "it.ckpt"))
    assert counts == [2, 3, 2]


@pytest.mark.parametrize("name", ["checkpoint", "checkpoint/checkpoint", "checkpoint/checkpoint.index"])
def test_a_checkpoint_is_never_its_own_destination(folder, tmp_path, name):
    """By whichever of its names it is given."""
    shutil.copytree(os.path.join(folder, "checkpoint"), str(tmp_path / "checkpoint"))
    before = sorted(os.listdir(str(tmp_path / "checkpoint")))
    with pytest.raises(scalekeeper.ConversionError, match="source"):
        scalekeeper.convert(tmp_path / name, tmp_path / "checkpoint" / "checkpoint", "2.3", force=True)
    assert sorted(os.listdir(str(tmp_path / "checkpoint"))) == before


def test_nothing_is_written_into_a_saved_model(folder, tmp_path):
    """It is a source as a whole."""
    shutil.copytree(os.path.join(folder, "saved_model"), str(tmp_path / "saved"))
    with pytest.raises(scalekeeper.ConversionError, match="source"):
        scalekeeper.convert(tmp_path / "saved", tmp_path / "saved" / "new.ckpt", "2.3", allow_loss=True)


def test_a_checkpoint_that_fails_halfway_leaves_the_old_one(pair, tmp_path, monkeypatch):
    """Its pieces come first and its index last: without it, the old one counts."""
    folder = tmp_path / "new"
    scalekeeper.convert(pair[0], folder / "it.ckpt", "2.3")
    real = os.replace

    def failing(source, destination):
        if str(destination).endswith(".index"):
            raise OSError("the disk is gone")
        real(source, destination)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match="the disk is gone"):
        scalekeeper.convert(pair[1], folder / "it.ckpt", "2.3", force=True)
    assert iterations_in(folder / "it.ckpt") == iterations_in(pair[0]) != iterations_in(pair[1])
