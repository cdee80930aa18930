"""Every import of the package is declared, and nothing in it runs code, starts programs or opens connections."""

import ast
from importlib.util import find_spec

from scalekeeper_test_support.dependencies import declared
from scalekeeper_test_support.source_code import (
    FORBIDDEN_BEGINNINGS,
    FORBIDDEN_CALLS,
    FORBIDDEN_METHODS,
    FORBIDDEN_MODULES,
    WITH_PICKLES,
    called,
    imported,
    text_of,
    trees,
)

# distribution → what it is imported as, where that is another word
IMPORTED_AS = {"pyyaml": "yaml"}
OF_TENSORFLOW = {"keras"}  # which TensorFlow brings along, or says is missing
OF_THE_CALLER = {"pytest"}  # who has it call tests has it

# where one of them stands all the same, and why that is safe
ALLOWED = {
    (
        "simulation/_step_codegen.py",
        "exec",
    ): "of numbers and names of our own alone: test_written_loop.py",
    ("serialization/_atomic.py", "ctypes"): "one function of the C library, to exchange two folders at once",
    ("cli/_isolation.py", "os.fork"): "a copy of the command, in which a library may crash",
    ("cli/_demo/demo_run.py", "subprocess"): "this Python anew, with a scalekeeper module and no shell",
    ("registry/_import_paths.py", "import of a name"): "after the caller's list of allowed paths was asked",
    ("testing/_inner_optimizer_copies.py", "pickle"): "of an optimizer that its author has given, in the same process",
    (
        "testing/_replica_checks.py",
        "subprocess",
    ): "this Python, with a scalekeeper module, when a policy's author asks for a check",
    ("testing/_replica_process.py", "import of a name"): "the module of the class that its author has checked",
}


def imported_packages():
    """The top-level names that are imported, each with the files that do so."""
    found = {}
    for path, tree in trees():
        for name in imported(tree):
            found.setdefault(name.split(".")[0], set()).add(path)
    return found


def comes_with_python(name):
    spec = find_spec(name)
    return spec is not None and "site-packages" not in (spec.origin or "")


def test_every_import_is_declared():
    """No file imports what only happens to be there because something else needs it."""
    known = {IMPORTED_AS.get(name, name.replace("-", "_")) for name in declared()} | OF_TENSORFLOW | OF_THE_CALLER
    found = {name: files for name, files in imported_packages().items() if name not in known}
    assert {name: files for name, files in found.items() if not comes_with_python(name)} == {}


def test_every_dependency_is_imported():
    """Every declared dependency is imported."""
    expected = {IMPORTED_AS.get(name, name.replace("-", "_")) for name in declared()}
    assert expected - set(imported_packages()) == set()


def dangers(tree):
    """Return what of the above stands in a file."""
    for name in imported(tree):
        yield from (module for module in FORBIDDEN_MODULES if f"{name}.".startswith(f"{module}."))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = called(node)
        if name in FORBIDDEN_CALLS or name.startswith(FORBIDDEN_BEGINNINGS):
            yield name
        elif "." in name and name.split(".")[-1] in FORBIDDEN_METHODS:
            yield name.split(".")[-1]
        elif name.split(".")[0] in ("np", "numpy") and name.split(".")[-1] in WITH_PICKLES:
            if not _says_no_pickles(node):
                yield "pickles of NumPy"
        elif name == "importlib.import_module" and not _is_own_or_literal(node.args[0]):
            yield "import of a name"


def _says_no_pickles(node):
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    return "allow_pickle" in given and ast.literal_eval(given["allow_pickle"]) is False


def _is_own_or_literal(node):
    """A relative name leads to the package itself, whatever stands behind the dots."""
    if isinstance(node, ast.BinOp) and text_of(node.left) in (".", ".."):
        return True
    return text_of(node) is not None


def test_nothing_runs_code_or_reaches_out():
    """Just the places of the list, each with its reason; one that is gone must leave the list."""
    assert {(path, danger) for path, tree in trees() for danger in dangers(tree)} == set(ALLOWED)


def test_the_search_finds_what_it_looks_for():
    """Each kind once, so that an empty answer means something."""
    code = """
import pickle, socket
from rich import markdown
from zipfile import Path
importlib.import_module("urllib.request")
importlib.import_module(name)
importlib.import_module("." + name, __package__)
eval(text); os.system(text); os.execv(text); yaml.load(text); click.edit()
np.load(path); np.load(path, allow_pickle=True); np.load(path, allow_pickle=False)
zipfile.ZipFile(path).extractall()
"""
    found = sorted(dangers(ast.parse(code)))
    assert found == sorted(
        [
            *("pickle", "socket", "rich.markdown", "zipfile.Path", "urllib", "import of a name"),
            *("eval", "os.system", "os.execv", "yaml.load", "click.edit"),
            *("pickles of NumPy", "pickles of NumPy", "extractall"),
        ]
    )
