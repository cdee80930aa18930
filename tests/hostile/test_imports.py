"""A document or a file can't make anything be imported that the caller did not allow."""

import json
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
STEP = max(1, 200_000 // int(os.environ.get("SCALEKEEPER_FUZZ", "2000")))  # 10 in py313-core

MODULE = """
import os
from subprocess import Popen
from scalekeeper import DynamicLossScale as Foreign

class Mine(Foreign):
    pass
"""
PLUGIN = "from scalekeeper import DynamicLossScale\n\nclass Scale(DynamicLossScale):\n    pass\n"


@pytest.fixture(scope="module")
def canaries(tmp_path_factory):
    """Modules that nobody has imported, one of them with an entry point, as it is installed."""
    folder = tmp_path_factory.mktemp("canaries")
    for name in ("canary", "package", "packageevil"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(PLUGIN)
    (folder / "canary" / "inside.py").write_text(PLUGIN)
    (folder / "packageevil" / "module.py").write_text(PLUGIN)
    (folder / "package_evil.py").write_text(PLUGIN)
    (folder / "package" / "module.py").write_text(MODULE)
    (folder / "plugin.py").write_text(PLUGIN)
    info = folder / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[scalekeeper.loss_scales]\ntheirs = plugin:Scale\n")
    return folder


@pytest.fixture(scope="module")
def tried(canaries):
    """Return what was tried, on what, what came of it, and what was done."""
    script = [sys.executable, "-W", "ignore", os.path.join(HERE, "name_code.py"), str(canaries), str(STEP)]
    search = os.pathsep.join(filter(None, [str(canaries), os.environ.get("PYTHONPATH")]))
    printed = subprocess.check_output(script, env=dict(os.environ, PYTHONPATH=search)).decode()
    return [json.loads(line) for line in printed.splitlines()]


def test_nothing_is_imported(tried):
    """Whatever is named, wherever, however it is spelled: no import is even tried, nothing is run, read or written."""
    ours = [each for each in tried if not each[0].startswith(("entry point", "package.*"))]
    assert len(ours) > 15_000
    assert [each for each in ours if each[3]] == []


def test_every_answer_is_a_verdict(tried):
    """Accepted, or refused with a scalekeeper error."""
    assert [each for each in tried if each[2] not in ("accepted", "refused")] == []


def test_import_paths_are_refused(tried):
    """As loss scales, whichever way they come in; so are all tags but those of plain values."""
    by_name = [each for each in tried if each[0] in ("spelling: resolve", "spelling: validate", "spelling: simulate")]
    assert len(by_name) > 400
    assert [each for each in by_name if each[2] != "refused"] == []
    assert [each for each in tried if each[0] == "tag" and "python" in each[1] and each[2] != "refused"] == []


def test_registered_names_need_no_import(tried):
    """The names that are known work, so the rest is not refused because everything is."""
    accepted = {each[1] for each in tried if each[0].startswith("registered") and each[2] == "accepted"}
    assert {"dynamic", "fixed", "none", "adam", "sgd"} <= accepted


def test_a_package_that_is_allowed_is_all_that_is_imported(tried):
    """Not its namesakes, not what it has imported itself, nor what lies beside it."""
    rows = [each for each in tried if each[0] == "package.* is allowed"]
    assert [(name, came) for _, name, came, _ in rows if came == "accepted"] == [("package.module:Mine", "accepted")]
    imported = {module for _, _, _, seen in rows for _, module in seen}
    outside = {module for module in imported if module.split(".")[0] != "package"}
    assert outside == set()
    assert {"package", "package.module"} <= imported


def test_an_entry_point_is_imported_when_it_is_asked_for(tried):
    """And it alone: all other names were tried before it."""
    [[_, _, came, seen]] = [each for each in tried if each[0] == "entry point"]
    assert (came, seen) == ("accepted", [["import", "plugin"]])


@pytest.mark.parametrize(
    ("arguments", "imported"),
    [
        (["validate", "doc.yaml"], []),
        (["validate", "doc.yaml", "--allow", "package.module:Other"], []),
        (["validate", "doc.yaml", "--allow", "package.module:Mine"], ["package", "package.module"]),
        (["simulate", "doc.yaml", "--steps", "5", "--allow", "package.*"], ["package", "package.module"]),
        (["inspect", "doc.yaml"], []),
        (["convert", "config.json", "new.json", "--to", "2.10", "--custom", "canary:Scale"], ["canary"]),
    ],
)
def test_a_command_imports_what_its_caller_allows(canaries, tmp_path, arguments, imported):
    """Just that, of a folder with modules that have the names of others: those of the libraries are taken as ever."""
    for name in ("json", "yaml", "pydantic", "rich", "numpy", "csv", "difflib", "h5py", "zipfile", "unicodedata"):
        (tmp_path / f"{name}.py").write_text(f"print('imported {name}')")
    for folder, _, names in os.walk(str(canaries)):
        for name in names:
            if name.endswith(".py"):
                target = tmp_path / os.path.relpath(os.path.join(folder, name), str(canaries))
                target.parent.mkdir(exist_ok=True)
                with open(os.path.join(folder, name)) as source:
                    target.write_text("print('imported', __name__)\n" + source.read())
    (tmp_path / "doc.yaml").write_text("{optimizer: sgd, loss_scale: 'package.module:Mine'}")
    config = {"class_name": "SGD", "module": "packageevil", "registered_name": "packageevil>SGD", "config": {}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    script = "import sys; sys.path.remove(''); from scalekeeper.cli import run; run()"
    command = [sys.executable, "-W", "ignore", "-c", script, *arguments]
    process = subprocess.run(command, cwd=str(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lines = process.stdout.decode().splitlines()
    assert [line.split()[1] for line in lines if line.startswith("imported ")] == imported
