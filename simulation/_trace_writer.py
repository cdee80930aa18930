"""A writer that records a trace during a run."""

from typing import Any, Mapping, Optional, Type

import array
import os
import time
import types

import numpy as np

from ..registry.errors import ArgumentError
from ._trace_files import Path, read_trace, write_trace
from ._traces import FLOAT16_LARGEST, MOST_STEPS, Trace

_SHARE_OF_TIME = 0.02  # spent on writing, at most


class TraceWriter:
    """A writer of a ``.csv`` or ``.npz`` file that replaces the whole file atomically at each flush.

    It flushes when it is closed and every ``flush_seconds``, but spends at most 2 % of the time on writing. A killed
    run loses its last steps. A step takes 8 bytes of memory, 12 with zero shares.

    Args:
        path: The file. Its extension decides the format.
        facts: Facts about the run, as plain values for JSON.
        limit: The largest representable gradient.
        flush_seconds: The shortest time between two flushes.
        most_steps: The number of steps after which the writer ``is_full`` and ignores further steps.
        resume: Whether to continue the trace in the file, if it exists.

    Raises:
        ArgumentError: The extension is neither ``.csv`` nor ``.npz``.

    Example:
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
            raise ArgumentError(f"{self.path!r} must end with .csv or .npz")
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
        """Whether the writer ignores further steps."""
        return len(self) >= self._most_steps

    def append(self, largest: Any, scale: Any, zero_share: Any = None) -> None:
        """Add a step.

        Args:
            largest: The largest magnitude of its unscaled gradients; inf or NaN if they are not finite.
            scale: Its loss scale.
            zero_share: The share of its gradients that are 0.

        Raises:
            ArgumentError: Some steps of the trace have a share of zeros, and others have none.
            InvalidSpecError: A value is not valid.
        """
        self.extend([largest], [scale], None if zero_share is None else [zero_share])

    def extend(self, largest: Any, scale: Any, zero_share: Any = None) -> None:
        """Add many steps.

        Args:
            largest: The largest magnitude of the unscaled gradients of each step.
            scale: The loss scale of each step, or of all.
            zero_share: The share of gradients that are 0 in each step, or None.

        Raises:
            ArgumentError: Some steps of the trace have a share of zeros, and others have none.
            InvalidSpecError: A value is not valid.
        """
        steps = Trace(largest, scale, zero_share, limit=self._limit)  # checks the values
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
        """Return the trace so far."""
        share = np.array(self._zero_share, np.float32) if self._zero_share else None
        largest, scale = np.array(self._largest, np.float32), np.array(self._scale, np.float32)
        return Trace(largest, scale, share, limit=self._limit, facts=self._facts)

    def flush(self) -> None:
        """Write the file now."""
        began = time.monotonic()
        if self._written != len(self) or not os.path.exists(self.path):
            write_trace(self.trace(), self.path)
            self._written = len(self)
        self._last = time.monotonic()
        self._pause = max(self._flush_seconds, (self._last - began) / _SHARE_OF_TIME)

    close = flush  # no file stays open

    def __enter__(self) -> "TraceWriter":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[types.TracebackType],
    ) -> None:
        self.flush()
