"""H5 files, as each Keras writes them, put together by hand."""

import json

import h5py
import numpy as np
import pytest

from scalekeeper import UnreadableFileError
from scalekeeper.registry._documents import ADVANCE, HOLD
from scalekeeper.serialization.formats import h5

ADAM = {"class_name": "Adam", "config": {"learning_rate": 0.5}}
OWNERS = ["d2/kernel", "d1/kernel", "d1/bias"]  # of a model whose first layer is d2


def values(name, shape=(2,)):
    """An array that no other name has."""
    return np.full(shape, sum(map(ord, name)), "float32")


def write(path, *, optimizer=(), version="2.4.0", in_bytes=True, config=ADAM, suffix=":0", **attributes):
    """A model with two layers, and an optimizer with variables of these names."""

    def text(each):
        return np.bytes_(each) if in_bytes else each

    with h5py.File(path, "w") as file:
        file.attrs["keras_version"] = text(version)
        file.attrs["model_config"] = text(json.dumps({"class_name": "Sequential", "config": {"name": "tiny"}}))
        file.attrs["training_config"] = text(json.dumps({"loss": "mse", "optimizer_config": config}))
        for name, value in attributes.items():
            file.attrs[name] = value
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = [name.encode() if in_bytes else name for name in ("d2", "empty", "d1")]
        for layer in ("d1", "d2", "empty"):
            names = [f"{owner}{suffix}" for owner in OWNERS if owner.startswith(layer)]
            of_layer = group.create_group(layer)
            of_layer.attrs["weight_names"] = [name.encode() if in_bytes else name for name in names]
            for name in names:
                of_layer[name] = values(name.split(":")[0])
        if optimizer:
            group = file.create_group("optimizer_weights")
            group.attrs["weight_names"] = [name.encode() if in_bytes else name for name in optimizer]
            for name in optimizer:
                is_number = name.split(":")[0].split("/")[-1] in NUMBERS
                group[name] = NUMBERS[name.split(":")[0].split("/")[-1]] if is_number else values(name.split(":")[0])
    return str(path)


NUMBERS = {
    "iter": np.int64(7),
    "iteration": np.int64(7),
    "learning_rate": np.float32(0.25),
    "dynamic_scale": np.float32(512.0),
    "step_counter": np.int64(2),
}


@pytest.mark.parametrize("in_bytes", [True, False])
@pytest.mark.parametrize(
    "names",
    [
        ["Adam/iter:0", *(f"Adam/{owner}/{slot}:0" for slot in "mv" for owner in OWNERS)],
        ["iteration:0", *(f"{slot}/{owner}:0" for owner in OWNERS for slot in "mv")],
    ],
    ids=["legacy", "new"],
)
def test_keras_2(tmp_path, names, in_bytes):
    """Layers in their order, slots by owner, iterations; bytes or text, as h5py 2 and 3 have it."""
    contents = h5.read(write(tmp_path / "model.h5", optimizer=names, in_bytes=in_bytes))
    assert list(contents.variables) == OWNERS
    assert {owner: set(slots) for owner, slots in contents.slots.items()} == {owner: {"m", "v"} for owner in OWNERS}
    stem = names[1].split(":")[0]
    owner = OWNERS[0]
    np.testing.assert_array_equal(contents.variables[owner].read(), values(owner))
    np.testing.assert_array_equal(contents.slots[owner]["m"].read(), values(stem))
    assert (contents.iterations, contents.learning_rate, contents.scalars) == (7, 0.5, {})
    assert contents.model_config == {"class_name": "Sequential", "config": {"name": "tiny"}}
    assert contents.training_config == {"loss": "mse"}
    assert contents.optimizer_config == ADAM
    assert contents.writer == ("h5", "2.4.0", None, None)
    assert contents.loss_scale_state == {}


