"""Suppression of the log output of TensorFlow in commands."""

from typing import Iterator

import contextlib
import logging
import os
import sys
import tempfile
import warnings


def quiet_tensorflow() -> None:
    """Set the log level to errors, unless the user has set it. Call this before TensorFlow is imported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for name in ("tensorflow", "absl"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.simplefilter("ignore")


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Discard standard error: some versions of TensorFlow write to it before they read the log level."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as sink:
        kept = os.dup(2)
        os.dup2(sink.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
