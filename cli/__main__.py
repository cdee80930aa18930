"""``python -m scalekeeper.cli``: the command, if its script is not on the path."""

from ._isolation import run

run()
