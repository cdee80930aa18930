"""The ``scalekeeper`` command."""

from .isolation import run as run
from .main import main as main
