"""The run of the demo: one training saved half way, and one resumed in a new process from each saved format."""

from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import itertools
import os
import subprocess
import sys
import time

from ...registry.errors import DemoError, MissingPackageError, ScalekeeperError
from ...serialization._atomic import replacing
from .saved_formats import Format, formats, read_arrays, save_arrays
from .training_run import Comparison, Record, Step, compared, compiled_model, record_of, train

BUNDLED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "document.yaml")
_SECONDS = 300  # the time limit of a process
_MOST_CHARACTERS = 300  # of the error of another library


class Request(NamedTuple):
    """The text of a document, the extension of its name, and the options of the command."""

    text: str
    extension: str
    folder: str
    steps: int
    allow: Tuple[str, ...] = ()
    only: Tuple[str, ...] = ()  # keys of formats; empty: all of them

    @property
    def document(self) -> str:
        return "document" + self.extension

    @property
    def half(self) -> int:
        return self.steps // 2

    @property
    def saved(self) -> str:
        """The folder of the saved files."""
        return os.path.join(self.folder, "saved")

    def compared(self, name: str) -> str:
        """Return the path of a record or log."""
        return os.path.join(self.folder, "compared", name)


class Continuation(NamedTuple):
    """The result of one format. It failed if there is no comparison; ``messages`` has the reason."""

    format: Format
    messages: List[str]
    size: Optional[int] = None
    record: Optional[Record] = None
    comparison: Optional[Comparison] = None
    seconds: float = 0.0

    @property
    def is_equal(self) -> bool:
        return self.comparison is not None and self.comparison.is_equal

    @property
    def scale(self) -> Optional[float]:
        """The final loss scale."""
        return None if self.record is None else float(self.record["scale"])


class Outcome(NamedTuple):
    """The result of the demo."""

    taken: List[Step]
    record: Record
    continuations: List[Continuation]

    @property
    def is_equal(self) -> bool:
        return all(each.is_equal for each in self.continuations)


def new_folder() -> str:
    """Create a new folder in the current one and return its name."""
    for number in itertools.count(1):
        name = "scalekeeper-demo" if number == 1 else f"scalekeeper-demo-{number}"
        try:
            os.mkdir(name)
            break
        except FileExistsError:
            continue
    return name


def is_free(folder: str) -> bool:
    """Return whether a folder does not exist or is empty."""
    return not os.path.lexists(folder) or (os.path.isdir(folder) and not os.listdir(folder))


def versions() -> Dict[str, str]:
    """Return the installed versions by name; raise an error if TensorFlow is missing."""
    try:
        import tensorflow  # noqa: F401
    except ImportError as error:
        missing = getattr(error, "name", None) == "tensorflow"
        why = "is not installed" if missing else f"can't be imported: {_shortened(error)}"
        raise MissingPackageError(
            f"the demo trains a model with TensorFlow, which {why}\n"
            "To install it, in a checkout of scalekeeper: pip install '.[tensorflow]'"
        ) from None
    from ...optimizer._state.state_transfer import installed_versions as installed

    found, python = installed(), "{}.{}.{}".format(*sys.version_info[:3])
    return {"TensorFlow": found["tensorflow"], "Keras": found["keras"], "Python": python}


def run(request: Request, screen: Any) -> Outcome:
    """Train, save, resume and compare. All files stay in the empty folder of the request."""
    from ...optimizer import build

    chosen = _chosen_formats(request)
    for folder in (request.saved, request.compared("")):
        os.makedirs(folder, exist_ok=True)
    path = os.path.join(request.folder, request.document)
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as stream:
        stream.write(request.text)
    taken: List[Step] = []

    def on_step(step: Step) -> None:
        taken.append(step)
        screen.stepped(step)

    try:
        model = compiled_model(build(path, allow=request.allow))
        train(model, 1, request.half, on_step)
        results = _save(model, request, chosen, screen)
        train(model, request.half + 1, request.steps, on_step)
    except ScalekeeperError:
        raise
    except Exception as error:  # a policy can raise any error, and stop_after_skips ends a run
        raise DemoError(f"the run failed after step {len(taken)}: {_shortened(error)}") from error
    record = record_of(model, taken[request.half :])
    save_arrays(request.compared("uninterrupted.npz"), record)
    resumed = [each for each in chosen if each.key not in results]
    screen.continuing(len(resumed))
    for key, code, seconds in run_processes({each.key: _command(request, each) for each in resumed}, request):
        (saved,) = (each for each in chosen if each.key == key)
        results[key] = _continuation(request, saved, code, seconds, record)
        screen.continued(results[key])
    return Outcome(taken, record, [results[each.key] for each in chosen])


