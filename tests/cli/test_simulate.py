"""scalekeeper simulate, as a person and as a program would call it."""

import csv
import io
import json
import subprocess
import sys

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from scalekeeper import Trace, write_trace
from scalekeeper.cli import main

INF = float("inf")


def run(*arguments):
    result = CliRunner().invoke(main, ["simulate", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def test_a_person_sees_a_table_in_a_pipe():
    """Plain text: what was simulated, and a line for each policy."""
    code, output = run("dynamic", "--overflow-above", 20000, "--steps", 1000, "--compare", "1024")
    lines = [line.split() for line in output.splitlines()]
    assert code == 0
    assert output.splitlines()[0] == "overflows above a scale of 20000, 1,000 steps"
    assert lines[2] == ["dynamic", "1", "0.10", "14.00", "0.00", "16384", "32768", "16384"]
    assert lines[3] == ["1024", "0", "0.00", "10.00", "-", "1024", "1024", "1024"]


def test_what_the_table_alone_would_hide_is_said():
    """A fixed scale that applies what is not finite loses no step, and all of them."""
    code, output = run("65536", "--overflow-above", 20000, "--steps", 10)
    assert code == 0
    assert "65536: 10 steps with gradients that are not finite are applied; the first is step 0" in output


def test_a_table_on_a_terminal(on_a_terminal):
    """On a real pseudo-terminal of 100 columns, with a progress bar for many steps, which leaves nothing behind."""
    text = on_a_terminal(100, "simulate", "dynamic", "--steps", "300000")
    assert "━" in text
    assert "drifting, synthetic, 300,000 steps" in text
    assert "mean log2 scale" in text


def test_csv_for_spreadsheets():
    """One row for each policy, and nothing else on standard output."""
    code, output = run("dynamic", "--overflow-above", 20000, "--steps", 1000, "--compare", "1024", "--csv")
    rows = list(csv.DictReader(io.StringIO(output)))
    assert code == 0
    assert [(row["policy"], row["steps_lost"], row["last"], row["floor"]) for row in rows] == [
        ("dynamic", "1", "16384.0", "1.0"),
        ("1024", "0", "1024.0", ""),
    ]


def test_json_for_programs():
    """With parameters, figures and the last state."""
    code, output = run("{name: dynamic, increment_period: 5}", "--overflow-above", 20000, "--steps", 4, "--json")
    found = json.loads(output)
    assert (code, found["limit"], found["trace"]["steps"]) == (0, 65504.0, 4)
    (policy,) = found["policies"]
    assert (policy["policy"], policy["parameters"]["increment_period"]) == ("dynamic (increment_period=5)", 5)
    assert (policy["steps_lost"], policy["state"]) == (1, {"current_loss_scale": 16384.0, "good_steps": 3})


@pytest.mark.parametrize("policy", ["dynamic", "128", "{name: dynamic}", "train.yaml"])
@pytest.mark.parametrize("override", ["minimum=2", "loss_scal.minimum=2", "~minimum"])
def test_an_override_that_would_be_ignored(policy, override, tmp_path, monkeypatch):
    """A key that a document does not have is an error that points into the override, although the rest is ignored."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.yaml").write_text("optimizer: adam\nloss_scale: dynamic\n")
    code, output = run(policy, "--steps", 10, "--set", override)
    column = 2 if override.startswith("~") else 1
    assert (code, output.startswith(f"Error: <override 1>:1:{column}: ")) == (1, True)
    assert "unknown key" in output
    assert run(policy, "--steps", 10, "--set", "optimizer.learning_rate=0.1")[0] == 0


@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_a_recorded_trace(tmp_path, ending):
    """All of its steps, or the first ones; with its limit, or another."""
    path = tmp_path / f"run.{ending}"
    write_trace(Trace([1, INF, 1, 1], [1, 16, 1, 1], limit=100), path)

    def lost(*arguments):
        code, output = run("{name: fixed, loss_scale_value: 64, skip_nonfinite: true}", "--csv", *arguments)
        assert code == 0
        return [row["steps_lost"] for row in csv.DictReader(io.StringIO(output))]

    assert lost("--trace", path) == ["1"]
    assert lost("--trace", path, "--steps", 1) == ["0"]
    assert lost("--trace", path, "--limit", 10) == ["4"]


def test_policies_from_documents(tmp_path):
    """Its loss scale is meant; the optimizer need not fit the TensorFlow that is installed."""
    (tmp_path / "train.yaml").write_text("optimizer: {name: adam, decay: 0.1}\nloss_scale: 256\n")
    (tmp_path / "default.json").write_text('{"optimizer": "sgd"}')
    (tmp_path / "alone.yaml").write_text("name: dynamic\ninitial_loss_scale: 8\n")
    names = [tmp_path / name for name in ("train.yaml", "default.json", "alone.yaml")]
    code, output = run(names[0], "--compare", names[1], "--compare", names[2], "--overflow-above", 1e6, "--csv")
    rows = list(csv.DictReader(io.StringIO(output)))
    assert code == 0
    assert [(row["policy"], row["lowest"]) for row in rows] == [
        ("train.yaml: 256", "256.0"),
        ("default.json: dynamic", "32768.0"),
        ("alone.yaml: dynamic (initial_loss_scale=8)", "8.0"),
    ]


def test_a_policy_of_ones_own(tmp_path, monkeypatch):
    """By an import path that is allowed, from the current folder."""
    (tmp_path / "own_scales.py").write_text(
        "import numpy as np\nfrom scalekeeper import LossScale\n\n\nclass Two(LossScale):\n"
        "    def initial_state(self):\n        return {'current_loss_scale': np.float32(2)}\n\n"
        "    def next_state(self, state, report, ops):\n        return state\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    code, output = run("own_scales:Two", "--allow", "own_scales:Two", "--steps", 10, "--csv")
    assert (code, next(iter(csv.DictReader(io.StringIO(output))))["last"]) == (0, "2.0")


@pytest.mark.parametrize("ending", ["png", "svg", "html"])
def test_plots(tmp_path, ending):
    """The file is there, and the table all the same."""
    path = tmp_path / f"out.{ending}"
    code, output = run("dynamic", "--steps", 1000, "--compare", "1024", "--plot", path)
    assert code == 0
    assert path.stat().st_size > 5000
    assert output.endswith(f"drawn: {path}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dynamc"], "unknown loss scale 'dynamc'; did you mean 'dynamic'?"),
        (["0.5"], "0.5 must be greater than or equal to 1"),
        (["{name: dynamic, incremnt_period: 5}"], "POLICY:1:17: incremnt_period: unknown parameter 'incremnt_period'"),
        (["{name: dynamic"], "POLICY:1:15: not YAML"),
        (["{}"], "POLICY:1:1: a loss scale given as a mapping needs a 'name'"),
        (["gone.yaml"], "gone.yaml: can't be read: No such file or directory"),
        (["a\0b"], "unknown loss scale 'a\\x00b'"),
        (["pickle:loads"], "pickle:loads"),
        (["dynamic", "--trace", "gone.csv"], "gone.csv: no such file; a trace is a .csv or"),
        (["dynamic", "--model", "spike"], "unknown model 'spike'; did you mean 'spikes'?"),
        (["dynamic", "--model", "spikes:share=2"], "share: 2 must be less than or equal to 1"),
        (["dynamic", "--steps", "99999999999"], "steps: 99999999999 must be between 1 and 20000000"),
        (["dynamic", "--compare", "x"], "unknown loss scale 'x'"),
    ],
)
def test_wrong_input_is_exit_code_1_and_no_traceback(arguments, message):
    """With a message that says what is wrong."""
    code, output = run(*arguments)
    assert (code, output.split(":")[0]) == (1, "Error")
    assert message in output


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["dynamic", "--trace", "a.csv", "--model", "spikes"],
        ["dynamic", "--csv", "--json"],
        ["dynamic", "--steps", "0"],
        ["dynamic", "--plot", "out.gif"],
        ["dynamic", "--limit", "nan"],
        ["dynamic", "--overflow-above", "-1"],
        ["dynamic", "--allow", "*"],
    ],
)
def test_a_wrong_call_is_exit_code_2(arguments):
    """Before anything is read or written."""
    assert run(*arguments)[0] == 2


def test_more_steps_than_there_are(tmp_path):
    """Is said, and not made up."""
    write_trace(Trace([1, 2]), tmp_path / "run.csv")
    code, output = run("dynamic", "--trace", tmp_path / "run.csv", "--steps", 3)
    assert (code, output) == (1, f"Error: {tmp_path / 'run.csv'}: --steps is 3, and the trace has 2\n")


def test_a_bad_trace_is_said_with_its_line(tmp_path):
    """And a picture that can't be written, too."""
    (tmp_path / "bad.csv").write_text("largest\n1\nx\n")
    assert run("dynamic", "--trace", tmp_path / "bad.csv") == (
        1,
        f"Error: {tmp_path / 'bad.csv'}:3: 'x' is not a number\n",
    )
    (tmp_path / "file").write_text("")
    code, output = run("dynamic", "--steps", 10, "--plot", tmp_path / "file" / "out.png")
    assert code == 1
    assert "Error: " in output


@given(st.text(max_size=40))
def test_any_text_is_a_policy_or_a_message(text):
    """Never a traceback."""
    assert run("--steps", "3", "--", text)[0] in (0, 1)


def test_it_needs_no_tensorflow(tmp_path):
    """Nor does it import matplotlib before it draws."""
    code = """
import sys
from scalekeeper.cli import main
main(["simulate", "dynamic", "--steps", "10"], standalone_mode=False)
print(sorted({"tensorflow", "keras", "tf_keras", "matplotlib"} & set(sys.modules)))
"""
    assert subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()[-1] == "[]"
