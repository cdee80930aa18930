"""scalekeeper list, scalekeeper schema and the command itself."""

import json

import pytest
from click.testing import CliRunner

from scalekeeper import document_schema
from scalekeeper.cli import main
from scalekeeper.registry import target


def run(*arguments):
    result = CliRunner().invoke(main, arguments)
    return result.exit_code, result.output


def test_list_in_a_pipe():
    """One line a policy, tab-separated: names, parameters with defaults, origin."""
    code, output = run("list")
    rows = {row.split("\t")[0]: row.split("\t")[1:] for row in output.splitlines()}
    start = "increment_period=2000, multiplier=2.0, minimum=1.0"
    factors = "growth_factor=null, backoff_factor=null"
    patience = 'hysteresis=1, refill="on_growth", refill_on_backoff=false'
    assert code == 0
    assert rows["dynamic"] == [
        f"initial_loss_scale=32768.0, {start}, maximum=null, {factors}, {patience}",
        "built in",
    ]
    assert rows["dynamic/onnxruntime"] == [
        f"initial_loss_scale=65536.0, {start}, maximum=16777216.0, {factors}, {patience}",
        "built in",
    ]
    assert rows["fixed, static"] == ["loss_scale_value=(required), skip_nonfinite=false", "built in"]
    assert sum(name.startswith("dynamic/") for name in rows) == 14


def test_list_for_programs():
    """The same as JSON."""
    code, output = run("list", "--json")
    rows = {row["name"]: row for row in json.loads(output)}
    dynamic, fixed = rows["dynamic"], rows["fixed"]
    assert (code, dynamic["name"], dynamic["parameters"]["maximum"]) == (0, "dynamic", None)
    assert (fixed["aliases"], fixed["origin"], fixed["error"]) == (["static"], "built in", None)


def test_list_on_a_terminal(on_a_terminal):
    """A table, on a real pseudo-terminal of 80 columns."""
    text = on_a_terminal(80, "list")
    assert "┃" in text
    assert "increment_period=2000" in text
    assert "loss_scale_value=(required)" in text


@pytest.mark.parametrize("name", ["2.0", "2.21", "tf_keras"])
def test_schema(name):
    """It prints the schema of the package, for that target."""
    code, output = run("schema", "--target", name)
    assert (code, json.loads(output)) == (0, document_schema(target(name)))


def test_version():
    """The version of the installed package."""
    import scalekeeper

    assert run("--version") == (0, f"scalekeeper, version {scalekeeper.__version__}\n")


def test_help_names_the_commands():
    """Short help too."""
    code, output = run("-h")
    assert code == 0
    assert run("--help") == (code, output)
    assert [line.split()[0] for line in output.partition("Commands:\n")[2].splitlines()] == [
        "check",
        "completion",
        "convert",
        "demo",
        "doctor",
        "inspect",
        "list",
        "recommend",
        "schema",
        "show",
        "simulate",
        "validate",
        "verify",
    ]


def test_unknown_command():
    """Exit code 2."""
    assert run("nonsense")[0] == 2
