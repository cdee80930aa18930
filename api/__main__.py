"""``python -m scalekeeper``: the command, if its script is not on the path."""

from .cli import run

run()
