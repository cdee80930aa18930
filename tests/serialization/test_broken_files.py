"""A file that is broken at any place is one message, or is read: in no time, with no memory, and without a crash."""

import json
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.append(os.path.join(ROOT, "compat_tests", "golden"))
import archives  # noqa: E402
import matrix  # noqa: E402

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="commands run in one process there")

CUTS = int(os.environ.get("SCALEKEEPER_CUTS", "6"))  # of each of the six files; 34 in py313-core: 204
FLIPS = int(os.environ.get("SCALEKEEPER_FLIPS", "12"))  # 170 in py313-core: 1,020
FILES = [
    ("tensorflow", "tf23", "dynamic-adam/model.h5"),
    ("tensorflow", "k3", "dynamic-adam/model.keras"),
    ("tensorflow", "k3", "dynamic-adam/config.json"),
    ("scalekeeper", "tf215", "custom-sgd/model.h5"),
    ("scalekeeper", "tf215L", "dynamic-adam/model.keras"),
    ("scalekeeper", "tf215", "dynamic-sgd/state.npz"),
]
MOST_SECONDS, MOST_MEGABYTES = 10, 300


@pytest.fixture(scope="module", params=FILES, ids="/".join)
def path(request):
    cls, flavour, name = request.param
    with archives.unpacked(matrix.Producer(cls, flavour)) as folder:
        yield os.path.join(folder, name)


def broken(path, way, times, command):
    """What the command made of each."""
    script = [sys.executable, "-W", "ignore", os.path.join(HERE, "broken_files.py"), path, way, str(times), command]
    answer = json.loads(subprocess.check_output(script).decode().splitlines()[-1])
    assert len(answer["found"]) == times
    assert answer["kilobytes"] < MOST_MEGABYTES * 1024
    assert max(seconds for _, _, seconds, _ in answer["found"]) < MOST_SECONDS
    return answer["found"]


def is_error(said):
    """Whether it is the message of a command; the C library may have written a line of its own before it crashed."""
    return said.startswith("Error: ") or said.splitlines()[-1].startswith("Error: a library has crashed")


@pytest.mark.parametrize(("way", "times"), [("cut_off", CUTS), ("with_flipped_bits", FLIPS)])
def test_it_is_refused_or_read(path, way, times):
    """Exit code 0 and what is in it, or exit code 1 and a message; never a traceback, and no signal ends it."""
    found = broken(path, way, times, "inspect")
    for code, said, _, _ in found:
        assert code in (0, 1), (code, said)
        assert is_error(said) if code else said.startswith(os.sep), said
        assert "Traceback" not in said
    assert way == "with_flipped_bits" or any(code for code, _, _, _ in found)


@pytest.mark.parametrize("way", ["cut_off", "with_flipped_bits"])
def test_it_is_converted_or_nothing_is_written(path, way):
    """A file and exit code 0, or no file, exit code 1 and a message."""
    if path.endswith(".keras"):
        pytest.skip("it takes TensorFlow to be converted: see compat_tests/conversion/test_hostile_files.py")
    found = broken(path, way, CUTS, "convert")
    for code, said, _, written in found:
        assert code in (0, 1), (code, said)
        assert len(written) == (code == 0), said
        assert code == 0 or is_error(said), said
        assert "Traceback" not in said
    assert way == "with_flipped_bits" or any(code for code, _, _, _ in found)
