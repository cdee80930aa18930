"""The examples of the reference of the Python interface, each as a doctest of its own."""

from typing import Dict, Iterator, Tuple

import contextlib
import doctest
import functools
import os

from scalekeeper_test_support.repository import load_script, repository_path


@functools.lru_cache(maxsize=None)
def examples() -> Dict[str, Tuple[str, bool]]:
    """Return public name, or name and member → its example, and whether that needs TensorFlow."""
    found = {}
    for name, entry in load_script("docs/making/reference.py").entries().items():
        documented = {name: entry.definition, **{f"{name}.{each.node.name}": each for each, _ in entry.members}}
        for address, definition in documented.items():
            text = definition.docstring.sections.get("Example")
            if text:
                found[address] = text, "import tensorflow" in text
    return found


@contextlib.contextmanager
def folder_with_examples(folder: str) -> Iterator[None]:
    """Make a folder the current one in the block, with ``examples/`` of the checkout in it."""
    before = os.getcwd()
    os.symlink(repository_path("examples"), os.path.join(folder, "examples"))
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def failures(address: str, text: str) -> str:
    """Run an example in an empty namespace, and return what is wrong; ``...`` in a result stands for anything."""
    test = doctest.DocTestParser().get_doctest(text, {"__name__": "__main__"}, address, address, 0)
    said = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    return "".join(said)
