"""The command as a person sees it."""

import pytest

from scalekeeper_test_support import pseudo_terminal


@pytest.fixture
def on_a_terminal():
    """``on_a_terminal(80, "list")`` gives what the command shows on a real pseudo-terminal of so many columns.

    What is given by name are environment variables.
    """

    def run(columns, *arguments, **variables):
        code, text = pseudo_terminal.run(columns, *arguments, **variables)
        assert code == 0
        return text

    return run
