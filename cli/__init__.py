"""The ``scalekeeper`` command."""

from .main import main as main
