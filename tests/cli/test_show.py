"""scalekeeper show: every effective argument, as a table, JSON or YAML, and what differs."""

import json
import os

import pytest
from click.testing import CliRunner

from scalekeeper import load_document
from scalekeeper.cli import main

TEXT = "include: base.yaml\noptimizer: {beta_1: 0.8}\nloss_scale: {minimum: 2}\n"
BASE = "optimizer:\n  name: adam\n  learning_rate: 1e-4\nloss_scale: dynamic/pytorch\n"


def run(*arguments, stdin=None):
    result = CliRunner().invoke(main, [*map(str, arguments)], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """A document and the file that it includes, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "train.yaml").write_text(TEXT)


def rows(output):
    return {line.split()[0]: line.split(None, 2)[1:] for line in output.splitlines()[2:]}


def test_a_table_in_a_pipe():
    """Each argument with its value and where it comes from."""
    code, output = run("show", "train.yaml", "--target", "2.15", "--set", "optimizer.epsilon=1e-4")
    found = rows(output)
    assert (code, output.splitlines()[0]) == (0, "train.yaml, for TensorFlow 2.15.1, Keras 2.15.0")
    assert found["optimizer.name"] == ["adam", "base.yaml:2"]
    assert found["optimizer.learning_rate"] == ["0.0001", "base.yaml:3"]
    assert found["optimizer.beta_1"] == ["0.8", "train.yaml:2"]
    assert found["optimizer.beta_2"] == ["0.999", "default of TensorFlow 2.15.1, Keras 2.15.0"]
    assert found["optimizer.epsilon"] == ["0.0001", "override optimizer.epsilon=1e-4"]
    assert found["loss_scale.name"] == ["dynamic/pytorch", "base.yaml:4"]
    assert found["loss_scale.minimum"] == ["2.0", "train.yaml:3"]
    assert found["loss_scale.initial_loss_scale"] == ["65536.0", "preset dynamic/pytorch"]
    assert found["loss_scale.multiplier"] == ["2.0", "default of dynamic"]
    assert found["skipped_steps"] == ["native", "default"]


def test_a_table_on_a_terminal(on_a_terminal):
    """With colours, on a real pseudo-terminal."""
    text = on_a_terminal(300, "show", os.path.abspath("train.yaml"), "--target", "2.15")
    assert "optimizer.learning_rate" in text
    assert "base.yaml:3" in text


def test_json_for_programs():
    """Path, value, kind of origin, line, column, and what was replaced."""
    code, output = run("show", "train.yaml", "--target", "2.3", "--json", "--set", "optimizer.beta_1=0.5")
    report = json.loads(output)
    assert (code, report["file"], report["target"]) == (0, "train.yaml", "2.3")
    (beta,) = (each for each in report["arguments"] if each["path"] == ["optimizer", "beta_1"])
    assert beta == {
        "path": ["optimizer", "beta_1"],
        "value": 0.5,
        "from": "override",
        "origin": "override optimizer.beta_1=0.5",
        "line": None,
        "column": 18,
        "replaced": ["train.yaml:2"],
    }


@pytest.mark.parametrize("target", ["2.0", "2.10", "2.15", "2.21", "tf_keras"])
def test_yaml_is_a_document(target):
    """It is valid for the target, and says the same with no other file."""
    code, output = run("show", "train.yaml", "--target", target, "--yaml")
    assert code == 0
    with open("stated.yaml", "w", encoding="utf-8") as stream:
        stream.write(output)
    assert run("validate", "stated.yaml", "--target", target)[0] == 0
    assert run("show", "train.yaml", "--target", target, "--diff", "stated.yaml")[0] == 0
    stated = load_document("stated.yaml", target=target)
    assert stated.loss_scale == load_document("train.yaml", target=target).loss_scale or (
        stated.loss_scale._parameters() == load_document("train.yaml", target=target).loss_scale._parameters()
    )
    assert "\r" not in output


def test_differences_between_documents():
    """Exit code 1 and a line for each; 0 if there is none; --set is for the first one."""
    assert run("show", "train.yaml", "--target", "2.15", "--diff", "train.yaml") == (
        0,
        "train.yaml, for TensorFlow 2.15.1, Keras 2.15.0\n" * 2 + "no difference\n",
    )
    code, output = run("show", "train.yaml", "--target", "2.15", "--diff", "base.yaml", "--set", "optimizer.epsilon=1")
    assert code == 1
    assert [line.split()[:3] for line in output.splitlines()[3:]] == [
        ["optimizer.beta_1", "0.8", "0.9"],
        ["optimizer.epsilon", "1.0", "1e-07"],
        ["loss_scale.minimum", "2.0", "1.1754943508222875e-38"],
    ]


def test_differences_between_targets():
    """Defaults that changed, and arguments that only one target has."""
    with open("lion.yaml", "w") as stream:
        stream.write("optimizer: lion\n")
    code, output = run("show", "lion.yaml", "--target", "2.15", "--diff-target", "2.21", "--json")
    report = json.loads(output)
    assert (code, report["equal"], report["first"]["target"], report["second"]["target"]) == (
        1,
        False,
        "2.15",
        "2.21-keras3",
    )
    found = {
        each["path"][1]: [each[side] and each[side]["value"] for side in ("first", "second")]
        for each in report["differences"]
    }
    assert found["learning_rate"] == [0.0001, 0.001]
    assert found["jit_compile"] == [True, None]
    assert run("show", "lion.yaml", "--target", "2.16", "--diff-target", "2.21")[0] == 0


def test_a_document_for_another_target_and_another_document():
    """Together: the other document on the other target."""
    code, output = run("show", "train.yaml", "--target", "2.3", "--diff", "base.yaml", "--diff-target", "2.21")
    assert code == 1
    assert output.startswith("train.yaml, for TensorFlow 2.3.4, Keras 2.4.0\nbase.yaml, for TensorFlow 2.21")


def test_what_is_not_valid(capsys):
    """Exit code 1, the message, and nothing on standard output."""
    for arguments in (
        ["absent.yaml"],
        ["train.yaml", "--diff", "absent.yaml"],
        ["train.yaml", "--set", "optimizer.beta_1=x"],
        ["train.yaml", "--target", "2.3", "--set", "optimizer.decay=1", "--diff-target", "2.21"],
    ):
        with pytest.raises(SystemExit) as ended:
            main(["show", *arguments])
        printed = capsys.readouterr()
        assert (ended.value.code, printed.out) == (1, "")
        assert printed.err.count("\n") >= 1
        assert "Traceback" not in printed.err


def test_standard_input():
    """A dash, which has no folder to include from."""
    code, output = run("show", "-", "--target", "2.15", stdin="optimizer: sgd\n")
    assert (code, rows(output)["optimizer.name"]) == (0, ["sgd", "<stdin>:1"])
    code, output = run("show", "-", stdin="include: base.yaml\n")
    assert (code, "this document has no folder of its own" in output) == (1, True)
    assert run("show", "-", "--allow-include", ".", stdin="include: base.yaml\n")[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["train.yaml", "--yaml", "--json"],
        ["train.yaml", "--yaml", "--diff", "base.yaml"],
        ["train.yaml", "--diff-target", "1.0"],
        ["train.yaml", "--set", "optimizer"],
        ["train.yaml", "--set", "optimizer.beta_1=[1"],
        ["train.yaml", "--allow-env", "A B"],
        ["-", "--diff", "-"],
    ],
)
def test_wrong_calls(arguments):
    """Exit code 2, with the usage."""
    code, output = run("show", *arguments, stdin="")
    assert (code, output[:7]) == (2, "Usage: ")


def test_the_options_of_other_commands(monkeypatch):
    """validate, simulate, check and demo take overrides, folders and variables, too."""
    assert run("validate", "train.yaml", "--set", "loss_scale=128", "--target", "2.3")[1].endswith(
        "ok (adam with FixedLossScale, for TensorFlow 2.3.4, Keras 2.4.0)\n"
    )
    code, output = run("validate", "train.yaml", "base.yaml", "--set", "optimizer.beta_1=2", "--json")
    found = [each["problems"][0] for each in json.loads(output)["files"]]
    assert (code, [each["file"] for each in found], [each["column"] for each in found]) == (
        1,
        ["<override 1>"] * 2,
        [18] * 2,
    )
    code, output = run("simulate", "train.yaml", "--set", "loss_scale.increment_period=5", "--steps", "10", "--json")
    (policy,) = json.loads(output)["policies"]
    assert (code, policy["parameters"]["increment_period"], policy["parameters"]["minimum"]) == (0, 5, 2.0)
    for given in ("dynamic", "{name: dynamic}", "65536"):
        code, output = run(
            "simulate", given, "--set", "loss_scale={name: dynamic, minimum: 4}", "--steps", "9", "--json"
        )
        assert (code, json.loads(output)["policies"][0]["parameters"]["minimum"]) == (0, 4.0)
    code, output = run("simulate", "dynamic", "--set", "loss_scale.minimum=0", "--steps", "9")
    assert (code, output.startswith("Error: <override 1>:1:20: loss_scale.minimum: 0 must")) == (1, True)
    assert run("check", "dynamic", "--set", "loss_scale.increment_period=3", "--json")[0] == 0
    monkeypatch.setenv("FLOOR", "0.5")
    code, output = run("show", "train.yaml", "--set", "loss_scale.minimum=${env:FLOOR}", "--allow-env", "FLOOR")
    assert rows(output)["loss_scale.minimum"] == ["0.5", "override loss_scale.minimum=${env:FLOOR} (${env:FLOOR})"]


def test_inspect_reads_what_is_included():
    """A document that includes another is a document."""
    code, output = run("inspect", "train.yaml", "--json")
    assert (code, json.loads(output)["settings"]["learning_rate"]) == (0, 0.0001)
