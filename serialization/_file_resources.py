"""The cost of reading a file, with limits for untrusted files; and files that stay open while they are read."""

from typing import Any, Callable, Dict, Hashable, Iterator, List, Optional

import contextlib
import json
import re
import signal
import threading

SMALL_SIZE = 64 * 2**20  # bytes that a part of a file may always unpack to
_MAX_RATIO = 200  # no variable and no model compresses better than this
MAX_JSON_LENGTH = 16 * 2**20  # characters; the largest models need a tenth of it
MAX_JSON_VALUES = 1_000_000  # each takes many times the memory of its text
MAX_JSON_DEPTH = 200  # levels; each nested model adds four
MAX_GROUP_DEPTH = 100  # levels of HDF5 groups; each nested model adds two
_MAX_CALL_SECONDS = 1.0  # of CPU time, for an HDF5 call that takes microseconds
_MAX_CALL_MEMORY = 300 * 2**20  # bytes, for names, shapes and descriptions
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_local = threading.local()  # files: the open files by key; stack: closes them


def max_unpacked_size(stored: int) -> int:
    """Return the largest size that ``stored`` bytes of a file may unpack to."""
    return max(SMALL_SIZE, _MAX_RATIO * stored)


def parse_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: The text is not JSON, is too large or too deep, or holds half of a surrogate pair, which can be
            neither printed nor written.
    """
    if len(text) > MAX_JSON_LENGTH or sum(map(text.count, ",[{")) > MAX_JSON_VALUES:
        raise ValueError("larger than the configuration of any model")
    try:
        text.encode("utf-8")
        value = json.loads(text)
        _require_shallow(value)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_JSON_DEPTH} levels") from None
    return value


def _require_shallow(value: Any) -> None:
    level: List[Any] = [value]
    for _ in range(MAX_JSON_DEPTH):
        inside = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, (dict, list))]
        level = [child for children in inside for child in children]
        if not level:
            return
    raise ValueError(f"nested deeper than {MAX_JSON_DEPTH} levels")


class _ProcessLimits:
    """Limits on CPU time and memory for the duration of an HDF5 call.

    On a corrupt file the HDF5 library may loop forever or allocate all memory, and Python cannot interrupt it. The
    limits end the process, or make the allocation fail. They are only for a process that may be lost: the fork in
    which the command line reads files. Reading an array is not limited.
    """

    def __init__(self) -> None:
        import resource  # not available on Windows

        self._resource = resource
        self._unlimited = resource.getrlimit(resource.RLIMIT_AS)
        self._limited = self._unlimited

    def start(self) -> None:
        """Measure the memory in use; the limit is on top of it."""
        try:
            with open("/proc/self/statm") as stream:
                pages = int(stream.read().split()[0])
        except OSError:  # not Linux: memory is not limited
            return
        most = pages * self._resource.getpagesize() + _MAX_CALL_MEMORY
        soft, hard = self._unlimited
        self._limited = (most if soft == self._resource.RLIM_INFINITY else min(most, soft), hard)

    def apply(self) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, _MAX_CALL_SECONDS)
        self._resource.setrlimit(self._resource.RLIMIT_AS, self._limited)

    def lift(self) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        self._resource.setrlimit(self._resource.RLIMIT_AS, self._unlimited)


_limits: Optional[_ProcessLimits] = None


def enable_process_limits() -> None:
    """Limit every HDF5 call of this process: a slow one ends it with SIGVTALRM, a large one fails."""
    global _limits
    _limits = _ProcessLimits()


def start_reading() -> None:
    """Start the limits before an HDF5 file is opened."""
    if _limits is not None:
        _limits.start()
        _limits.apply()


def start_call() -> None:
    """Restart the limits for the next HDF5 call."""
    if _limits is not None:
        _limits.apply()


def stop() -> None:
    """Lift the limits: the following work may take long and much memory."""
    if _limits is not None:
        _limits.lift()


# Open files


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
