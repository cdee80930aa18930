"""Conventions of any command: its version, no colours if they say so, completion, a module of its name."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

import scalekeeper
from scalekeeper.cli import main
from scalekeeper.registry import target

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COLOUR = re.compile("\x1b\\[[0-9;]*(?:3[0-7]|9[0-7])[0-9;]*m")


def run(*command, **variables):
    result = subprocess.run(command, capture_output=True, env=dict(os.environ, **variables), text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("module", ["scalekeeper", "scalekeeper.cli"])
def test_the_package_can_be_run(module):
    """python -m scalekeeper is the command, for where scripts are not on the path."""
    assert run(sys.executable, "-m", module, "--version") == f"scalekeeper, version {scalekeeper.__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["list"], ["simulate", "dynamic", "--steps", "100"], ["inspect", "examples/train.yaml"]], ids=str
)
def test_no_colour_if_they_say_so(on_a_terminal, monkeypatch, arguments):
    """NO_COLOR is honoured on a terminal; without it there are colours in all but the list."""
    monkeypatch.chdir(ROOT)
    assert not COLOUR.search(on_a_terminal(80, *arguments, NO_COLOR="1"))
    assert bool(COLOUR.search(on_a_terminal(80, *arguments))) is (arguments != ["list"])


SCRIPT = """
eval "$({python} -m scalekeeper completion bash)"
scalekeeper() {{ {python} -m scalekeeper "$@"; }}
COMP_WORDS=({words}); COMP_CWORD=$(({count} - 1))
_scalekeeper_completion scalekeeper
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["scalekeeper", "si"], ["simulate"]),
        (["scalekeeper", "simulate", "dynamic/p"], ["dynamic/paddle", "dynamic/pytorch"]),
        (["scalekeeper", "simulate", "dynamic", "--compare", "log"], ["log_max"]),
        (["scalekeeper", "validate", "--target", "2.16"], ["2.16-tf_keras", "2.16-keras3"]),
        (["scalekeeper", "convert", "--to", "k"], ["keras3"]),
        (["scalekeeper", "schema", "--o"], ["--output"]),
        (["scalekeeper", "completion", "z"], ["zsh"]),
    ],
    ids=lambda value: value[-1],
)
def test_bash_completes(words, expected, tmp_path):
    """Commands, options, policies and targets, in a real bash."""
    scripts = tmp_path / "scalekeeper"
    scripts.write_text(f'#!/bin/sh\nexec {sys.executable} -m scalekeeper "$@"\n')
    scripts.chmod(0o755)
    script = SCRIPT.format(python=sys.executable, words=" ".join(words), count=len(words))
    path = str(tmp_path) + os.pathsep + os.environ["PATH"]
    found = run("bash", "--norc", "-c", script, PATH=path).split()
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize(("shell", "sign"), [("zsh", "#compdef scalekeeper"), ("fish", "complete --no-files")])
def test_other_shells_have_a_script(shell, sign):
    """By name, or by the environment's SHELL."""
    by_name = CliRunner().invoke(main, ["completion", shell])
    by_environment = CliRunner().invoke(main, ["completion"], env={"SHELL": f"/usr/bin/{shell}"})
    assert sign in by_name.output
    assert by_name.output == by_environment.output


def test_an_unknown_shell_is_an_error():
    """It says which ones there are."""
    result = CliRunner().invoke(main, ["completion"], env={"SHELL": "/bin/dash"})
    assert result.exit_code == 2
    assert "dash is in SHELL; say which one: bash, zsh, fish" in result.output


def test_a_schema_in_a_file(tmp_path, monkeypatch):
    """It is what the package gives, and the lines that editors look for are said."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["schema", "--target", "2.3", "--output", "train.schema.json"])
    assert result.exit_code == 0
    assert "# yaml-language-server: $schema=train.schema.json" in result.output
    with open("train.schema.json", encoding="utf-8") as stream:
        assert json.load(stream) == scalekeeper.document_schema(target("2.3"))
    assert os.listdir(str(tmp_path)) == ["train.schema.json"]


def test_a_schema_that_can_not_be_written(tmp_path):
    """One message, and nothing takes a folder's place."""
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(main, ["schema", "--output", str(tmp_path / "file" / "train.schema.json")])
    assert (result.exit_code, result.output[:7]) == (1, "Error: ")
    result = CliRunner().invoke(main, ["schema", "--output", str(tmp_path)])
    assert result.exit_code == 2
    assert os.listdir(str(tmp_path)) == ["file"]


def test_the_hook_for_pre_commit_runs_validate():
    """Its command is one of scalekeeper's, and it is for files that are called after the package."""
    import yaml

    with open(os.path.join(ROOT, ".pre-commit-hooks.yaml"), encoding="utf-8") as stream:
        (hook,) = yaml.safe_load(stream)
    assert hook["entry"].split() == ["scalekeeper", "validate"]
    assert "validate" in main.commands
    matches = [bool(re.search(hook["files"], name)) for name in ("a/scalekeeper.yaml", "b.scalekeeper.json", "c.yaml")]
    assert matches == [True, True, False]
