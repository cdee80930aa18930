"""Run the command as a person does: on a real pseudo-terminal."""

import os
import pty
import re
import subprocess
import sys

COLOURS = re.compile("\x1b\\[[0-9;]*m")
MOVEMENTS = re.compile("\x1b\\[[0-9;?]*[A-Za-z]|\r|\n")


def run(columns, *arguments, folder=None, **variables):
    """The exit code, and what the command shows where there are so many columns, with these environment variables."""
    leader, follower = pty.openpty()
    environment = dict(os.environ, COLUMNS=str(columns), TERM="xterm", **variables)
    command = [sys.executable, "-m", "scalekeeper.cli", *arguments]
    output = b""
    with subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env=environment, cwd=folder
    ) as process:
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
    return process.returncode, output.decode("utf-8")


def lines_of(text):
    """Return what stands in a line at some time, without colours and movements of the cursor."""
    return MOVEMENTS.split(COLOURS.sub("", text))
