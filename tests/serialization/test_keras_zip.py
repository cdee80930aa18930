"""``.keras`` files, as each Keras writes them, put together by hand."""

import io
import json
import os
import zipfile

import h5py
import numpy as np
import pytest

from scalekeeper import UnreadableFileError
from scalekeeper.registry._documents import ADVANCE, HOLD
from scalekeeper.serialization.formats import keras_zip


def layer(class_name, name, **config):
    return {"class_name": class_name, "config": {"name": name, **config}}


ADAM = {"class_name": "Adam", "config": {"learning_rate": 0.5}}
SCALED = {"class_name": "LossScaleOptimizer", "config": {"inner_optimizer": ADAM, "initial_scale": 8.0}}
MODEL = layer(
    "Functional",
    "tiny",
    layers=[
        layer("InputLayer", "inputs"),
        layer("Dense", "first"),
        layer("Conv2DTranspose", "second"),
        layer("Functional", "nested", layers=[layer("InputLayer", "again"), layer("Dense", "inside")]),
        layer("Dense", "third"),
    ],
)
# what is in the folders of the weights: the folders are called after classes
FOLDERS = {
    "dense/vars/0": 1.0,
    "dense/vars/1": 2.0,
    "conv2d_transpose/vars/0": 3.0,
    "functional/{layers}/dense/vars/0": 4.0,
    "dense_1/vars/0": 5.0,
}
OWNERS = {"first/0": 1.0, "first/1": 2.0, "second/0": 3.0, "nested/inside/0": 4.0, "third/0": 5.0}


def write(
    path,
    *,
    version="3.15.1",
    config=MODEL,
    optimizer=SCALED,
    arrays=None,
    folders=None,
    container="layers",
    record=None,
):
    """A zip file as Keras makes it, and with a record as ours does."""
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        if folders is None:
            file.create_group(f"{container}/input_layer/vars")
            folders = {f"{container}/{name.format(layers=container)}": [value] for name, value in FOLDERS.items()}
        for name, value in {**folders, **(arrays or {})}.items():
            file[name] = np.asarray(value, None if hasattr(value, "dtype") else "float32")
    config = {**config, "compile_config": {"optimizer": optimizer, "loss": "mse"}}
    with zipfile.ZipFile(str(path), "w") as archive:
        added = {} if record is None else {"scalekeeper": record}
        archive.writestr("metadata.json", json.dumps({"keras_version": version, **added}))
        archive.writestr("config.json", json.dumps(config))
        archive.writestr("model.weights.h5", stream.getvalue())
    return str(path)


@pytest.mark.parametrize("container", ["layers", "_layer_checkpoint_dependencies"])
def test_layers_have_the_names_of_the_configuration(tmp_path, container):
    """In the model's order, whatever the folders are called, and in models inside of it."""
    contents = keras_zip.read(write(tmp_path / "model.keras", container=container))
    assert {owner: value.read().item() for owner, value in contents.variables.items()} == OWNERS
    assert list(contents.variables) == list(OWNERS)
    assert contents.model_config == MODEL
    assert contents.training_config == {"loss": "mse"}
    assert contents.optimizer_config == SCALED
    assert contents.writer == ("keras", "3.15.1", None, None)
    assert contents.notes == []


def test_layers_in_layers_are_in_the_order_of_their_variables(tmp_path):
    """Not in that of the alphabet, which HDF5 has: Keras's own layers are known."""
    inside = {
        "bidirectional": ("both", ["forward_layer", "backward_layer"]),
        "multi_head_attention": ("heads", ["_query_dense", "_key_dense", "_value_dense", "_output_dense"]),
    }
    config = layer("Functional", "tiny", layers=[layer("Bidirectional", "both"), layer("MultiHeadAttention", "heads")])
    folders = {f"layers/{folder}/{name}/vars/0": [1.0] for folder, (_, names) in inside.items() for name in names}
    contents = keras_zip.read(write(tmp_path / "model.keras", config=config, folders=folders))
    expected = [f"{outer}/{name}/0" for outer, names in inside.values() for name in names]
    assert (list(contents.variables), contents.is_ordered) == (expected, True)


def test_an_order_that_is_not_known_is_not_made_up(tmp_path):
    """Layers that a custom class has as attributes have names, from Keras 3 on, and no order."""
    folders = {"zeta/vars/0": [1.0], "all/dense/vars/0": [2.0]}
    path = write(tmp_path / "model.keras", config=layer("Mine", "mine"), folders=folders)
    contents = keras_zip.read(path)
    assert (list(contents.variables), contents.is_ordered) == (["dense/0", "zeta/0"], False)


def test_folders_that_do_not_fit_keep_their_names(tmp_path):
    """A layer more than the configuration has: then nothing is guessed, and a note says so."""
    path = write(tmp_path / "model.keras", arrays={"layers/lstm/vars/0": [1.0]})
    contents = keras_zip.read(path)
    assert "lstm/0" in contents.variables
    assert len(contents.notes) == 1


def test_variables_are_in_the_order_of_their_numbers(tmp_path):
    """The tenth comes after the second."""
    arrays = {f"optimizer/vars/{number}": np.float32(number) for number in range(1, 12)}
    arrays["optimizer/vars/0"] = np.int64(7)
    contents = keras_zip.read(write(tmp_path / "model.keras", version="2.15.0", arrays=arrays))
    assert [value.read().item() for value in contents.weight_list] == [7, *range(1, 12)]


