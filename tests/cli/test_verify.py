"""scalekeeper verify, as a person and as a program would call it."""

import json
import os
import shutil

import h5py
import pytest
from click.testing import CliRunner

from scalekeeper.cli import main
from scalekeeper_test_support.golden import archives, matrix


@pytest.fixture(scope="module")
def folder():
    """Return files that scalekeeper wrote on TensorFlow 2.3 and Keras 3: five steps of Adam, a dynamic scale."""
    old, new = matrix.Producer("scalekeeper", "tf23"), matrix.Producer("scalekeeper", "k3")
    with archives.unpacked(old) as one, archives.unpacked(new) as other:
        yield os.path.join(one, "dynamic-adam"), os.path.join(other, "dynamic-adam")


def run(*arguments):
    result = CliRunner().invoke(main, ["verify", *map(str, arguments), "--no-outputs"])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def changed(path, folder, change):
    """Return the path of a changed copy of an H5 file."""
    copy = os.path.join(folder, "changed.h5")
    shutil.copy(path, copy)
    with h5py.File(copy, "a") as file:
        change(file)
    return copy


def test_a_file_equals_itself(folder):
    """Everything in it is compared, and the exit code is 0."""
    path = os.path.join(folder[0], "model.h5")
    code, output = run(path, path)
    assert code == 0
    assert "equal (compared: " in output
    assert "4 weights, 8 slots" in output


def test_the_files_of_two_versions_are_compared(folder):
    """Variables have other names in each, numbers in one; the difference that the versions make is named."""
    code, output = run(os.path.join(folder[0], "model.h5"), os.path.join(folder[1], "model.keras"), "--json")
    found = json.loads(output)
    assert found["compared"]["weight"] == 4
    assert found["compared"]["slot"] == 8
    names = {(each["kind"], each["name"]) for each in found["differences"]}
    assert code == int(bool(names))
    assert ("state", "skipped_steps") in names  # skipped steps count in iterations of 2.3 only


def test_every_difference_has_a_name_and_a_size(folder, tmp_path):
    """A weight, a slot and the iterations: in the order of the file, with the largest difference."""

    def change(file):
        file["model_weights/d1/d1/kernel:0"][1, 2] += 0.5
        name = next(name for name in file["optimizer_weights"].attrs["weight_names"] if b"kernel/v" in _bytes(name))
        file["optimizer_weights"][name][0, 0] = 7.0

    path = os.path.join(folder[0], "model.h5")
    other = changed(path, tmp_path, change)
    code, output = run(path, other, "--json")
    found = json.loads(output)
    assert code == 1
    assert not found["equal"]
    assert [(each["kind"], each["name"]) for each in found["differences"]] == [
        ("weight", "d1/kernel"),
        ("slot", "d1/kernel: v"),
    ]
    assert found["differences"][0]["largest"] == pytest.approx(0.5)
    code, output = run(path, other)
    assert code == 1
    assert "2 differences" in output
    assert "d1/kernel: v" in output
    assert run(path, other, "--tolerance", 8)[0] == 0


def _bytes(name):
    return name if isinstance(name, bytes) else name.encode()


def test_other_settings_differ(folder):
    """Another optimizer is named as a configuration that differs."""
    one, other = (os.path.join(os.path.dirname(folder[0]), name, "model.h5") for name in ("dynamic-adam", "fixed-adam"))
    code, output = run(one, other, "--json")
    differences = [each for each in json.loads(output)["differences"] if each["kind"] == "configuration"]
    assert code == 1
    assert [each["name"] for each in differences] == ["loss scale"]
    assert differences[0]["first"].startswith("DynamicLossScale(")
    assert differences[0]["second"].startswith("FixedLossScale(")


def test_a_wrong_input_is_one_message(folder, tmp_path):
    """A missing file and one of another kind end with exit code 1, a wrong call with 2."""
    path = os.path.join(folder[0], "model.h5")
    (tmp_path / "noise").write_bytes(b"\0\1\2\3")
    for other, message in (("gone.h5", "no such file"), (str(tmp_path / "noise"), "unknown format")):
        code, output = run(path, other)
        assert code == 1
        assert message in output
        assert len(output.strip().splitlines()) == 1
    assert CliRunner().invoke(main, ["verify", path]).exit_code == 2
