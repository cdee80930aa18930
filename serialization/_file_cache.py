"""Files that stay open while many of their arrays are read."""

from typing import Any, Callable, Dict, Hashable, Iterator

import contextlib
import threading

_local = threading.local()  # files: the open files by key; stack: closes them


@contextlib.contextmanager
def keep_files_open() -> Iterator[None]:
    """Open each file at most once within this context. Also works as a decorator."""
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
def open_file(key: Hashable, opener: Callable[[], Any]) -> Iterator[Any]:
    """Yield an open file, which is closed at the end of this context or of ``keep_files_open``."""
    files: Any = getattr(_local, "files", None)
    if files is None:
        with opener() as file:
            yield file
        return
    cache: Dict[Hashable, Any] = files
    if key not in cache:
        cache[key] = _local.stack.enter_context(opener())
    yield cache[key]
