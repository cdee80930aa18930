"""The command as a person sees it."""

import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pseudo_terminal


@pytest.fixture
def on_a_terminal():
    """``on_a_terminal(80, "list")`` gives what the command shows on a real pseudo-terminal of so many columns."""

    def run(columns, *arguments):
        code, text = pseudo_terminal.run(columns, *arguments)
        assert code == 0
        return text

    return run
