"""scalekeeper recommend, as a person and as a program would call it."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from scalekeeper import Trace, load_document, write_trace
from scalekeeper.cli import main
from scalekeeper.simulation import synthetic


def run(*arguments):
    result = CliRunner().invoke(main, ["recommend", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


@pytest.fixture
def path(tmp_path):
    """A trace of 2,000 steps with gradients up to 1.5."""
    write_trace(Trace([1.5, 0.1] * 1000), tmp_path / "run.csv")
    return tmp_path / "run.csv"


def test_a_person_gets_reasons_and_a_snippet(path):
    """The fixed scale, the policy, why, and YAML at the end."""
    code, output = run(path)
    lines = output.splitlines()
    assert code == 0
    assert lines[0] == f"{path}, 2,000 steps"
    assert lines[1] == "fixed scale: 16384"
    assert lines[2].startswith("  The largest gradient is 1.5: at a scale of 16384 none of 2,000 steps overflows")
    assert lines[3].startswith("policy: dynamic")
    assert lines[-1] == "# loss_scale: {name: fixed, loss_scale_value: 16384, skip_nonfinite: true}"


def test_the_snippet_can_be_pasted(path, tmp_path):
    """The text after the empty line is a part of a document."""
    snippet = run(path)[1].split("\n\n")[1]
    (tmp_path / "train.yaml").write_text("optimizer: sgd\n" + snippet)
    assert type(load_document(tmp_path / "train.yaml").loss_scale).__name__ == "DynamicLossScale"


def test_a_program_gets_all_of_it(path):
    """As JSON, with the candidates' figures."""
    code, output = run(path, "--json")
    found = json.loads(output)
    assert (code, found["fixed_scale"], found["loss_scale"]["name"]) == (0, 16384.0, "dynamic")
    assert found["candidates"][0]["loss_scale"] == {"name": "dynamic"}
    assert found["candidates"][0]["steps"] == 2000
    assert found["warnings"] == []


def test_another_limit(path):
    """As of another type of gradients."""
    assert json.loads(run(path, "--limit", 150, "--json")[1])["fixed_scale"] == 32.0


def test_a_trace_that_says_little(tmp_path):
    """Is answered with what is known, and what to do."""
    write_trace(Trace([float("inf")] * 3, 1024), tmp_path / "run.npz")
    code, output = run(tmp_path / "run.npz")
    assert code == 0
    assert "fixed scale: none\n  Every step overflowed, at scales from 1024 up" in output
    assert "note: 3 steps are few" in output
    assert "Record again with a lower scale" in output


def test_wrong_input(tmp_path):
    """Exit code 1 and a message, or 2 for a wrong call."""
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04")
    assert run(tmp_path / "gone.csv")[0] == 1
    code, output = run(tmp_path / "bad.npz")
    assert code == 1
    assert output.startswith(f"Error: {tmp_path / 'bad.npz'}: cut off, or not an .npz file")
    assert run()[0] == run(tmp_path / "gone.csv", "--limit", "-1")[0] == 2


def test_it_needs_no_tensorflow(tmp_path):
    """Also where it is installed."""
    write_trace(synthetic("lognormal", 100), tmp_path / "run.csv")
    code = """
import sys
from scalekeeper.cli import main
main(["recommend", sys.argv[1]], standalone_mode=False)
print(sorted({"tensorflow", "keras", "tf_keras", "matplotlib"} & set(sys.modules)))
"""
    command = [sys.executable, "-c", code, str(tmp_path / "run.csv")]
    assert subprocess.check_output(command, text=True).splitlines()[-1] == "[]"
