"""Commands speak for themselves: what TensorFlow tells its log is not for them."""

from typing import Iterator

import contextlib
import logging
import os
import sys
import tempfile
import warnings


def quiet_tensorflow() -> None:
    """Before TensorFlow is imported: errors only, unless the user has chosen otherwise."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for name in ("tensorflow", "absl"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.simplefilter("ignore")


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Where TensorFlow runs: some versions write to standard error before they look for how much they are to say."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as nobody:
        kept = os.dup(2)
        os.dup2(nobody.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
