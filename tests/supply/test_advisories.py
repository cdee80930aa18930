"""Known vulnerabilities of what we depend on: each has an answer, and the answer holds for what is installed.

The facts are in advisories.json, gathered on the day that it says: this needs no network. ``tox -e audit`` asks PyPI.
"""

import json
import os
import subprocess
import sys
import zipfile

import h5py
import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from scalekeeper import UnreadableFileError
from scalekeeper.serialization.formats.npz import read_state
from scalekeeper_test_support.dependencies import bound, closure, declared, lowest
from scalekeeper_test_support.repository import ROOT
from scalekeeper_test_support.source_code import FORBIDDEN_CALLS, FORBIDDEN_MODULES

with open(os.path.join(ROOT, "tests", "supply", "advisories.json"), encoding="utf-8") as _stream:
    KNOWN = json.load(_stream)
ADVISORIES = KNOWN["advisories"]
WITH_TENSORFLOW = "tensorflow"


def present():
    """Return what is installed of our dependencies and theirs; HDF5 comes inside of h5py."""
    return {**closure(set(declared()) - {WITH_TENSORFLOW}), "hdf5": Version(h5py.version.hdf5_version)}


def affected(versions):
    """The advisories that these versions are affected by."""
    return [
        advisory
        for advisory in ADVISORIES
        if advisory["package"] in versions
        and SpecifierSet(advisory["affected"]).contains(versions[advisory["package"]], prereleases=True)
    ]


def test_all_that_is_installed_was_looked_up():
    """A dependency that is new, or newly needed by another one, is looked up before it gets in."""
    looked_up = {*KNOWN["nothing_found"], *KNOWN["not_gathered"], *(advisory["package"] for advisory in ADVISORIES)}
    assert set(present()) - looked_up == set()


def test_lower_bounds_are_above_what_was_fixed():
    """An advisory whose answer is a bound affects none of the lowest versions; all others have another answer."""
    assert [each["id"] for each in affected(lowest()) if each["answer"] == "raised"] == []
    for name, version in lowest().items():
        assert bound(declared()[name], ">=") == version


def test_what_is_installed_is_above_what_was_fixed():
    """The same for this environment, with all that our dependencies brought along."""
    assert [each["id"] for each in affected(present()) if each["answer"] == "raised"] == []


@pytest.mark.parametrize("advisory", ADVISORIES, ids=lambda advisory: advisory["id"])
def test_each_has_an_answer(advisory):
    """One of four; what is never used has a test that says so, and what concerns users stands on the page."""
    assert advisory["answer"] in KNOWN["words"]
    assert bool(advisory["because"])
    assert ("guard" in advisory) == (advisory["answer"] == "unreached")
    if "guard" in advisory:
        file, _, name = advisory["guard"].partition(": ")
        if file == "test_source_code.py":
            assert name in (*FORBIDDEN_CALLS, *FORBIDDEN_MODULES)
        else:
            assert (file, callable(globals()[name])) == (os.path.basename(__file__), True)
    if advisory["answer"] == "open":
        with open(os.path.join(ROOT, "docs", "reliability.md"), encoding="utf-8") as stream:
            assert advisory["id"] in stream.read()


def test_the_check_finds_an_affected_version():
    """PyYAML 5.3 is, PyYAML 5.4 is not."""
    assert [each["id"] for each in affected({"pyyaml": Version("5.3")})] == ["CVE-2020-1747", "CVE-2020-14343"]
    assert affected({"pyyaml": Version("5.4")}) == []


@pytest.mark.parametrize(
    "command", [["list"], ["validate", "examples/train.yaml"], ["schema"]], ids=lambda each: each[0]
)
def test_commands_import_neither_pygments_nor_markdown(command):
    """The parts of rich that colour source code and Markdown are not loaded, so no file reaches them."""
    script = (
        "import sys\nfrom scalekeeper.cli._main import main\n"
        f"main({command!r}, standalone_mode=False)\n"
        "print('\\n' + repr(sorted({'pygments', 'markdown_it', 'commonmark'} & set(sys.modules))))"
    )
    output = subprocess.check_output([sys.executable, "-c", script], cwd=ROOT).decode()
    assert output.splitlines()[-1] == "[]"


@pytest.mark.parametrize(("of_type", "of_array"), [(33, 0), (32, 32), (20, 20), (0, 40)])
def test_types_of_many_dimensions_are_refused(tmp_path, of_type, of_array):
    """A scalekeeper file in which an array says that its type has dimensions of its own, as many as it likes."""
    kind = repr(("<f4", (1,) * of_type)) if of_type else "'<f4'"
    header = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {(1,) * of_array!r}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    path = tmp_path / "state.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("record.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64))
    with pytest.raises(UnreadableFileError):
        read_state(path)
