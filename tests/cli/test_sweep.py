"""scalekeeper simulate --sweep, as a person and as a program would call it."""

import csv
import io
import json

import pytest
from click.testing import CliRunner

from scalekeeper import sweep
from scalekeeper.cli import main
from scalekeeper.simulation import overflowing_above

GRID = ["--sweep", "loss_scale.increment_period=100,500", "--sweep", "loss_scale.backoff_factor=0.5,0.25"]
MANY = [f"--sweep=loss_scale.{name}=" + ",".join(map(str, range(1, 101))) for name in ("minimum", "hysteresis")]
GRADIENTS = ["--overflow-above", "20000", "--steps", "1000"]


def run(*arguments):
    result = CliRunner().invoke(main, ["simulate", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def test_a_table_with_the_best():
    """A row for each combination, in order, and the two best; the policy is dynamic if none is given."""
    code, output = run(*GRID, *GRADIENTS)
    lines = output.splitlines()
    assert (code, lines[0]) == (0, "overflows above a scale of 20000, 1,000 steps")
    assert [line.split()[:3] for line in lines[2:6]] == [
        ["100", "0.5", "10"],
        ["100", "0.25", "5"],
        ["500", "0.5", "2"],
        ["500", "0.25", "1"],
    ]
    assert lines[6].startswith("best by steps lost: increment_period=500, backoff_factor=0.25 (1 lost at a mean")
    assert lines[7].startswith(
        "best by mean scale: increment_period=100, backoff_factor=0.5 (10 lost at a mean scale of 2^14.01)"
    )
    assert run("dynamic", *GRID, *GRADIENTS) == (code, output)


def test_a_table_on_a_terminal(on_a_terminal):
    """On a real pseudo-terminal, with the progress bar of many steps."""
    text = on_a_terminal(140, "simulate", *GRID, "--steps", "60000")
    assert "best by mean scale" in text


def test_csv_and_json():
    """The values of the parameters and the figures of each combination."""
    code, output = run("{name: dynamic/apex, minimum: 2}", *GRID, *GRADIENTS, "--csv")
    table = list(csv.DictReader(io.StringIO(output)))
    assert (code, [row["increment_period"] for row in table]) == (0, ["100", "100", "500", "500"])
    code, output = run("{name: dynamic/apex, minimum: 2}", *GRID, *GRADIENTS, "--json")
    report = json.loads(output)
    axes = {"increment_period": [100, 500], "backoff_factor": [0.5, 0.25]}
    expected = sweep({"name": "dynamic/apex", "minimum": 2}, overflowing_above(20000, 1000), axes)
    assert [each["steps_lost"] for each in report["points"]] == [each.steps_lost for each in expected.points]
    assert [int(row["steps_lost"]) for row in table] == [each.steps_lost for each in expected.points]
    assert report["best"] == {
        "steps_lost": expected.best_by_steps_lost.values,
        "mean_scale": expected.best_by_mean_scale.values,
    }
    assert report["axes"] == axes


def test_a_document_with_overrides(tmp_path):
    """The document's loss scale, changed by --set, then by each combination."""
    path = tmp_path / "train.yaml"
    path.write_text("optimizer: adam\nloss_scale: dynamic\n")
    code, output = run(
        path, "--set", "loss_scale.minimum=1024", *GRADIENTS, "--sweep", "loss_scale.multiplier=2,4", "--json"
    )
    report = json.loads(output)
    assert (code, [each["floor"] for each in report["points"]]) == (0, [1024.0, 1024.0])


def test_values_of_any_kind():
    """Names, texts, null and lists."""
    code, output = run("--sweep", "loss_scale.name=dynamic,dynamic/apex,null_", *GRADIENTS)
    assert (code, output.startswith("Error: <sweep 1>:1:38: loss_scale.name: unknown loss scale 'null_'")) == (1, True)
    code, output = run("--sweep", "loss_scale.maximum=null,1e6", *GRADIENTS, "--json")
    assert (code, json.loads(output)["axes"]) == (0, {"maximum": [None, 1e6]})
    scheduled = "{name: scheduled, values: [8, 16], boundaries: [5]}"
    code, output = run(
        scheduled, "--sweep", "loss_scale.values=[1,2],[4,8]", "--sweep", "loss_scale.boundaries[0]=5,6", *GRADIENTS
    )
    assert (code, output.splitlines()[2].split()[:3]) == (0, ["[1,", "2]", "5"])


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_plot(tmp_path, ending):
    """Written, and said so."""
    path = tmp_path / f"out.{ending}"
    code, output = run(*GRID, *GRADIENTS, "--plot", path)
    assert (code, output.splitlines()[-1]) == (0, f"drawn: {path}")
    assert path.stat().st_size > 1000


def test_one_wrong_combination_stops_all(tmp_path):
    """Exit code 1, the message of the combination, and no table or plot of the others."""
    path = tmp_path / "out.png"
    code, output = run("--sweep", "loss_scale.minimum=1,1e6", "--set", "loss_scale.maximum=65536", "--plot", path)
    assert (code, len(output.splitlines()), path.exists()) == (1, 3, False)
    assert output.startswith("Error: <sweep 1>:1:22: loss_scale.minimum: ")


@pytest.mark.parametrize("policy", [[], ["dynamic"], ["128"]])
def test_an_error_without_a_place_in_the_sweep(policy):
    """It points into the policy: that of the command line, or the default one."""
    code, output = run(*policy, "--sweep", "loss_scale.name=scheduled")
    text = policy[0] if policy else "dynamic"
    assert (code, output.splitlines()[0].partition(": loss_scale")[0]) == (1, "Error: POLICY:1:1")
    assert f"   1 | {text}\n     | {'^' * len(text)}" in output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "Missing argument"),
        (["--sweep", "loss_scale.minimum"], "an override needs '='"),
        (["--sweep", "loss_scale.minimum="], "values are missing"),
        (["--sweep", "loss_scale.minimum=1,[2"], "not YAML"),
        (["--sweep", "loss_scale.minimum=1]"], "not YAML"),
        (["--sweep", "loss_scale.minimum=1,1"], "1 is there twice"),
        (["--sweep", "minimum=1"], "write loss_scale.minimum"),
        (["--sweep", "loss_scale=dynamic,log_max"], "write loss_scale.name=dynamic,log_max to compare policies"),
        (["--sweep", "optimizer.momentum=0.5"], "a simulation, such as loss_scale.increment_period"),
        (["--sweep", "loss_scale.minimum=1", "--sweep", "loss_scale.minimum=2"], "loss_scale.minimum is there twice"),
        ([*MANY, "--sweep", "loss_scale.multiplier=2,3"], "20,000 combinations are more than 10,000"),
        (["--sweep", "loss_scale.minimum=" + "1," * 10_000], "more than 10000 values"),
        (["--sweep", "loss_scale.minimum=1", "--compare", "dynamic"], "exclude each other"),
        (["--sweep", "loss_scale.minimum=1", "--plot", "out.html"], "must end with .png or .svg"),
        (
            [
                "--sweep",
                "loss_scale.minimum=1",
                "--sweep",
                "loss_scale.maximum=null",
                "--sweep",
                "loss_scale.multiplier=2",
                "--plot",
                "out.png",
            ],
            "one or two parameters, not 3",
        ),
    ],
)
def test_wrong_calls(arguments, expected):
    """Exit code 2, with the usage and what is wrong."""
    code, output = run(*arguments)
    assert (code, output[:7]) == (2, "Usage: ")
    assert expected in " ".join(output.split())
