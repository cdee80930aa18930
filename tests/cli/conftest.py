"""The command as a person sees it."""

import os
import pty
import subprocess
import sys

import pytest


@pytest.fixture
def on_a_terminal():
    """``on_a_terminal(80, "list")`` gives what the command shows on a real pseudo-terminal of so many columns.

    What is given by name are environment variables.
    """

    def run(columns, *arguments, **variables):
        leader, follower = pty.openpty()
        environment = dict(os.environ, COLUMNS=str(columns), TERM="xterm", **variables)
        command = [sys.executable, "-m", "scalekeeper.cli", *arguments]
        output = b""
        with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment) as process:
            os.close(follower)
            while True:
                try:
                    chunk = os.read(leader, 65536)
                except OSError:  # the other end is closed
                    break
                if not chunk:
                    break
                output += chunk
        os.close(leader)
        assert process.returncode == 0
        return output.decode("utf-8")

    return run
