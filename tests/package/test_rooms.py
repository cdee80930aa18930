"""Which room imports which."""

import ast
import os

import pytest

import scalekeeper

HOME = os.path.dirname(scalekeeper.__file__)
MAY_IMPORT = {
    "_built_in_plugins": set(),  # a module of the front door
    "registry": {"_built_in_plugins"},
    "lossscales": {"registry", "_built_in_plugins"},
    "serialization": {"registry", "lossscales"},
    "diagnosis": {"registry", "serialization", "simulation"},
    "optimizer": {"registry", "lossscales", "serialization", "simulation", "diagnosis"},
    "simulation": {"registry", "lossscales", "serialization"},
    "testing": {"registry", "lossscales", "optimizer", "serialization"},
    "cli": {"registry", "lossscales", "optimizer", "serialization", "simulation", "testing", "diagnosis"},
}
# functions that import a module by a name that is computed when they run
DYNAMIC = {"import_module", "__import__", "find_spec", "run_module"}
PACKAGE = "scalekeeper"


class Importing(ast.NodeVisitor):
    """The rooms that a source text imports anywhere in it, and what it must not do."""

    def __init__(self, module):
        self.parts = module.split(".")  # the package that relative names start from
        self.rooms = set()
        self.problems = []

    def visit_Import(self, node):
        for alias in node.names:
            if alias.name.split(".")[0] == PACKAGE:
                self.problems.append(f"line {node.lineno}: rooms import each other relatively, not as {alias.name}")

    def visit_ImportFrom(self, node):
        if not node.level:
            if (node.module or "").split(".")[0] == PACKAGE:
                self.problems.append(f"line {node.lineno}: rooms import each other relatively, not as {node.module}")
            return
        for name in [node.module] if node.module else [alias.name for alias in node.names]:
            self._add(node, self.parts[: len(self.parts) - node.level + 1], name)

    def visit_Call(self, node):
        self.generic_visit(node)
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)
        if name not in DYNAMIC or not node.args:
            return
        start = constant_start(node.args[0])
        if start is None:
            self.problems.append(f"line {node.lineno}: {name} of a name that cannot be checked")
        elif start.startswith("."):
            dots = len(start) - len(start.lstrip("."))
            self._add(node, self.parts[: len(self.parts) - dots + 1], start.lstrip("."), is_dynamic=True)
        elif start.split(".")[0] == PACKAGE:
            self._add(node, [], start, is_dynamic=True)

    def _add(self, node, package, name, is_dynamic=False):
        path = [*package, *name.split(".")] if name else package
        room = path[1] if len(path) > 1 and path[0] == PACKAGE else None
        own = self.parts[1] if len(self.parts) > 1 else None
        if own is not None and room == own:
            return
        if is_dynamic:
            self.problems.append(f"line {node.lineno}: imports {'.'.join(path)} by a function: use an import statement")
        if room is not None:
            self.rooms.add(room)


def constant_start(argument):
    """The constant text that the name of a module begins with; None if it does not begin with one."""
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return argument.value
    if argument.__class__.__name__ == "Str":  # Python 3.7
        return argument.s
    if isinstance(argument, ast.BinOp) and isinstance(argument.op, ast.Add):
        return constant_start(argument.left)
    if isinstance(argument, ast.JoinedStr) and argument.values:
        return constant_start(argument.values[0])
    return None


# file → why it may import modules whose names cannot be checked here
UNCHECKED = {
    "registry/_import_paths.py": "import paths of users, from an allow-list",
    "testing/_replica_process.py": "the module of a user's policy",
}


def package_of(path):
    """The package that a file's relative imports start from."""
    folder = os.path.relpath(os.path.dirname(path), HOME)
    return ".".join([PACKAGE, *(folder.split(os.sep) if folder != os.curdir else [])])


def imported_rooms(text, package, is_unchecked=False):
    """The rooms that a source text imports; fails for what it must not do."""
    found = Importing(package)
    found.visit(ast.parse(text))
    problems = [each for each in found.problems if not (is_unchecked and "cannot be checked" in each)]
    assert not problems, problems
    return found.rooms