def _chosen_formats(request: Request) -> List[Format]:
    available = formats()
    missing = [key for key in request.only if key not in [each.key for each in available]]
    if missing:
        there = ", ".join(each.key for each in available)
        raise DemoError(f"the installed TensorFlow does not have the format {', '.join(missing)}; it has {there}")
    return [each for each in available if not request.only or each.key in request.only]


def _save(model: Any, request: Request, chosen: List[Format], screen: Any) -> Dict[str, Continuation]:
    """Save in every format; return the results of those that failed."""
    screen.saving([each.title for each in chosen])
    failed = {}
    for each in chosen:
        try:
            each.save(model, request.saved)
        except Exception as error:  # one result among others
            failed[each.key] = Continuation(each, [f"could not be saved: {_shortened(error)}"])
    return failed


def _command(request: Request, saved: Format) -> List[str]:
    arguments = [os.path.abspath(request.folder), saved.key, str(request.steps), request.document]
    for pattern in request.allow:
        arguments += ["--allow", pattern]
    if request.allow:
        arguments += ["--search", os.getcwd()]
    return [__package__ + ".resume_worker", *arguments]


def run_processes(commands: Dict[str, Sequence[str]], request: Request) -> Iterator[Tuple[str, int, float]]:
    """Run modules with arguments in new processes, one per core at a time; yield key, exit code and seconds of each.

    Closing the generator kills the processes that still run.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    waiting = list(commands.items())
    running: Dict[str, Tuple[Any, float]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < cores:
                key, command = waiting.pop(0)
                # not in the current folder, where Python looks for modules first
                with open(request.compared(key + ".log"), "wb") as log:
                    process = subprocess.Popen(
                        [sys.executable, "-W", "ignore", "-m", *command],
                        cwd=request.folder,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                running[key] = process, time.monotonic()
            for key, (process, start) in list(running.items()):
                seconds = time.monotonic() - start
                if seconds > _SECONDS:
                    process.kill()
                    process.wait()
                if process.poll() is not None:
                    del running[key]
                    yield key, process.returncode, seconds
            time.sleep(0.02)
    finally:
        for process, _ in running.values():
            process.kill()
            process.wait()


def _continuation(request: Request, saved: Format, code: int, seconds: float, expected: Record) -> Continuation:
    log = request.compared(saved.key + ".log")
    if code:
        why = f"its process ended with exit code {code}" if code > 0 else f"its process was ended by signal {-code}"
        return Continuation(saved, [f"{why}; its whole output is in {log}", *last_lines(log)])
    os.remove(log)
    record = read_arrays(request.compared(saved.key + ".npz"))
    return Continuation(saved, [], saved.size(request.saved), record, compared(expected, record), seconds)


def last_lines(path: str, most: int = 6) -> List[str]:
    """Return the end of a process's output, without the lines of TensorFlow's log."""
    with open(path, encoding="utf-8", errors="replace") as stream:
        lines = [line.rstrip() for line in stream if line.strip() and not _is_log(line)]
    return lines[-most:]


def _is_log(line: str) -> bool:
    """Return whether a line begins with a date, or with a letter and a number, or announces the log."""
    head = line[:1] in "IWE" and line[1:5].isdigit()
    return head or (line[:4].isdigit() and line[4:5] == "-") or line.startswith("WARNING: All log messages")


def _shortened(error: BaseException) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "…"
