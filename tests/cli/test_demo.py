"""scalekeeper demo before it has any TensorFlow; compat_tests/cli runs all of it."""

import os
import sys

import pytest
from click.testing import CliRunner

from scalekeeper.cli import main


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A current folder of its own, in which nothing may be left."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments):
    result = CliRunner().invoke(main, ["demo", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def test_without_tensorflow(folder, monkeypatch):
    """Exit code 1, what to install, and no folder is made."""
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    code, output = run()
    assert code == 1
    assert "TensorFlow, which is not installed" in output
    assert "pip install '.[tensorflow]'" in output
    assert os.listdir(folder) == []


def test_a_wrong_document(folder):
    """The message of validate, with the line and a caret, and exit code 1."""
    (folder / "train.yaml").write_text("optimizer: adam\nloss_scale: {name: dynamc}\n")
    code, output = run("train.yaml")
    validated = CliRunner().invoke(main, ["validate", "train.yaml"])
    assert (code, output) == (1, validated.output)
    assert output.startswith("train.yaml:2:20: loss_scale.name: unknown")
    assert output.splitlines()[-1].strip("| ") == "^^^^^^"
    assert os.listdir(folder) == ["train.yaml"]


def test_a_document_that_is_not_there():
    """Exit code 1, and its name."""
    assert run("absent.yaml") == (1, "absent.yaml: can't be read: No such file or directory\n")


def test_what_a_document_may_import_has_to_be_allowed(folder):
    """As validate does, and the module is not touched."""
    (folder / "mine.py").write_text("raise SystemExit('imported')\n")
    (folder / "train.yaml").write_text("optimizer: adam\nloss_scale: {name: 'mine:Mine'}\n")
    code, output = run("train.yaml")
    assert code == 1
    assert "--allow mine:Mine" in output


@pytest.mark.parametrize("is_folder", [True, False])
def test_nothing_is_overwritten(folder, is_folder):
    """A folder with something in it is refused, and so is a file: exit code 2."""
    taken = folder / "taken"
    if is_folder:
        taken.mkdir()
    (taken / "mine.txt" if is_folder else taken).write_text("mine")
    code, output = run("--folder", "taken")
    assert code == 2
    assert "'taken' is not an empty folder" in output


@pytest.mark.parametrize(
    "arguments",
    [
        ["a.yaml", "b.yaml"],
        ["--steps", "1"],
        ["--steps", "x"],
        ["--format", "pickle"],
        ["--allow", "*"],
        ["--nonsense"],
    ],
    ids=" ".join,
)
def test_wrong_calls(folder, arguments):
    """Exit code 2, with the usage and no traceback."""
    code, output = run(*arguments)
    assert code == 2
    assert output.startswith("Usage: ")
    assert os.listdir(folder) == []


def test_the_bundled_document_is_right_for_every_tensorflow():
    """It uses nothing that any target lacks."""
    from scalekeeper.cli._demo.demo_run import BUNDLED
    from scalekeeper.registry import known_targets, load_document

    checked = [load_document(BUNDLED, target=target.name) for target in known_targets()]
    assert {each.loss_scale.params.increment_period for each in checked} == {15}
    assert len(checked) == 28


def test_the_document_of_the_demo_needs_no_other(tmp_path, monkeypatch):
    """Its text is kept as it is; with included files, overrides or references, it is written as one that has none."""
    from scalekeeper import load_document
    from scalekeeper.cli._commands.demo import _read
    from scalekeeper.registry._documents import Access
    from scalekeeper.registry._overrides import parsed_overrides

    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text("# kept\noptimizer: {name: sgd, momentum: 1e-1}\n")
    (tmp_path / "train.json").write_text('{"include": "base.yaml", "loss_scale": "${stop_after_skips}"}')
    assert _read("base.yaml", Access(), ())[:2] == ("# kept\noptimizer: {name: sgd, momentum: 1e-1}\n", ".yaml")
    text, extension, label = _read("train.json", Access(), parsed_overrides(["stop_after_skips=8", "$schema='$${x}'"]))
    assert (extension, label) == (".yaml", "sgd with FixedLossScale")
    (tmp_path / "base.yaml").unlink()
    (tmp_path / "document.yaml").write_text(text)
    found = load_document("document.yaml")
    assert (found.optimizer.arguments, found.loss_scale()) == ({"momentum": 0.1}, 8.0)