def sources(room):
    """The files of a room, which is a folder or a module."""
    if os.path.isfile(os.path.join(HOME, room + ".py")):
        return [os.path.join(HOME, room + ".py")]
    walked = os.walk(os.path.join(HOME, room), followlinks=True)
    return [os.path.join(folder, name) for folder, _, names in walked for name in names if name.endswith(".py")]


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_a_room_imports_only_what_it_may(room):
    """The table in docs/architecture.md holds, in all subfolders, also for imports inside functions."""
    assert sources(room)
    for path in sources(room):
        relative = os.path.relpath(path, HOME).replace(os.sep, "/")
        with open(path, encoding="utf-8") as stream:
            found = imported_rooms(stream.read(), package_of(path), relative in UNCHECKED)
        assert found <= MAY_IMPORT[room], (relative, found)


def test_every_room_is_in_the_table():
    """A new room, or a new module of the front door, gets a line, and the table has no cycle."""
    folders = {name for name in os.listdir(HOME) if os.path.isfile(os.path.join(HOME, name, "__init__.py"))}
    modules = {name[:-3] for name in os.listdir(HOME) if name.endswith(".py")} - {"__init__", "__main__"}
    assert folders | modules == set(MAY_IMPORT)
    left = dict(MAY_IMPORT)
    while left:
        free = [room for room, others in left.items() if not others & left.keys()]
        assert free, f"a cycle among {sorted(left)}"
        for room in free:
            del left[room]


def test_the_exceptions_are_needed():
    """A file that no longer imports by computed names loses its line."""
    for relative in UNCHECKED:
        with open(os.path.join(HOME, relative), encoding="utf-8") as stream:
            found = Importing(package_of(os.path.join(HOME, relative)))
            found.visit(ast.parse(stream.read()))
        assert any("cannot be checked" in each for each in found.problems), relative


PLAIN = [
    ("from ..optimizer import build", {"optimizer"}),
    ("from .. import optimizer, registry", {"optimizer", "registry"}),
    ("def f():\n    from ..optimizer.models import load_model", {"optimizer"}),
    ("if TYPE_CHECKING:\n    from ..cli import main", {"cli"}),
    ("from .formats import h5", set()),
    ("from . import formats", set()),
    ("import os, numpy.lib", set()),
    ("importlib.import_module('tensorflow')", set()),
    ("importlib.import_module('.h5', __package__)", set()),
]


@pytest.mark.parametrize(("text", "rooms"), PLAIN)
def test_imports_are_found(text, rooms):
    """Relative ones, wherever they stand; modules of the own room and of others are none."""
    assert imported_rooms(text, "scalekeeper.serialization") == rooms


def test_imports_are_found_from_a_subfolder():
    """One more dot leads out of the room."""
    assert imported_rooms("from ...optimizer import build", "scalekeeper.serialization.formats") == {"optimizer"}
    assert imported_rooms("from ..models import save_model", "scalekeeper.serialization.formats") == set()


HIDDEN = [
    "importlib.import_module('..optimizer', __package__)",
    "import_module('scalekeeper.optimizer')",
    "importlib.import_module('..' + room, __package__)",
    "importlib.import_module(f'..{room}', __package__)",
    "__import__('scalekeeper.optimizer')",
    "importlib.import_module(room)",
    "import scalekeeper.optimizer",
    "from scalekeeper.optimizer import build",
    "def f():\n    return importlib.import_module('..optimizer', __package__).LossScaleOptimizer",
]


@pytest.mark.parametrize("text", HIDDEN)
def test_hidden_imports_are_refused(text):
    """By functions, with constant or computed names, and by the name of the package."""
    with pytest.raises(AssertionError):
        imported_rooms(text, "scalekeeper.serialization")


def test_a_forbidden_import_is_found():
    """Serialization may not import the optimizer: the check of a room fails for a file that does."""
    found = imported_rooms("from ..optimizer import build", "scalekeeper.serialization")
    assert not found <= MAY_IMPORT["serialization"]
