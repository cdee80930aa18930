"""The ``scalekeeper`` command."""

from ._isolation import run
from ._main import main

__all__ = ["main", "run"]
