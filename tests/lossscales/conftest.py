"""Tests of policies share the published rules of other libraries, which lie beside them."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
