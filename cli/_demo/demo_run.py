"""The demo from the first step to the table: one run to the end, saved half way, and one more for each format."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import os
import sys

from ...registry.errors import MissingPackageError, ScalekeeperError
from ...serialization._atomic import replacing
from . import folder_layout, worker_processes
from .comparison import Comparison, Record, compared, record_of
from .model_and_data import compiled_model
from .saved_formats import Format, formats, read_arrays, save_arrays
from .training_steps import Step, train

_MOST = 300  # characters of an error of somebody else's


class DemoError(ScalekeeperError, RuntimeError):
    """The run itself did not come to its end."""


class Request(NamedTuple):
    """What is to be done: the text of the document, and the ending of its name, which says what language it is in."""

    text: str
    ending: str
    folder: str
    steps: int
    allow: Tuple[str, ...] = ()
    only: Tuple[str, ...] = ()  # keys of formats; all of them if there are none

    @property
    def document(self) -> str:
        """The name of the copy in the folder."""
        return "document" + self.ending

    @property
    def half(self) -> int:
        return self.steps // 2


class Continuation(NamedTuple):
    """How a format did. Without a comparison it failed, and ``said`` has the last lines of why."""

    title: str
    files: Tuple[str, ...]
    size: Optional[int]
    loaded_with: str
    record: Optional[Record]
    comparison: Optional[Comparison]
    said: List[str]
    seconds: float

    @property
    def is_equal(self) -> bool:
        return self.comparison is not None and self.comparison.is_equal

    @property
    def scale(self) -> Optional[float]:
        """At the end."""
        return None if self.record is None else float(self.record["scale"])


class Outcome(NamedTuple):
    """All that was found."""

    taken: List[Step]
    half: int
    record: Record
    continuations: List[Continuation]

    @property
    def is_equal(self) -> bool:
        return all(each.is_equal for each in self.continuations)


class Watch:
    """Is told what happens, as it happens."""

    def stepped(self, step: Step) -> None:
        """A step of the uninterrupted run was taken."""

    def saving(self, titles: List[str]) -> None:
        """Half of the steps are taken."""

    def continuing(self, count: int) -> None:
        """So many new processes are to come."""

    def continued(self, continuation: Continuation) -> None:
        """One of them has ended."""


def require_tensorflow() -> None:
    """Say how to get it, before any work is done."""
    try:
        import tensorflow  # noqa: F401
    except ImportError as error:
        missing = getattr(error, "name", None) == "tensorflow"
        why = "is not installed" if missing else f"can't be imported: {_shortened(error)}"
        raise MissingPackageError(
            f"the demo trains a model, and TensorFlow, which it needs for that, {why}\n"
            "To install it: pip install 'scalekeeper[tensorflow]', or, in a checkout: pip install '.[tensorflow]'"
        ) from None


def run(request: Request, watch: Watch) -> Outcome:
    """Train, save, go on and compare; all files are left in the request's folder, which is empty."""
    _chosen(request)
    folder_layout.prepare(request.folder)
    path = os.path.join(request.folder, request.document)
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as stream:
        stream.write(request.text)
    taken, reference, unsaved = _uninterrupted(request, path, watch)
    save_arrays(folder_layout.record_at(request.folder, folder_layout.UNINTERRUPTED), reference)
    return Outcome(taken, request.half, reference, _continuations(request, reference, unsaved, watch))


def _uninterrupted(request: Request, path: str, watch: Watch) -> Tuple[List[Step], Record, Dict[str, str]]:
    """The run that the others are held to; and the formats that could not be written, with the reason."""
    from ...optimizer import build

    taken: List[Step] = []

    def stepped(step: Step) -> None:
        taken.append(step)
        watch.stepped(step)

    try:
        model = compiled_model(build(path, allow=request.allow))
        train(model, 1, request.half, stepped)
        unsaved = _save(model, request, watch)
        train(model, request.half + 1, request.steps, stepped)
        return taken, record_of(model, taken[request.half :]), unsaved
    except ScalekeeperError:
        raise
    except Exception as error:  # a document may name a policy of anybody's, and stop_after_skips ends a run on purpose
        raise DemoError(f"the run has failed after step {len(taken)}: {_shortened(error)}") from error


def _chosen(request: Request) -> List[Format]:
    available = formats()
    missing = [key for key in request.only if key not in [each.key for each in available]]
    if missing:
        there = ", ".join(each.key for each in available)
        raise DemoError(f"the installed TensorFlow has no format {', '.join(missing)}; it has {there}")
    return [each for each in available if not request.only or each.key in request.only]


def _save(model: Any, request: Request, watch: Watch) -> Dict[str, str]:
    available = _chosen(request)
    watch.saving([each.title for each in available])
    unsaved = {}
    for each in available:
        try:
            each.save(model, folder_layout.saved_in(request.folder))
        except Exception as error:  # it is a result like others, and the other formats go on
            unsaved[each.key] = f"could not be saved: {_shortened(error)}"
    return unsaved


def _continuations(request: Request, reference: Record, unsaved: Dict[str, str], watch: Watch) -> List[Continuation]:
    available = {each.key: each for each in _chosen(request)}
    found = {key: _failed(available[key], [why]) for key, why in unsaved.items()}
    jobs = [_job(request, key) for key in available if key not in unsaved]
    watch.continuing(len(jobs))
    for ended in worker_processes.run(jobs, request.folder):
        found[ended.key] = _judged(request, available[ended.key], ended, reference)
        watch.continued(found[ended.key])
    return [found[key] for key in available]


def _job(request: Request, key: str) -> worker_processes.Job:
    folder = os.path.abspath(request.folder)
    arguments = [folder, key, str(request.steps), request.document]
    for pattern in request.allow:
        arguments += ["--allow", pattern]
    if request.allow:
        arguments += ["--search", os.getcwd()]
    module = __package__ + ".resume_worker"
    return worker_processes.Job(key, module, arguments, folder_layout.log_at(folder, key))


def _judged(request: Request, saved: Format, ended: worker_processes.Ended, reference: Record) -> Continuation:
    log = folder_layout.log_at(request.folder, saved.key)
    if ended.code:
        why = f"its process ended with exit code {ended.code}"
        if ended.code < 0:
            why = f"its process was ended by signal {-ended.code}"
        return _failed(saved, [f"{why}; all that it said is in {log}", *worker_processes.last_lines(log)])
    os.remove(log)
    record = read_arrays(folder_layout.record_at(request.folder, saved.key))
    return Continuation(
        saved.title,
        saved.files,
        saved.size(folder_layout.saved_in(request.folder)),
        saved.loaded_with,
        record,
        compared(reference, record),
        [],
        ended.seconds,
    )


def _failed(saved: Format, said: Sequence[str]) -> Continuation:
    return Continuation(saved.title, saved.files, None, saved.loaded_with, None, None, list(said), 0.0)


def _shortened(error: BaseException) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _MOST else text[:_MOST] + "…"


def versions() -> Dict[str, str]:
    """What runs here, by name."""
    from ...optimizer._state.state_transfer import installed_versions as installed

    found = installed()
    python = "{}.{}.{}".format(*sys.version_info[:3])
    return {"TensorFlow": found["tensorflow"], "Keras": found["keras"], "Python": python}
