"""Files that Keras's own ``model.save`` and ``ModelCheckpoint`` write: what an optimizer can add to them.

Up to 2.15 and in tf_keras, Keras leaves the loss scale's state out of H5 and .keras files. It writes what
``get_config`` returns, and ignores unknown keys beside the class name and the configuration of the inner optimizer, so
the scalekeeper record has a place there. It is added only while Keras writes such a file: a configuration has no state
otherwise.
"""

from typing import Any, Dict, Iterator, Mapping, Optional

import contextlib
import sys
import threading

from .keras._optimizer_config import inner_config
from .training_state import LISTED

KEY = "scalekeeper"  # beside class_name and config of the inner optimizer
# function that writes a file → the format; a function of this name outside Keras's modules does not count
_WRITERS = {
    ("hdf5_format", "save_model_to_hdf5"): "h5",
    ("legacy_h5_format", "save_model_to_hdf5"): "h5",
    ("saving_lib", "save_model"): "keras",
    ("saving_lib", "_save_model_to_fileobj"): "keras",
}
_MOST_FRAMES = 40  # between a writer and get_config there are at most 12
_local = threading.local()


@contextlib.contextmanager
def by_scalekeeper() -> Iterator[None]:
    """Mark that scalekeeper adds its record to what Keras saves in the block."""
    before = getattr(_local, "is_own", False)
    _local.is_own = True
    try:
        yield
    finally:
        _local.is_own = before


def format_in_progress() -> Optional[str]:
    """Return the format of the file that Keras is writing without scalekeeper; None if it writes none.

    Keras has no hook for this. The functions of its last releases that write files are found by name on the stack.
    """
    frame: Any = None if getattr(_local, "is_own", False) else sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return None
        module = frame.f_globals.get("__name__", "").rpartition(".")[2]
        if (module, frame.f_code.co_name) in _WRITERS:
            return _WRITERS[module, frame.f_code.co_name]
        frame = frame.f_back
    return None


def take_record_in_config(config: Optional[Mapping[str, Any]], count: int) -> Optional[Dict[str, Any]]:
    """Remove the record from the configuration of an optimizer in a file, and return it; None if there is none.

    Args:
        config: The configuration.
        count: How many variables of the optimizer Keras has written: of legacy ones it writes none to a .keras file.
    """
    inner = inner_config(config)
    record: Optional[Dict[str, Any]] = inner.pop(KEY, None) if isinstance(inner, dict) else None
    if isinstance(record, dict) and len(record.get(LISTED) or ()) != count:
        record.pop(LISTED, None)
    return record
