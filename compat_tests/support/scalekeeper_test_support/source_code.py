"""The syntax trees of the package: its imports and calls, and those that are forbidden."""

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
    """Return package → its folder in the checkout."""
    return project()["tool"]["setuptools"]["package-dir"]


@functools.lru_cache(maxsize=None)
def trees() -> List[Tuple[str, ast.AST]]:
    """Yield each file of the package by its path in the checkout."""
    return list(_trees())


def _trees() -> Iterator[Tuple[str, ast.AST]]:
    for folder in sorted(set(rooms().values())):
        for name in sorted(os.listdir(os.path.join(ROOT, folder))):
            if name.endswith(".py"):
                with open(os.path.join(ROOT, folder, name), encoding="utf-8") as stream:
                    yield f"{folder}/{name}", ast.parse(stream.read())


def imported(tree: ast.AST) -> List[str]:
    """Return the absolute names of all imports of a file, including literal arguments of importlib."""
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
    """Return the name of a called function as written, or a dot and the name of a method."""
    parts: List[str] = []
    target = node.func
    while isinstance(target, ast.Attribute):
        parts.append(target.attr)
        target = target.value
    return ".".join([target.id if isinstance(target, ast.Name) else "", *reversed(parts)])


def text_of(node: ast.AST) -> Optional[str]:
    """Return the text of a string literal, or None."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if isinstance(value, str) else None
