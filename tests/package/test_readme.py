"""The README's two commands are the ones that are really run."""

import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def read(name):
    with open(os.path.join(ROOT, *name.split("/")), encoding="utf-8") as stream:
        return stream.read()


def test_ci_runs_the_readmes_test_command():
    """The last line of .ci/run stands in the README as it is."""
    command = read(".ci/run").strip().splitlines()[-1]
    assert command == "python -m pip install tox && python -m tox"
    assert f"```console\n{command}\n```" in read("README.md")


def test_the_other_command_is_tried_in_every_install_environment():
    """`pip install .` and the command after it are what tox runs on each Python."""
    assert "```console\npip install . && scalekeeper validate examples/train.yaml\n```" in read("README.md")
    assert "python -m pip install .\n    scalekeeper validate examples/train.yaml\n" in read("tox.ini")