def test_keras_3(tmp_path):
    """The outer optimizer's variables come first: they are the loss scale's state, and not the iterations."""
    outer = [f"loss_scale_optimizer/{name}" for name in ("iteration", "learning_rate", "step_counter", "dynamic_scale")]
    inner = ["adam/iteration", "adam/learning_rate"]
    slots = [f"loss_scale_optimizer/adam/{owner.replace('/', '_')}_{word}" for owner in OWNERS for word in WORDS]
    path = write(tmp_path / "model.h5", optimizer=outer + inner + slots, version="3.15.1", suffix="")
    with h5py.File(path, "a") as file:
        file["optimizer_weights/loss_scale_optimizer/iteration"][()] = 0
        file["optimizer_weights/loss_scale_optimizer/learning_rate"][()] = 0
    contents = h5.read(path)
    assert (contents.iterations, contents.learning_rate) == (7, 0.25)
    assert contents.loss_scale_state == {"current_loss_scale": 512.0, "good_steps": 2}
    assert {owner: set(each) for owner, each in contents.slots.items()} == {owner: {"m", "v"} for owner in OWNERS}
    np.testing.assert_array_equal(contents.slots["d1/bias"]["v"].read(), values(slots[-1]))
    assert contents.skipped_steps == HOLD


WORDS = ("momentum", "velocity")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.2.4-tf", HOLD),
        ("2.3.0-tf", HOLD),
        ("2.4.0", ADVANCE),
        ("2.15.0", ADVANCE),
        ("2.21.0", ADVANCE),
        ("3.15.1", HOLD),
        ("2.3.1", None),
        ("nightly", None),
    ],
)
def test_what_a_skipped_step_did(tmp_path, version, expected):
    """The version that wrote the file decides; a Keras without TensorFlow has no loss scale."""
    assert h5.read(write(tmp_path / "model.h5", version=version)).skipped_steps == expected


def test_long_lists_of_names_are_cut_into_pieces(tmp_path):
    """weight_names0, weight_names1, … are one list, and so are the pieces of our record."""
    path = write(tmp_path / "model.h5")
    record = json.dumps({"version": 1, "iterations": 3, "skipped_steps": HOLD})
    with h5py.File(path, "a") as file:
        group = file.create_group("optimizer_weights")
        group.attrs["weight_names0"] = [b"Adam/iter:0"]
        group.attrs["weight_names1"] = [b"Adam/d1/bias/m:0"]
        group["Adam/iter:0"], group["Adam/d1/bias/m:0"] = np.int64(7), values("m")
        file.attrs["scalekeeper0"], file.attrs["scalekeeper1"] = record[:20], record[20:]
    contents = h5.read(path)
    assert (contents.iterations, list(contents.slots)) == (7, ["d1/bias"])
    assert contents.skipped_steps == HOLD  # the record takes precedence over the version


def test_what_ours_adds(tmp_path):
    """The record gives the policy, its state and how skipped steps count; the group gives slots."""
    record = {
        "version": 1,
        "written_by": {"scalekeeper": "0.1.0", "tensorflow": "2.10.1", "keras": "2.10.0"},
        "loss_scale": {"class_name": "Mine", "config": {"start": 8.0}, "state": {"my_scale": 4.0, "overflows": 1}},
        "skipped_steps": HOLD,
        "iterations": 5,
    }
    path = write(tmp_path / "model.h5", version="2.10.0", scalekeeper=json.dumps(record))
    with h5py.File(path, "a") as file:
        file["scalekeeper_slots/d1/bias/m"] = values("m")
    contents = h5.read(path)
    assert contents.writer == ("h5", "2.10.0", "2.10.1", "0.1.0")
    assert contents.loss_scale == {"class_name": "Mine", "config": {"start": 8.0}}
    assert contents.loss_scale_state == {"my_scale": 4.0, "overflows": 1}
    assert (contents.skipped_steps, contents.iterations) == (HOLD, 5)
    np.testing.assert_array_equal(contents.slots["d1/bias"]["m"].read(), values("m"))


def test_variables_of_one_name_get_numbers(tmp_path):
    """Custom layers may all call theirs kernel: each keeps its own value."""
    path = str(tmp_path / "weights.h5")
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [b"one", b"two"]
        for number, layer in enumerate(("one", "two")):
            group = file.create_group(layer)
            group.attrs["weight_names"] = [b"kernel:0"]
            group["kernel:0"] = np.float32([number])
    contents = h5.read(path)
    assert {owner: value.read().tolist() for owner, value in contents.variables.items()} == {
        "kernel": [0.0],
        "kernel#1": [1.0],
    }
    assert (contents.model_config, contents.iterations, contents.slots) == (None, None, {})


