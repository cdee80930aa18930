"""``python -m scalekeeper.cli``, for where scripts are not on the path."""

from ._isolation import run

run()
