"""No command needs a network, and none asks for one."""

import json
import subprocess
import sys

import pytest

from scalekeeper_test_support.repository import repository_path

NEED_TENSORFLOW = {"convert", "demo", "doctor"}  # compat_tests/reliability/test_no_network.py runs them


def answer_of(script, *arguments):
    command = [sys.executable, "-W", "ignore", repository_path("tests", "supply", script), *map(str, arguments)]
    return json.loads(subprocess.check_output(command).decode().splitlines()[-1])


def test_no_subcommand_asks_for_a_network(tmp_path):
    """Each is run where there is none, and none is missed."""
    answer = answer_of("without_network.py", tmp_path)
    assert answer["tried"] == []
    assert set(answer["done"]) | NEED_TENSORFLOW == set(answer["all"])


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Python's own sockets are all that is watched")
def test_asking_is_noticed():
    """Python is refused; and what goes past Python fails and is counted, where the system has networks to give away."""
    answer = answer_of("use_network.py")
    assert answer["refused"] == [True, True, True, True]
    assert answer["local sockets"] == 2
    assert answer["tried by Python"] == 4
    if answer["kernel"]:
        assert (answer["connected"], answer["tried past Python"]) == (-1, 1)