def test_keras_3s_loss_scale(tmp_path):
    """Outer iterations and learning rate say nothing; the loss scale's state follows; then the inner optimizer's."""
    outer = [np.int64(0), np.float32(0.0), np.int64(2), np.float32(512.0)]
    inner = [np.int64(7), np.float32(0.25), np.float32([1.0])]
    arrays = {f"optimizer/vars/{number}": value for number, value in enumerate(outer + inner)}
    arrays.update({f"optimizer/inner_optimizer/vars/{number}": value for number, value in enumerate(inner)})
    contents = keras_zip.read(write(tmp_path / "model.keras", arrays=arrays))
    assert contents.loss_scale_state == {"good_steps": 2, "current_loss_scale": 512.0}
    assert (contents.iterations, contents.learning_rate, contents.skipped_steps) == (7, 0.25, HOLD)
    assert len(contents.weight_list) == 3


def test_keras_2s_optimizer(tmp_path):
    """The same list twice, and no learning rate in it: a slot without dimensions is not taken for one."""
    values = [np.int64(7), np.float32(0.125)]
    arrays = {
        f"optimizer/{where}vars/{n}": value for where in ("", "inner_optimizer/") for n, value in enumerate(values)
    }
    contents = keras_zip.read(write(tmp_path / "model.keras", version="2.15.0", arrays=arrays))
    assert (contents.iterations, contents.learning_rate, contents.loss_scale_state) == (7, 0.5, {})
    assert (len(contents.weight_list), contents.skipped_steps) == (2, ADVANCE)


def test_a_schedule_is_no_variable(tmp_path):
    """The variable after the iterations is a slot then."""
    config = {"class_name": "Adam", "config": {"learning_rate": {"class_name": "ExponentialDecay", "config": {}}}}
    arrays = {"optimizer/vars/0": np.int64(7), "optimizer/vars/1": np.float32(0.125)}
    contents = keras_zip.read(write(tmp_path / "model.keras", optimizer=config, arrays=arrays))
    assert (contents.iterations, contents.learning_rate) == (7, None)


SLOTS = {"m": [1.0, 2.0], "v": [3.0, 4.0]}


def test_what_ours_adds(tmp_path):
    """The record, and slots where Keras writes none."""
    record = {"version": 1, "written_by": {"scalekeeper": "0.1.0"}, "skipped_steps": HOLD, "iterations": 5}
    arrays = {f"scalekeeper_slots/d1/kernel/{name}": np.float32([row]) for name, row in SLOTS.items()}
    path = write(tmp_path / "model.keras", version="2.15.0", record=record, arrays=arrays)
    contents = keras_zip.read(path)
    assert contents.variables.keys() == OWNERS.keys()
    assert (contents.iterations, contents.skipped_steps, contents.writer.scalekeeper) == (5, HOLD, "0.1.0")
    slots = contents.slots["d1/kernel"]
    assert {name: (value.shape, value.dtype) for name, value in slots.items()} == {
        "m": ((1, 2), "float32"),
        "v": ((1, 2), "float32"),
    }
    assert slots["v"].read().tolist() == [[3.0, 4.0]]


def test_a_compressed_file_is_read_too(tmp_path):
    """Keras does not compress, but others may have packed it again."""
    path = write(tmp_path / "model.keras")
    packed = str(tmp_path / "packed.keras")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    contents = keras_zip.read(packed)
    assert {owner: value.read().item() for owner, value in contents.variables.items()} == OWNERS


@pytest.mark.parametrize("member", ["config.json", "model.weights.h5"])
def test_bombs_do_not_go_off(tmp_path, member):
    """A few bytes that unpack to a lot are refused before they fill the memory or the disk."""
    path = write(tmp_path / "model.keras")
    bomb = str(tmp_path / "bomb.keras")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name) if name != member else bytes(70 * 2**20))
    with pytest.raises(UnreadableFileError, match=f"{member}.* bytes"):
        keras_zip.read(bomb)


@pytest.mark.parametrize("name", ["../outside", "/tmp/../outside", "a/../../outside"])
def test_no_member_is_written_anywhere(tmp_path, name):
    """A name that leads out of the folder leads nowhere: nothing is unpacked."""
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    path = write(tmp_path / "deep" / "deeper" / "model.keras")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, "harm")
    before = sorted(map(str, tmp_path.rglob("*")))
    contents = keras_zip.read(path)
    assert {owner: value.read().item() for owner, value in contents.variables.items()} == OWNERS
    assert sorted(map(str, tmp_path.rglob("*"))) == before
    assert not os.path.exists("/outside")


def test_h5_under_that_name(tmp_path):
    """Before 2.12, model.save("x.keras") wrote H5."""
    path = str(tmp_path / "model.keras")
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [b"d1"]
        file.create_group("d1").attrs["weight_names"] = [b"d1/bias:0"]
        file["d1/d1/bias:0"] = np.float32([1.0])
    contents = keras_zip.read(path)
    assert (contents.writer.format, list(contents.variables)) == ("h5", ["d1/bias"])


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"PK\x03\x04 something else",
        lambda data: data[: len(data) // 2],
        lambda data: data[:-30],
        lambda data: data.replace(b"\x89HDF", b"\x88HDF"),
        lambda data: data.replace(b'{"class_name"', b"{{class_name{", 1),
        lambda data: data.replace(b"config.json", b"konfig.json"),
    ],
)
def test_a_broken_file_is_one_kind_of_error(tmp_path, damage):
    """Empty, foreign, cut off, or with parts that are not what they are called: the message names the file."""
    path = write(tmp_path / "model.keras")
    with open(path, "rb") as stream:
        data = stream.read()
    with open(path, "wb") as stream:
        stream.write(damage(data))
    with pytest.raises(UnreadableFileError, match="model.keras"):
        keras_zip.read(path)
