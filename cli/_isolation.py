"""Run a command in a process of its own: HDF5's library may crash or hang on a broken file, and a command must not."""

import os
import signal
import sys

import click

from ._main import main

_LOOKING_INTO_FILES = ("inspect", "convert")


def run() -> None:
    """The command. Those that look into files run in a copy of this process, which says so if the copy dies."""
    if len(sys.argv) > 1 and sys.argv[1] in _LOOKING_INTO_FILES and hasattr(os, "fork"):
        copy = os.fork()  # before anything large is imported
        if copy:
            sys.exit(_ended(copy))
        from ..serialization import _resource_limits

        _resource_limits.enable_process_limits()
    main(prog_name="scalekeeper")


def _ended(process: int) -> int:
    """The exit code of a process; 1 and a message if a signal has ended it."""
    while True:
        try:
            _, status = os.waitpid(process, 0)
            break
        except KeyboardInterrupt:  # the copy has got it too, and ends
            continue
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    name = signal.Signals(os.WTERMSIG(status)).name
    what = "goes in circles" if name == "SIGVTALRM" else "has crashed"
    click.echo(f"Error: a library {what} on the file ({name}): it is broken, and nothing was made of it", err=True)
    return 1
