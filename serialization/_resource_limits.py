"""Bounds for looks into an HDF5 file: on a broken one its library may go in circles, or take all memory there is.

Python can't stop it, and can't know before: so a look ends the process, or memory is refused to it. Only a process that
may be lost has bounds: the copy in which a command looks into a file (``cli/isolation.py``). Reading arrays is no look.
"""

from typing import Optional

import signal

_SECONDS = 1.0  # of computing, for what takes microseconds
_BYTES = 300 * 2**20  # for names, shapes and descriptions


class _Bounds:
    """What there is to take and to give back."""

    def __init__(self) -> None:
        import resource  # not on Windows

        self._resource = resource
        self._usual = resource.getrlimit(resource.RLIMIT_AS)
        self._within = self._usual

    def begin(self) -> None:
        """What the process has by now is its own."""
        try:
            with open("/proc/self/statm") as stream:
                pages = int(stream.read().split()[0])
        except OSError:  # no Linux: memory is not bounded
            return
        most = pages * self._resource.getpagesize() + _BYTES
        soft, hard = self._usual
        self._within = (most if soft == self._resource.RLIM_INFINITY else min(most, soft), hard)

    def set(self) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS)
        self._resource.setrlimit(self._resource.RLIMIT_AS, self._within)

    def lift(self) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        self._resource.setrlimit(self._resource.RLIMIT_AS, self._usual)


_bounds: Optional[_Bounds] = None


def be_bounded() -> None:
    """From now on, a look that takes too long ends this process with SIGVTALRM, and one that takes too much fails."""
    global _bounds
    _bounds = _Bounds()


def begin() -> None:
    """A file is about to be opened."""
    if _bounds is not None:
        _bounds.begin()
        _bounds.set()


def look() -> None:
    """A look begins; the one before is over."""
    if _bounds is not None:
        _bounds.set()


def rest() -> None:
    """No look is on: what comes now may take long, and much."""
    if _bounds is not None:
        _bounds.lift()
