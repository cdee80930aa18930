"""The ``scalekeeper`` command."""

from ._isolation import run as run
from ._main import main as main
