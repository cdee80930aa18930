"""The tests of this folder share what they read from pyproject.toml and from the installation."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
