"""``python -m scalekeeper``, for where scripts are not on the path."""

from .cli import run

run()