def test_nothing_is_read_unasked(tmp_path):
    """Shape and type are known; the value is what the file has when it is asked for."""
    path = write(tmp_path / "model.h5")
    value = h5.read(path).variables["d1/bias"]
    assert (value.shape, value.dtype) == ((2,), "float32")
    with h5py.File(path, "a") as file:  # nobody keeps the file open either
        file["model_weights/d1/d1/bias:0"][:] = [3.0, 4.0]
    assert value.read().tolist() == [3.0, 4.0]


def test_two_bytes_of_no_type_are_bfloat16(tmp_path):
    """NumPy has no such type: what is read is float32, and exact."""
    path = write(tmp_path / "model.h5")
    with h5py.File(path, "a") as file:
        del file["model_weights/d1/d1/bias:0"]
        bits = (np.float32([1.5, -2.0]).view(np.uint32) >> 16).astype(np.uint16)
        file["model_weights/d1/d1/bias:0"] = bits.view("V2")
    value = h5.read(path).variables["d1/bias"]
    assert (value.dtype, value.read().tolist()) == ("float32", [1.5, -2.0])


@pytest.mark.parametrize("link", [h5py.SoftLink("/model_weights/d2/d2/kernel:0"), h5py.ExternalLink("x.h5", "/y")])
def test_links_are_not_followed(tmp_path, link):
    """Neither to another place in the file nor to another file."""
    path = write(tmp_path / "model.h5")
    with h5py.File(path, "a") as file:
        del file["model_weights/d1/d1/bias:0"]
        file["model_weights/d1/d1/bias:0"] = link
    with pytest.raises(UnreadableFileError, match="d1/bias:0"):
        h5.read(path)


def test_data_in_other_files_is_not_read(tmp_path):
    """HDF5 can keep an array in any file on the disk."""
    path = write(tmp_path / "model.h5")
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(8))
    with h5py.File(path, "a") as file:
        group = file["model_weights/d1"]
        del group["d1/bias:0"]
        group.create_dataset("d1/bias:0", (2,), "float32", external=[(str(secret), 0, 8)])
    with pytest.raises(UnreadableFileError, match="bias:0 .* other files"):
        h5.read(path)


def test_a_group_that_holds_itself_ends(tmp_path):
    """A hard link may lead back."""
    path = write(tmp_path / "model.h5")
    with h5py.File(path, "a") as file:
        file["scalekeeper_slots/d1/bias/m"] = values("m")
        file["scalekeeper_slots/d1/bias/again"] = file["scalekeeper_slots"]
    assert list(h5.read(path).slots) == ["d1/bias"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"something else",
        lambda data: data[:8],
        lambda data: data[: len(data) // 3],
        lambda data: data[:-100],
        lambda data: data.replace(b'{"loss"', b"{{loss{"),
    ],
)
def test_a_broken_file_is_one_kind_of_error(tmp_path, damage):
    """Empty, foreign, cut off anywhere, or with JSON that is none: the message names the file."""
    path = write(tmp_path / "model.h5", optimizer=["Adam/iter:0"])
    with open(path, "rb") as stream:
        data = stream.read()
    with open(path, "wb") as stream:
        stream.write(damage(data))
    with pytest.raises(UnreadableFileError, match="model.h5"):
        [value.read() for value in h5.read(path).variables.values()]


def test_an_h5_file_of_somebody_elses(tmp_path):
    """HDF5, but without data of Keras."""
    with h5py.File(str(tmp_path / "x.h5"), "w") as file:
        file["data"] = [1, 2, 3]
    with pytest.raises(UnreadableFileError, match="layers"):
        h5.read(str(tmp_path / "x.h5"))


def test_a_missing_file():
    """As Python says it."""
    with pytest.raises(FileNotFoundError, match="nowhere.h5"):
        h5.read("nowhere.h5")
