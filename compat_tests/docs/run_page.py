"""Run every block of a page in this process, which is there for nothing else, in a folder of its own.

    python compat_tests/docs/run_page.py docs/saving.md

Python blocks share one namespace. The folder has examples/ of the checkout in it. What was skipped is printed as JSON:
a list of pairs of a line and a condition.
"""

import configparser
import contextlib
import doctest
import json
import os
import sys
import tempfile
import types
import unittest

from scalekeeper_test_support import page_commands, page_programs
from scalekeeper_test_support.page_blocks import Block, BlockError, condition, parsed_page
from scalekeeper_test_support.repository import ROOT


class Page:
    """A page with its namespace, and a place for its programs."""

    def __init__(self, path, sources):
        self.path = os.path.abspath(path)
        self.name = os.path.splitext(os.path.basename(path))[0]
        self.sources = sources
        self.module = types.ModuleType("__main__")
        self.namespace = self.module.__dict__

    def run(self):
        """Run all of it; what was skipped."""
        languages = ("python", "pycon", "console", "diff", "yaml", "json", "toml", "ini", "text")
        document, skipper = parsed_page(self.path, {name: self.evaluator(name) for name in languages})
        document.namespace = self.namespace
        sys.modules["__main__"] = self.module
        skipped, expression = [], None
        for example in document:
            try:
                if example.region.evaluator is skipper:
                    expression = condition(example)
                    with self.tensorflow():
                        example.evaluate()
                else:
                    example.evaluate()
            except unittest.SkipTest:
                skipped.append((example.line, expression))
            except BaseException as error:
                raise BlockError(f"{self.path}:{example.line}: {type(error).__name__}: {error}") from error
        return skipped

    @contextlib.contextmanager
    def tensorflow(self):
        """``tf`` is in the namespace for a moment: a block that uses it has to import it."""
        nothing = object()
        before = self.namespace.get("tf", nothing)
        self.namespace["tf"] = tensorflow()
        yield
        del self.namespace["tf"]
        if before is not nothing:
            self.namespace["tf"] = before

    def evaluator(self, language):
        def evaluate(example):
            if isinstance(example.parsed, Block):
                write_file(example.parsed)
                getattr(self, "run_" + language)(example.parsed)

        return evaluate

    def run_python(self, block):
        page_programs.run_program(block.text, self.sources, self.name, block.lines_above, self.namespace)

    def run_pycon(self, block):
        test = doctest.DocTestParser().get_doctest(block.text, {}, self.name, self.path, block.lines_above)
        test.globs = self.namespace
        said = []
        if doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append, clear_globs=False).failed:
            raise BlockError("".join(said))

    def run_console(self, block):
        page_commands.run_block(block)

    def run_diff(self, block):
        """The new program, which leaves no policy of layers behind; the old one has a test of its own."""
        page_programs.where_it_runs(block)
        with kept_policy():
            page_programs.run_program(page_programs.new_program(block), self.sources, self.name, block.lines_above)

    def run_yaml(self, block):
        import yaml

        self.check_document(yaml.safe_load(block.text), block, ".yaml")

    def run_json(self, block):
        self.check_document(json.loads(block.text), block, ".json")

    def check_document(self, value, block, suffix):
        """A mapping with an optimizer is a document, for the installed TensorFlow or the one in a note."""
        if isinstance(value, dict) and "optimizer" in value:
            import scalekeeper

            path = block.notes.get("file")
            if path is None:  # otherwise the block is a file, which may include its neighbours
                path = os.path.join(self.sources, "document" + suffix)
                with open(path, "w", encoding="utf-8") as stream:
                    stream.write(block.text)
            scalekeeper.load_document(path, target=block.notes.get("target"))

    def run_toml(self, block):
        page_commands.parsed_toml(block.text)

    def run_ini(self, block):
        configparser.RawConfigParser().read_string(block.text)

    def run_text(self, block):
        """A picture, or what an error looks like."""


def tensorflow():
    """None where there is none."""
    try:
        import tensorflow as tf
    except ImportError:
        return None
    return tf


@contextlib.contextmanager
def kept_policy():
    """The policy of layers afterwards is what it was; without TensorFlow there is none."""
    if tensorflow() is None:
        yield
        return
    from scalekeeper_test_support.installed_keras import global_policy, set_global_policy

    before = global_policy()
    try:
        yield
    finally:
        set_global_policy(before)


def write_file(block):
    """``<!-- file: NAME -->`` before a block makes a file of it, in the page's folder."""
    if "file" in block.notes:
        name = block.notes["file"]
        if os.path.isabs(name) or ".." in name.split("/"):
            raise BlockError(f"<!-- file: {name} --> leads out of the page's folder")
        os.makedirs(os.path.dirname(os.path.abspath(name)), exist_ok=True)
        with open(name, "w", encoding="utf-8") as stream:
            stream.write(block.text)


def run_page(path):
    """Run a page in a new folder; what was skipped."""
    path = os.path.abspath(path)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as sources:
        os.symlink(os.path.join(ROOT, "examples"), os.path.join(folder, "examples"))
        before = os.getcwd()
        os.chdir(folder)
        try:
            return Page(path, sources).run()
        finally:
            os.chdir(before)


if __name__ == "__main__":
    print(json.dumps(run_page(sys.argv[1])))
