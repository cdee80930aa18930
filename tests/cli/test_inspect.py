"""scalekeeper inspect, as a person and as a program would call it."""

import json
import os

import pytest
from click.testing import CliRunner

from scalekeeper.cli import main
from scalekeeper_test_support.golden import archives, matrix


@pytest.fixture(scope="module")
def folder():
    """Return what TensorFlow 2.3's own class wrote after five steps of Adam with a dynamic scale."""
    with archives.unpacked(matrix.Producer("tensorflow", "tf23")) as unpacked:
        yield os.path.join(unpacked, "dynamic-adam")


def run(*arguments):
    result = CliRunner().invoke(main, ["inspect", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def test_a_person_sees_what_is_in_a_file(folder):
    """Its writer, optimizer, loss scale, iterations, slots, missing state, and the line that uses it."""
    code, output = run(os.path.join(folder, "model.h5"))
    words = " ".join(output.split())
    assert code == 0
    assert "kind H5 file with a model written by keras 2.4.0 model Functional" in words
    assert "optimizer Adam name=Adam, learning_rate=0.01" in words
    assert "loss scale DynamicLossScale initial_loss_scale=1024, increment_period=3, multiplier=2" in words
    assert "iterations 5 learning rate 0.01 skipped steps count in iterations" in words
    assert "d1/kernel 2×4 m, v d1/bias 4 m, v" in words
    assert "not in the file the loss scale's state: it starts at its initial scale" in words
    assert f"to use it model = scalekeeper.load_model('{folder}/model.h5')" in words


def test_a_program_gets_all_of_it(folder):
    """As JSON."""
    code, output = run(os.path.join(folder, "model.h5"), "--json")
    found = json.loads(output)
    assert code == 0
    assert (found["format"], found["iterations"], found["optimizer"]) == ("h5", 5, "Adam")
    assert found["slots"]["d1/kernel"] == {"m": [2, 4], "v": [2, 4]}
    assert found["loss_scale"]["state"] == {}


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("gone.h5", None, "no such file, SavedModel or checkpoint"),
        ("cut.h5", b"\x89HDF\r\n\x1a\n\0\0\0", "not a readable HDF5 file, or truncated"),
        ("cut.keras", b"PK\x05\x06" + b"\0" * 18, "a zip file with neither"),
        ("noise.h5", b"\x00\x01\x02\x03" * 9, "unknown format"),
        ("list.json", b"[1, 2, 3]", "neither a Keras configuration nor a valid document"),
    ],
)
def test_a_bad_file_is_an_error_and_no_traceback(tmp_path, name, data, message):
    """Exit code 1, and a message that names the file."""
    if data is not None:
        (tmp_path / name).write_bytes(data)
    code, output = run(tmp_path / name)
    assert code == 1
    assert output.startswith(f"Error: {tmp_path / name}: ")
    assert message in output
    assert "Traceback" not in output


def test_an_empty_folder_is_an_error(tmp_path):
    """It may be a checkpoint's folder, and then it says which one is the latest."""
    assert run(tmp_path) == (
        1,
        f"Error: {tmp_path}: cannot tell which checkpoint in the folder is the latest, found none\n",
    )
