"""``python -m scalekeeper.cli``, for where scripts are not on the path."""

from .main import main

main(prog_name="scalekeeper")
