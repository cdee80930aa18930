"""The tests of this folder share a small model."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
