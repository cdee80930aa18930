"""Modules beside the tests, and those of the golden files."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in (HERE, os.path.join(os.path.dirname(HERE), "golden")):
    if folder not in sys.path:
        sys.path.append(folder)
