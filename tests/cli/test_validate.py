"""scalekeeper validate, as a person and as a program would call it."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from scalekeeper.cli import main

GOOD = "optimizer: {name: adam, decay: 0.1}\nloss_scale: 128\n"
OLD_ONLY = ["--target", "2.0"]


def run(*arguments, stdin=None):
    result = CliRunner().invoke(main, ["validate", *map(str, arguments)], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


@pytest.fixture
def document(tmp_path):
    path = tmp_path / "train.yaml"
    path.write_text(GOOD)
    return path


def test_a_good_document(document):
    """Exit code 0, and a line that says what was found and for which TensorFlow."""
    expected = f"{document}: ok (adam with FixedLossScale, for TensorFlow 2.0.4, Keras 2.2.4-tf)\n"
    assert run(document, *OLD_ONLY) == (0, expected)


def test_a_wrong_document(document):
    """Exit code 1; the same file is wrong for another target."""
    code, output = run(document, "--target", "2.21")
    assert code == 1
    assert output.startswith(f"{document}:1:25: optimizer.decay: unknown parameter 'decay' of adam")


def test_every_file_is_checked(document, tmp_path):
    """One wrong file does not hide the others."""
    code, output = run(tmp_path / "absent.yaml", document, *OLD_ONLY)
    assert code == 1
    assert "absent.yaml: can't be read: No such file or directory" in output
    assert "train.yaml: ok" in output


def test_json_output(document, tmp_path):
    """For programs: each file, whether it is valid, and each problem with its place."""
    code, output = run(document, tmp_path / "absent.yaml", "--target", "2.21", "--json")
    result = json.loads(output)
    assert (code, result["target"]) == (1, "2.21-keras3")
    wrong, absent = result["files"]
    problem = wrong["problems"][0]
    assert (problem["line"], problem["column"], problem["path"]) == (1, 25, ["optimizer", "decay"])
    assert (problem["kind"], wrong["valid"]) == ("extra_forbidden", False)
    assert (absent["problems"][0]["line"], absent["problems"][0]["kind"]) == (None, "file")


def test_json_output_of_good_documents(document):
    """No problems, exit code 0."""
    code, output = run(document, "--json", *OLD_ONLY)
    assert (code, json.loads(output)["files"]) == (0, [{"file": str(document), "valid": True, "problems": []}])


@pytest.mark.parametrize("text", [GOOD, '{"optimizer":\t"sgd"}'])
def test_standard_input(text):
    """A dash reads what is piped in, YAML or JSON."""
    code, output = run("-", *OLD_ONLY, stdin=text)
    assert (code, output.startswith("-: ok")) == (0, True)


def test_errors_on_standard_input_are_named_so():
    """The place is in <stdin>."""
    code, output = run("-", stdin="optimizer: [")
    assert (code, output.startswith("<stdin>:1:")) == (1, True)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["x.yaml", "--target", "1.0"],
        ["x.yaml", "--allow", "*"],
        ["x.yaml", "--allow", ""],
        ["x.yaml", "--nonsense"],
    ],
)
def test_wrong_calls(arguments):
    """Exit code 2, with the usage and no traceback."""
    code, output = run(*arguments)
    assert code == 2
    assert output.startswith("Usage: ")


def test_allow_finds_classes_in_the_current_folder(tmp_path):
    """A user's own module beside the document is found once it is allowed, and is not touched before."""
    (tmp_path / "my_scales.py").write_text(
        "print('imported')\nfrom scalekeeper import DynamicLossScale\nclass Mine(DynamicLossScale): pass\n"
    )
    (tmp_path / "train.yaml").write_text("optimizer: sgd\nloss_scale: {name: 'my_scales:Mine', minimum: 2}\n")
    command = [sys.executable, "-m", "scalekeeper.cli", "validate", "train.yaml"]
    refused = subprocess.run(command, cwd=str(tmp_path), capture_output=True, text=True)
    assert refused.returncode == 1
    assert "--allow my_scales:Mine" in refused.stderr
    assert "imported" not in refused.stdout
    allowed = subprocess.run([*command, "--allow", "my_scales.*"], cwd=str(tmp_path), stdout=subprocess.PIPE, text=True)
    assert allowed.returncode == 0
    assert "ok (sgd with Mine" in allowed.stdout


def test_tensorflow_is_not_imported():
    """Checking a document imports neither TensorFlow nor Keras, wherever they are installed."""
    code = """
import sys
from scalekeeper.cli import main
try:
    main(["validate", "examples/train.yaml"])
except SystemExit as stop:
    print(stop.code, sorted({"tensorflow", "keras", "tf_keras"} & set(sys.modules)))
"""
    output = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert output.splitlines()[-1] == "0 []"
