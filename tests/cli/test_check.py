"""scalekeeper check, as a person and as a program would call it; what needs TensorFlow is left out."""

import json

from click.testing import CliRunner

from scalekeeper.cli import main
from scalekeeper.testing import CHECKS

IN_TENSORFLOW = [part for check in CHECKS if check.needs_tensorflow for part in ("--leave-out", check.name)]
FALLING = """
import numpy as np
import scalekeeper


class Falling(scalekeeper.LossScale):
    def initial_state(self):
        return {"current_loss_scale": np.float32(8)}

    def next_state(self, state, report, ops):
        scale = state["current_loss_scale"]
        return {"current_loss_scale": ops.where(report.finite, scale, scale * ops.float32(0.5))}
"""


def run(*arguments):
    result = CliRunner().invoke(main, ["check", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def test_a_policy_that_holds_the_contract():
    """A line for each check, and exit code 0."""
    code, output = run("{name: dynamic, increment_period: 3}", *IN_TENSORFLOW)
    assert code == 0
    assert output.splitlines()[0] == "dynamic (increment_period=3): 10 passed, 0 failed, 9 not run"
    assert [line.split()[0] for line in output.splitlines()[1:]] == [check.name for check in CHECKS]


def test_a_policy_that_does_not(tmp_path, monkeypatch):
    """Exit code 1, and what to do; the class is in the current folder, and allowed."""
    (tmp_path / "falling.py").write_text(FALLING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    code, output = run("falling:Falling", "--allow", "falling:Falling", *IN_TENSORFLOW)
    assert code == 1
    assert "bounds                    failed   the scale is 5.87747e-39 " in output
    assert "Put a floor under it" in output


def test_json_for_programs():
    """The policy, and a row for each check."""
    code, output = run("fixed", "--json", *IN_TENSORFLOW)
    assert code == 1
    assert "fixed needs 'loss_scale_value', which is not given" in output
    code, output = run("128", "--json", *IN_TENSORFLOW)
    found = json.loads(output)
    assert (code, found["policy"]) == (0, "128")
    assert found["checks"][0] == {"check": "config_round_trip", "status": "passed", "message": ""}
    assert len(found["checks"]) == len(CHECKS)


def test_wrong_input_is_exit_code_1_and_no_traceback():
    """An unknown policy, an unknown check, a path that is not allowed."""
    for arguments, message in (
        (["dynamc"], "did you mean 'dynamic'"),
        (["dynamic", "--leave-out", "bound"], "unknown check 'bound'; did you mean 'bounds'"),
        (["falling:Falling"], "is not allowed"),
    ):
        code, output = run(*arguments)
        assert code == 1
        assert message in output


def test_a_table_on_a_terminal(on_a_terminal):
    """On a real pseudo-terminal of 100 columns."""
    text = on_a_terminal(100, "check", "dynamic", *IN_TENSORFLOW)
    assert "dynamic: 10 passed, 0 failed, 9 not run" in text
    assert "left out by the caller" in text
