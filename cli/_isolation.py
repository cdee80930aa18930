"""Isolation of commands that read files in a child process, because HDF5 may crash or hang on a corrupt file."""

import os
import signal
import sys

import click

from ._main import main

_READERS = ("inspect", "convert", "doctor", "verify")


def run() -> None:
    """Run the ``scalekeeper`` command with the arguments of the process, and end the process.

    Commands that read files run in a fork, whose crash becomes an error message.

    Example:
        >>> import sys
        >>> from unittest import mock
        >>> from scalekeeper.cli import run
        >>> with mock.patch.object(sys, "argv", ["scalekeeper", "--version"]):
        ...     run()
        Traceback (most recent call last):
        ...
        SystemExit: 0
    """
    if len(sys.argv) > 1 and sys.argv[1] in _READERS and hasattr(os, "fork"):
        copy = os.fork()  # before large imports
        if copy:
            sys.exit(_ended(copy))
        from ..serialization import _file_resources

        _file_resources.enable_process_limits()
    main(prog_name="scalekeeper")


def _ended(process: int) -> int:
    """Return the exit code of a process; print a message and return 1 if a signal ended it."""
    while True:
        try:
            _, status = os.waitpid(process, 0)
            break
        except KeyboardInterrupt:  # the child gets it too, and ends
            continue
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    name = signal.Signals(os.WTERMSIG(status)).name
    what = "did not finish" if name == "SIGVTALRM" else "crashed"
    click.echo(f"Error: a library {what} reading the file ({name}): it is corrupt, and nothing was written", err=True)
    return 1
