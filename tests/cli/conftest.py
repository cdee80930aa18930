"""Run the command on a terminal."""

import pytest

from scalekeeper_test_support import pseudo_terminal


@pytest.fixture
def on_a_terminal():
    """``on_a_terminal(80, "list")`` returns the output of the command on a pseudo-terminal of 80 columns.

    Keyword arguments are environment variables.
    """

    def run(columns, *arguments, **variables):
        code, text = pseudo_terminal.run(columns, *arguments, **variables)
        assert code == 0
        return text

    return run
