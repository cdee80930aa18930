"""Commands speak for themselves: what TensorFlow tells its log is not for them."""

import logging
import os
import warnings


def quiet_tensorflow() -> None:
    """Before TensorFlow is imported: errors only, unless the user has chosen otherwise."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for name in ("tensorflow", "absl"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
