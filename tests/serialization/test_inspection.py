"""The description of a file by ``inspect``: all that it holds, what it lacks, and how to use it."""

import json
import os
import subprocess
import sys

import h5py
import numpy as np
import pytest

import scalekeeper
from scalekeeper_test_support.golden import inspection, matrix
from scalekeeper_test_support.repository import ROOT

WITHOUT_TENSORFLOW = ("config", "h5", "keras", "npz")


@pytest.mark.parametrize("producer", matrix.producers(), ids=lambda producer: producer.name)
def test_what_every_version_wrote_is_shown_as_it_is(producer):
    """Class, settings, policy, state, iterations and slots, and what is lacking, in every format without TensorFlow."""
    surprises, count = inspection.surprises(producer, WITHOUT_TENSORFLOW)
    assert surprises == []
    assert count >= 2 * len(matrix.cases(producer))


def test_tensorflow_is_not_imported_for_it():
    """The test above runs in an environment that has none; in one that has, it stays untouched."""
    code = "import sys, scalekeeper; scalekeeper.inspect(sys.argv[1]); assert 'tensorflow' not in sys.modules"
    path = os.path.join(ROOT, "examples", "train.yaml")
    assert subprocess.call([sys.executable, "-c", code, path]) == 0


def test_a_document_is_shown():
    """The declared optimizer, and the line that builds it."""
    path = os.path.join(ROOT, "examples", "train.yaml")
    found = scalekeeper.inspect(path)
    assert (found.format, found.optimizer, found.loss_scale.name) == ("document", "adam", "DynamicLossScale")
    assert found.loss_scale.parameters["increment_period"] == 500
    assert found.use == f"optimizer = scalekeeper.build({path!r})"


def test_text_that_is_no_document_is_an_error(tmp_path):
    """A text is called a text; a configuration that breaks off, with the place where it does."""
    path = tmp_path / "notes.txt"
    path.write_text("to do: [write")
    with pytest.raises(scalekeeper.UnreadableFileError, match=r"notes.txt: a text file; expected one of: H5 file"):
        scalekeeper.inspect(str(path))
    path = tmp_path / "broken.json"
    path.write_text('{"class_name": "LossScaleOptimizer",\n "config": {"dynamic" true}}')
    with pytest.raises(scalekeeper.UnreadableFileError, match=r"broken.json:2:\d+"):
        scalekeeper.inspect(str(path))


def test_weights_alone_say_what_they_lack(tmp_path):
    """A file of weights has no optimizer, and can only be restored into a model that is built."""
    path = str(tmp_path / "weights.h5")
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [b"d1"]
        group = file.create_group("d1")
        group.attrs["weight_names"] = [b"d1/kernel:0"]
        group["d1/kernel:0"] = np.zeros((2, 3), np.float32)
    found = scalekeeper.inspect(path)
    assert found.variables == {"d1/kernel": (2, 3)}
    assert found.kind == "H5 file with weights only"
    assert [line.split(":")[0] for line in found.missing] == [
        "the layers of the model",
        "the optimizer's iterations",
        "the optimizer's class and settings",
        "the optimizer's slots",
        "a loss scale",
    ]
    assert found.use.startswith("scalekeeper.restore(model, ")


def test_it_is_json(tmp_path):
    """All of it can be written as JSON, and read back."""
    found = scalekeeper.inspect(os.path.join(ROOT, "examples", "train.yaml"))
    again = scalekeeper.Inspection.model_validate_json(json.dumps(found.model_dump(mode="json")))
    assert again == found


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no file that tells how much memory is used")
@pytest.mark.parametrize(("count", "shape"), [(1000, (16,)), (4, (128 * 2**20,))], ids=["1,000 variables", "2 GB"])
def test_a_large_model_takes_little_memory(tmp_path, count, shape):
    """No array is read: the process stays under 200 MB."""
    path = str(tmp_path / "large.h5")
    with h5py.File(path, "w") as file:
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = np.array([f"d{number}".encode() for number in range(count)])
        for number in range(count):
            layer = group.create_group(f"d{number}")
            layer.attrs["weight_names"] = [f"d{number}/kernel:0".encode()]
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)  # a file with holes takes no room on the disk
            inside = layer.create_group(f"d{number}")
            space = h5py.h5s.create_simple(shape)
            h5py.h5d.create(inside.id, b"kernel:0", h5py.h5t.IEEE_F32LE, space, plist)
    assert os.path.getsize(path) > 4 * count * np.prod(shape)
    # not getrusage, which counts what the process was a copy of before it became Python
    code = (
        "import re, sys, scalekeeper; found = scalekeeper.inspect(sys.argv[1]); "
        "status = open('/proc/self/status').read(); "
        "print(len(found.variables), re.search(r'VmHWM:\\s*(\\d+) kB', status).group(1))"
    )
    output = subprocess.check_output([sys.executable, "-c", code, path]).decode().split()
    assert int(output[0]) == count
    assert 10 < int(output[1]) / 1024 < 200
