"""The tests of this folder are short versions of the scripts in it."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
