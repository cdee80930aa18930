"""Differences between Python versions."""

import sys

if sys.version_info >= (3, 8):
    from importlib import metadata as metadata
else:  # Python 3.7, for TensorFlow 2.0 and 2.1
    import importlib_metadata as metadata  # noqa: F401
