"""scalekeeper list, scalekeeper schema and the command itself."""

import json
import re

import pytest
from click.testing import CliRunner

from scalekeeper import document_schema
from scalekeeper.cli import main
from scalekeeper.registry import target
from scalekeeper_test_support import pseudo_terminal


def run(*arguments):
    result = CliRunner().invoke(main, arguments)
    return result.exit_code, result.output


def test_list_in_a_pipe():
    """One line for each policy, tab-separated: names, purpose, origin."""
    code, output = run("list")
    rows = {row.split("\t")[0]: row.split("\t")[1:] for row in output.splitlines()}
    assert code == 0
    assert rows["dynamic"] == ["float16 in general: TensorFlow's own rule", "built in"]
    assert rows["dynamic/onnxruntime"] == ["ONNX Runtime's DynamicLossScaler", "built in"]
    assert rows["dynamic/apex"] == ["NVIDIA Apex's amp (apex/amp/scaler.py)", "built in"]
    assert rows["fixed, static"] == ["A known loss scale, the same at each step", "built in"]
    assert sum(name.startswith("dynamic/") for name in rows) == 14


def test_list_names_the_purpose_and_the_origin_of_a_plugin(tmp_path, monkeypatch):
    """The first sentence of the description, or of the docstring; and why a plugin can't be loaded."""
    from scalekeeper import DynamicLossScale, registry

    class Mine(DynamicLossScale):
        """Mine alone. More of it.

        And more."""

    with registry.loss_scales.temporary_registration("mine", Mine):
        _, output = run("list")
    (row,) = (row.split("\t") for row in output.splitlines() if row.startswith("mine\t"))
    assert (row[1], row[2].rpartition(":")[0]) == ("Mine alone", __file__)
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[scalekeeper.loss_scales]\nbroken = not_there:Mine\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry.loss_scales, "_announced", None)
    (row,) = (row.split("\t") for row in run("list")[1].splitlines() if row.startswith("broken\t"))
    assert "not_there" in row[1]
    assert row[2] == "broken 1.0"
    code, output = run("list", "broken")
    assert (code, "not_there" in output) == (0, True)


def test_list_describes_the_parameters_of_a_policy():
    """Each with its default and what it is, by name or alias; several in the order of the call."""
    code, output = run("list", "dynamic/apex", "static")
    assert code == 0
    first, second = output.split("\n\nfixed, static (built in)\n")
    assert first.startswith("dynamic/apex (built in)\nNVIDIA Apex's amp (apex/amp/scaler.py). It has no floor")
    rows = [re.split(" {2,}", line.strip()) for line in (first + "\n" + second).splitlines()]
    assert ["maximum", "16777216.0"] in [row[:2] for row in rows]
    assert ["loss_scale_value", "(required)", "The loss scale."] in rows
    assert ["skip_nonfinite", "false"] in [row[:2] for row in rows]


def test_list_of_an_unknown_name():
    """Exit code 1, with the closest name."""
    code, output = run("list", "dynamc")
    assert code == 1
    assert "did you mean 'dynamic'" in output


def test_list_for_programs():
    """The same as JSON."""
    code, output = run("list", "--json")
    rows = {row["name"]: row for row in json.loads(output)}
    dynamic, fixed = rows["dynamic"], rows["fixed"]
    assert (code, dynamic["name"], dynamic["parameters"]["maximum"]) == (0, "dynamic", None)
    assert (fixed["aliases"], fixed["origin"], fixed["error"]) == (["static"], "built in", None)
    assert json.loads(run("list", "static", "--json")[1]) == [fixed]


def test_list_on_a_terminal(on_a_terminal):
    """One line for each built-in policy, two headings and a hint, on a real pseudo-terminal of 80 columns."""
    lines = pseudo_terminal.COLOURS.sub("", on_a_terminal(80, "list")).splitlines()
    assert lines[0] == "Policies"
    policies = [line for line in lines if line.startswith("  ")]
    assert len(policies) == len(json.loads(run("list", "--json")[1])) == len(lines) - 5
    assert re.search("^  dynamic +float16 in general: TensorFlow's own rule *$", "\n".join(policies), re.MULTILINE)
    assert lines[-1] == "scalekeeper list NAME describes the parameters of a policy."


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
