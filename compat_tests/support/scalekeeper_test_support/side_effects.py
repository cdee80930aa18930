"""What a reader of hostile input may do, seen from inside of Python: nothing but read its target, and answer."""

import contextlib
import os
import sys
import tempfile

import scalekeeper.registry

CAN_WATCH = hasattr(sys, "addaudithook")  # from Python 3.8 on

# Events that happen in any program and are harmless.
_HARMLESS = frozenset(
    [
        *("builtins.id", "object.__getattr__", "sys._getframe", "sys._getframemodulename", "sys.unraisablehook"),
        *("os.listdir", "os.scandir", "os.fspath", "gc.get_objects", "gc.get_referrers", "time.sleep", "code.__new__"),
        *("glob.glob", "glob.glob/2"),
        "resource.setrlimit",  # the bounds of a look into an HDF5 file
        *("array.__new__", "import"),  # an import is seen by the finder, whichever way it is made
    ]
)
# The file name of a text that is only parsed: NumPy reads the header of an array with ast.literal_eval. Running the
# result would be an "exec", which is refused.
_PARSED_LITERAL = "<unknown>"
_OF_FOLDERS = ("os.", "shutil.", "tempfile.", "glob.", "fcntl.flock")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Watcher:
    """Collects everything else that happens while it is watching. A process has one: it can't be taken away again."""

    def __init__(self):
        self._seen, self._targets, self._may_write = None, (), False
        own = os.path.dirname(os.path.dirname(scalekeeper.registry.__file__))
        self._readable = tuple(os.path.realpath(path) for path in [own, *sys.path]) + ("/proc/",)
        sys.meta_path.insert(0, self)
        if CAN_WATCH:
            sys.addaudithook(self._hook)

    def find_spec(self, name, path=None, target=None):
        """Return what is asked for, by ``import`` or by ``import_module``, whether there is such a module or not."""
        if self._seen is not None:
            self._seen.append(("import", name))

    @contextlib.contextmanager
    def watching(self, *targets, may_write=False):
        """A list that fills with what should not happen. Targets are a file, and a folder that may be written to."""
        seen = []
        self._targets, self._may_write, self._seen = targets, may_write, seen
        try:
            yield seen
        finally:
            self._seen = None

    def _hook(self, event, arguments):
        seen = self._seen
        if seen is None or event in _HARMLESS:
            return
        self._seen = None  # what is done here is not what is watched
        try:
            what = self._forbidden(event, arguments)
            if what is not None:
                seen.append(what)
        finally:
            self._seen = seen

    def _forbidden(self, event, arguments):
        """``import``, ``write``, ``read`` or the event's own name, and what; None if there is nothing against it."""
        if event == "open":
            return self._opened(*arguments)
        if event in ("compile", "exec") and _is_a_simulation(arguments[0]):
            return None
        if event == "compile" and arguments[1] == _PARSED_LITERAL:
            return None
        if event.startswith(_OF_FOLDERS) and self._may_write and self._is_inside(arguments):
            return None
        return event, repr(arguments)[:300]

    def _is_inside(self, arguments):
        """Whether all paths are in the target's folder; a relative one is, as it goes with the folder's descriptor."""
        paths = [os.fsdecode(each) for each in arguments if isinstance(each, (str, bytes, os.PathLike))]
        return all(self._is_target(path) for path in paths if os.path.isabs(path))

    def _opened(self, path, mode, flags):
        if not isinstance(path, (str, bytes, os.PathLike)):
            return None  # a descriptor that was opened before
        path = os.fsdecode(path)
        if path == tempfile.gettempdir():
            return None  # a file without a name: nobody else ever sees it
        is_writing = bool(flags & _WRITING) or bool(mode and set(mode) & set("wax+"))
        if self._is_target(path, only_folders=is_writing):
            return None
        if self._may_write and not os.path.isabs(path):
            return None  # beside a descriptor of the target's folder
        if not is_writing and os.path.realpath(path).startswith(self._readable):
            return None  # the package's tables, what is said of the packages that are installed, and of the process
        return "write" if is_writing else "read", path

    def _is_target(self, path, only_folders=False):
        path = os.path.realpath(path)
        return any(
            (path == target and not only_folders) or path.startswith(target + os.sep) for target in self._targets
        )


def _is_a_simulation(what):
    """simulate writes a policy's step out as a loop: from names of its own, and from nothing that it has read."""
    if isinstance(what, (str, bytes)):
        return what.lstrip()[:9] in ("def loop(", b"def loop(")
    return "loop" in getattr(what, "co_names", ())
