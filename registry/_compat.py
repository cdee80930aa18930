"""What differs between the Python versions that the package runs on, in one place."""

import sys

if sys.version_info >= (3, 8):
    from importlib import metadata as metadata
else:  # Python 3.7, where TensorFlow 2.0 and 2.1 live
    import importlib_metadata as metadata  # noqa: F401
