"""A file that is broken at any place is an error of ours, or is read; it takes no time and no memory."""

import os
import random
import resource
import shutil
import sys
import time

import pytest
from click.testing import CliRunner

import scalekeeper
from scalekeeper.cli import main

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(ROOT, "compat_tests", "golden"))
import archives  # noqa: E402
import matrix  # noqa: E402

CUTS = int(os.environ.get("SCALEKEEPER_CUTS", "34"))  # of each of the six files: 204 together
FLIPS = int(os.environ.get("SCALEKEEPER_FLIPS", "170"))  # 1,020 together
FILES = [
    ("tensorflow", "tf23", "dynamic-adam/model.h5"),
    ("tensorflow", "k3", "dynamic-adam/model.keras"),
    ("tensorflow", "k3", "dynamic-adam/config.json"),
    ("scalekeeper", "tf215", "custom-sgd/model.h5"),
    ("scalekeeper", "tf215L", "dynamic-adam/model.keras"),
    ("scalekeeper", "tf215", "dynamic-sgd/state.npz"),
]
MOST_SECONDS, MOST_MEGABYTES = 5, 300


@pytest.fixture(params=FILES, ids="/".join)
def whole(request):
    cls, flavour, name = request.param
    with archives.unpacked(matrix.Producer(cls, flavour)) as folder, open(os.path.join(folder, name), "rb") as stream:
        return stream.read(), os.path.splitext(name)[1]


def cut_off(data, rng):
    return data[: rng.randrange(len(data))]


def with_flipped_bits(data, rng):
    broken = bytearray(data)
    for _ in range(rng.choice([1, 1, 3, 20])):
        broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
    return bytes(broken)


@pytest.mark.parametrize(("way", "times"), [(cut_off, CUTS), (with_flipped_bits, FLIPS)])
def test_it_is_refused_or_read(whole, way, times, tmp_path):
    """No other exception, at random places of each file; what is read has the parts that a file may have."""
    data, suffix = whole
    path = str(tmp_path / ("broken" + suffix))
    rng = random.Random(7)
    errors = []
    for _ in range(times):
        with open(path, "wb") as stream:
            stream.write(way(data, rng))
        began = time.perf_counter()
        try:
            assert scalekeeper.inspect(path).path == path
        except scalekeeper.ScalekeeperError as error:
            errors.append(str(error))
        assert time.perf_counter() - began < MOST_SECONDS
    assert all(errors)
    assert errors or way is with_flipped_bits
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < MOST_MEGABYTES * 1024


@pytest.mark.parametrize("way", [cut_off, with_flipped_bits])
def test_it_is_converted_or_nothing_is_written(whole, way, tmp_path):
    """By the command: exit code 0 and a file, or exit code 1, one message, no traceback and no file."""
    data, suffix = whole
    if suffix == ".keras":
        pytest.skip("it takes TensorFlow: see compat_tests/conversion")
    source, written = tmp_path / ("broken" + suffix), tmp_path / "out"
    rng = random.Random(8)
    codes = set()
    for _ in range(CUTS):
        source.write_bytes(way(data, rng))
        destination = written / ("new" + (".json" if suffix == ".json" else ".npz"))
        result = CliRunner().invoke(main, ["convert", str(source), str(destination), "--to", "2.10", "--allow-loss"])
        codes.add(result.exit_code)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.output
        assert destination.exists() == (result.exit_code == 0)
        assert result.exit_code == 0 or result.output.startswith("Error: ")
        shutil.rmtree(str(written), ignore_errors=True)
    assert codes <= {0, 1}
    assert 1 in codes or way is with_flipped_bits
