"""The package's source, as trees: what it imports, what it calls, and what must not be among that."""

from typing import Dict, Iterator, List, Optional, Tuple

import ast
import functools
import os

from scalekeeper_test_support.dependencies import project
from scalekeeper_test_support.repository import ROOT

FORBIDDEN_MODULES = (
    *("pickle", "marshal", "shelve", "dill", "joblib"),
    *("subprocess", "multiprocessing", "ctypes", "runpy", "code", "codeop", "webbrowser"),
    *("socket", "ssl", "urllib", "http", "ftplib", "smtplib", "xmlrpc", "asyncio", "requests"),
    # what advisories.json says is never used
    *("rich.markdown", "rich.syntax", "zipfile.Path", "numpy.f2py", "fontTools"),
)
FORBIDDEN_CALLS = (
    *("eval", "exec", "compile", "__import__"),
    *("os.system", "os.popen", "os.fork", "os.startfile", "tempfile.mktemp"),
    *("yaml.load", "yaml.load_all", "yaml.full_load", "yaml.unsafe_load"),
    *("click.edit", "click.launch", "click.echo_via_pager", "np.sort", "np.argsort"),
)
FORBIDDEN_BEGINNINGS = ("os.exec", "os.spawn", "os.posix_spawn")
FORBIDDEN_METHODS = ("extract", "extractall")  # a zip file's members go where its names say
WITH_PICKLES = ("load", "read_array", "write_array")  # NumPy's: safe with allow_pickle=False, which must be said


def rooms() -> Dict[str, str]:
    """Package → the folder of the checkout that it is made of."""
    return project()["tool"]["setuptools"]["package-dir"]


@functools.lru_cache(maxsize=None)
def trees() -> List[Tuple[str, ast.AST]]:
    """Each file of the package, by its path in the checkout."""
    return list(_trees())


def _trees() -> Iterator[Tuple[str, ast.AST]]:
    for folder in sorted(set(rooms().values())):
        for name in sorted(os.listdir(os.path.join(ROOT, folder))):
            if name.endswith(".py"):
                with open(os.path.join(ROOT, folder, name), encoding="utf-8") as stream:
                    yield f"{folder}/{name}", ast.parse(stream.read())


def imported(tree: ast.AST) -> List[str]:
    """The absolute names that are imported anywhere in a file, also those that importlib is given as text."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and called(node) == "importlib.import_module":
            names += [name for name in [text_of(node.args[0])] if name and not name.startswith(".")]
    return names


def called(node: ast.Call) -> str:
    """The name of what is called, as it is written; of a method of something else, a dot and its name."""
    parts: List[str] = []
    target = node.func
    while isinstance(target, ast.Attribute):
        parts.append(target.attr)
        target = target.value
    return ".".join([target.id if isinstance(target, ast.Name) else "", *reversed(parts)])


def text_of(node: ast.AST) -> Optional[str]:
    """The text that stands there, or None if it is no literal."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if isinstance(value, str) else None
