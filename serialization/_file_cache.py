"""Files that are opened once for many reads: who reads a lot says so, and nothing stays open after that."""

from typing import Any, Callable, Dict, Hashable, Iterator

import contextlib
import threading

_local = threading.local()  # files: what is open, by whoever opened it; stack: what closes it


@contextlib.contextmanager
def kept_open() -> Iterator[None]:
    """Within this, a file that is read again is not opened again. It works as a decorator, too."""
    if getattr(_local, "files", None) is not None:
        yield
        return
    with contextlib.ExitStack() as stack:
        _local.files, _local.stack = {}, stack
        try:
            yield
        finally:
            _local.files = None


@contextlib.contextmanager
def opened(key: Hashable, opener: Callable[[], Any]) -> Iterator[Any]:
    """An open file: closed at the end, or when ``kept_open`` ends."""
    files: Any = getattr(_local, "files", None)
    if files is None:
        with opener() as file:
            yield file
        return
    known: Dict[Hashable, Any] = files
    if key not in known:
        known[key] = _local.stack.enter_context(opener())
    yield known[key]
