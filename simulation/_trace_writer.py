"""Recording a trace while a run goes on."""

from typing import Any, Mapping, Optional, Type

import array
import os
import time
import types

import numpy as np

from ..registry.errors import ArgumentError
from ._trace_files import Path, read_trace, write_trace
from ._traces import FLOAT16_LARGEST, MOST_STEPS, Trace

_SHARE_OF_TIME = 0.02  # spent on writing, at most; a longer trace takes longer to write, and is written less often


class TraceWriter:
    """Collects steps and writes them to a ``.csv`` or ``.npz`` file, whole each time, so that a reader never sees half.

    It writes when it is closed, and meanwhile every ``flush_seconds``, but never so often that writing would take more
    than a fiftieth of the time: so what a killed run loses are its last steps. A step takes 8 bytes of memory, 12 with
    zero shares; after ``most_steps`` it ``is_full``, and takes no more. ``resume`` goes on with what is in the file.

    >>> import os, tempfile
    >>> from scalekeeper import read_trace
    >>> from scalekeeper.simulation import TraceWriter
    >>> path = os.path.join(tempfile.mkdtemp(), "run.csv")
    >>> with TraceWriter(path, facts={"model": "small"}) as writer:
    ...     writer.append(0.25, 1024.0)
    ...     writer.extend([0.5, float("inf")], [1024.0, 2048.0])
    >>> read_trace(path).largest.tolist()
    [0.25, 0.5, inf]
    """

    def __init__(
        self,
        path: Path,
        *,
        facts: Optional[Mapping[str, Any]] = None,
        limit: float = FLOAT16_LARGEST,
        flush_seconds: float = 60.0,
        most_steps: int = MOST_STEPS,
        resume: bool = False,
    ) -> None:
        self.path = os.fspath(path)
        if os.path.splitext(self.path)[1].lower() not in (".csv", ".npz"):
            raise ArgumentError(f"{self.path!r} must end with .csv or .npz: that says how the trace is written")
        self._facts, self._limit = dict(facts or {}), limit
        self._flush_seconds = self._pause = flush_seconds
        self._most_steps = min(most_steps, MOST_STEPS)
        self._largest, self._scale, self._zero_share = array.array("f"), array.array("f"), array.array("f")
        self._last = time.monotonic()
        if resume and os.path.exists(self.path):
            self._take(read_trace(self.path))
        self._written = len(self)

    def _take(self, trace: Trace) -> None:
        self._facts, self._limit = {**trace.facts, **self._facts}, trace.limit
        self.extend(trace.largest, trace.scale, trace.zero_share)

    def __len__(self) -> int:
        return len(self._largest)

    @property
    def is_full(self) -> bool:
        """Whether no more steps are taken."""
        return len(self) >= self._most_steps

    def append(self, largest: Any, scale: Any, zero_share: Any = None) -> None:
        """Add a step: the largest magnitude of its unscaled gradients (not finite: inf or NaN), and its scale."""
        self.extend([largest], [scale], None if zero_share is None else [zero_share])

    def extend(self, largest: Any, scale: Any, zero_share: Any = None) -> None:
        """Add many steps. Either every step of a trace has a share of zeros, or none has."""
        steps = Trace(largest, scale, zero_share, limit=self._limit)  # which checks them
        if len(steps) == 0:
            return
        if len(self) and (zero_share is not None) != bool(self._zero_share):
            raise ArgumentError("either every step of a trace has a zero_share, or none has")
        left = self._most_steps - len(self)
        for kept, new in (
            (self._largest, steps.largest),
            (self._scale, steps.scale),
            (self._zero_share, steps.zero_share),
        ):
            if new is not None:
                kept.frombytes(new[:left].tobytes())
        if time.monotonic() - self._last >= self._pause:
            self.flush()

    def trace(self) -> Trace:
        """What was recorded so far."""
        share = np.array(self._zero_share, np.float32) if self._zero_share else None
        largest, scale = np.array(self._largest, np.float32), np.array(self._scale, np.float32)
        return Trace(largest, scale, share, limit=self._limit, facts=self._facts)

    def flush(self) -> None:
        """Write everything now."""
        began = time.monotonic()
        if self._written != len(self) or not os.path.exists(self.path):
            write_trace(self.trace(), self.path)
            self._written = len(self)
        self._last = time.monotonic()
        self._pause = max(self._flush_seconds, (self._last - began) / _SHARE_OF_TIME)

    close = flush  # nothing is held open in between

    def __enter__(self) -> "TraceWriter":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[types.TracebackType],
    ) -> None:
        self.flush()
