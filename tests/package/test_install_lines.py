"""The install lines of docs/installing.md are those that compat_tests/installs.py has run."""

import datetime

import pytest

from scalekeeper_test_support.repository import load_script, repository_path
from scalekeeper_test_support.tensorflow_versions import TENSORFLOWS

INSTALLS = load_script("compat_tests/installs.py")
LINES = INSTALLS.lines_of_page()
RESULTS = {(each["tensorflow"], each["python"], each["command"]): each for each in INSTALLS.recorded()}


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_a_line_has_passed(line):
    """It was run as it stands on the page: TensorFlow was imported, and the demo succeeded."""
    result = RESULTS[line]
    assert result["failed"] is None
    assert result["keras"]
    assert datetime.date.fromisoformat(result["date"]) <= datetime.date.today()


def test_no_result_is_left_over():
    """Each result belongs to a line of the page."""
    assert set(RESULTS) == set(LINES)


def test_every_tensorflow_of_the_matrix_has_a_line_for_pip():
    """On the Python of its environment; the oldest and the newest TensorFlow that need it with tf_keras, too."""
    lines = [line for line in LINES if line.command.startswith("pip install") and "[tensorflow]" not in line.command]
    plain = {line.tensorflow: line.python for line in lines if "tf_keras" not in line.command}
    with_tf_keras = {line.tensorflow: line.python for line in lines if "tf_keras" in line.command}
    assert plain.pop("2.12.0") == TENSORFLOWS["2.12.1"]  # the patch release that needs one command only
    assert plain == TENSORFLOWS
    assert with_tf_keras == {name: TENSORFLOWS[name] for name in ("2.16.2", "2.21.0")}


def test_two_commands_are_needed_where_pip_finds_a_conflict():
    """pip refused to install both in one command, because of typing-extensions; uv can."""
    double = [line for line in LINES if not line.is_one_command]
    assert [line.tensorflow for line in double] == ["2.4.4", "2.5.3", "2.6.5", "2.12.1", "2.13.1"]
    for line in double:
        first, second = RESULTS[line]["conflict"].split("; ")
        assert first.startswith(f"tensorflow-cpu {line.tensorflow} depends on typing-extensions")
        assert second.endswith("depends on typing-extensions<5 and >=4.6.1")
    assert [line.tensorflow for line in LINES if line.command.startswith("uv ")] == [each.tensorflow for each in double]


def test_the_lines_install_the_checkout():
    """There is no release yet; each line installs this folder, and the TensorFlow of its row."""
    for line in LINES:
        assert line.command.split()[-1] in (".", '".[plot]"', '".[tensorflow]"')
        assert f"=={line.tensorflow}" in line.command or line.command == 'pip install ".[tensorflow]"'


def test_every_python_has_a_line_for_the_newest_tensorflow():
    """The extra installs a TensorFlow on each Python that scalekeeper supports."""
    pythons = [line.python for line in LINES if line.command == 'pip install ".[tensorflow]"']
    assert pythons == [f"3.{minor}" for minor in range(7, 14)]


def test_the_override_is_our_own_requirement():
    """The file for uv demands of typing-extensions what pyproject.toml demands."""
    from scalekeeper_test_support.dependencies import bound, declared

    with open(repository_path("docs", "overrides.txt"), encoding="utf-8") as stream:
        (line,) = (line.strip() for line in stream if not line.startswith("#"))
    assert line == "typing-extensions>={}".format(bound(declared()["typing-extensions"], ">="))
