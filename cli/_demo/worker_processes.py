"""New processes of this Python, as many at a time as there are cores."""

from typing import Dict, Iterator, List, NamedTuple, Sequence

import os
import subprocess
import sys
import time

SECONDS = 300  # that one may take
_PAUSE = 0.02


class Ended(NamedTuple):
    """How a process has ended; ``code`` is negative for a signal."""

    key: str
    code: int
    seconds: float


class Job(NamedTuple):
    """A module of ours to run, and where what it says goes."""

    key: str
    module: str
    arguments: Sequence[str]
    log: str


class _Running(NamedTuple):
    process: "subprocess.Popen[bytes]"
    began: float


def run(jobs: Sequence[Job], folder: str) -> Iterator[Ended]:
    """Run all of them, and tell of each when it ends. Whoever stops listening ends those that still run."""
    waiting: List[Job] = list(jobs)
    running: Dict[str, _Running] = {}
    try:
        while waiting or running:
            while waiting and len(running) < _cores():
                job = waiting.pop(0)
                running[job.key] = _Running(_started(job, folder), time.monotonic())
            for key, (process, began) in list(running.items()):
                seconds = time.monotonic() - began
                if seconds > SECONDS:
                    process.kill()
                    process.wait()
                if process.poll() is not None:
                    del running[key]
                    yield Ended(key, process.returncode, seconds)
            time.sleep(_PAUSE)
    finally:
        for process, _ in running.values():
            process.kill()
            process.wait()


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _started(job: Job, folder: str) -> "subprocess.Popen[bytes]":
    """In the given folder: the current one is the first that Python looks for modules in, and it is the user's."""
    command = [sys.executable, "-W", "ignore", "-m", job.module, *job.arguments]
    with open(job.log, "wb") as log:
        return subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def last_lines(path: str, most: int = 6) -> List[str]:
    """The end of what a process said, without the lines of TensorFlow's log."""
    with open(path, encoding="utf-8", errors="replace") as stream:
        lines = [line.rstrip() for line in stream if line.strip() and not _is_log(line)]
    return lines[-most:]


def _is_log(line: str) -> bool:
    """TensorFlow's lines begin with a date, or with a letter and a number; and one says that there will be some."""
    head = line[:1] in "IWE" and line[1:5].isdigit()
    return head or (line[:4].isdigit() and line[4:5] == "-") or line.startswith("WARNING: All log messages")
