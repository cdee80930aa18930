"""``python -m scalekeeper.cli``, for where scripts are not on the path."""

from .isolation import run

run()
