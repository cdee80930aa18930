"""Suppression of the log output of TensorFlow in commands."""

from typing import Iterator, TextIO

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
def silenced() -> Iterator[TextIO]:
    """Discard standard error: some versions of TensorFlow write to it before they read the log level.

    Yields a stream that still writes to it.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as sink:
        kept = os.dup(2)
        os.dup2(sink.fileno(), 2)
        try:
            with open(kept, "w", encoding=sys.stderr.encoding, errors="replace", closefd=False) as stream:
                yield stream
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
