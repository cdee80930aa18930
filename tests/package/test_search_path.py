"""Tests and scripts import what they share from installed packages."""

import os
import re

import pytest

from scalekeeper_test_support.repository import ROOT

EDIT = re.compile(r"\bsys\.path(\.(insert|append|extend|remove)\(|(\[[^]]*\])? *\+?= )")
FOLDERS = ("benchmarks", "compat_tests", "docs", "examples", "tests")
# path → the reason why this file edits the search path
ALLOWED = {
    "compat_tests/support/scalekeeper_test_support/script_runner.py": "it starts a script as the interpreter does",
    "tests/hostile/test_imports.py": "a new process must not search the current folder",
}


def edits(folder):
    for parent, _, names in os.walk(os.path.join(ROOT, folder)):
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(parent, name)
                with open(path, encoding="utf-8") as stream:
                    if any(EDIT.search(line) for line in stream):
                        yield os.path.relpath(path, ROOT).replace(os.sep, "/")


def test_only_known_files_edit_the_search_path():
    """A file that needs a helper imports it from an installed package, so it runs from any folder."""
    assert {path for folder in FOLDERS for path in edits(folder)} == set(ALLOWED)


@pytest.mark.parametrize(
    "edit", [".insert(0, x)", ".append(x)", ".remove(x)", "[:0] = [x]", "[0] = x", " = x", " += [x]"]
)
def test_the_search_finds_edits(edit):
    """Each way to edit the search path is found; reading it is not an edit."""
    assert EDIT.search("sys.path" + edit)
    assert not EDIT.search("for path in sys.path: print(path)")
