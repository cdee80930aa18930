"""Every example in a docstring does what it shows."""

import doctest
import importlib
import os
import pkgutil

import pytest

import scalekeeper
from scalekeeper.registry import loss_scales
from scalekeeper_test_support.reference_examples import examples

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(scalekeeper.__path__, "scalekeeper.")
    if not module.name.endswith("__main__") and not module.name.startswith("scalekeeper.optimizer.")
)
# those of public names run by themselves: test_reference.py
WITH_INTERNAL_EXAMPLES = {
    "scalekeeper.serialization._variable_order",
    "scalekeeper.serialization.keras._changed_meanings",
    "scalekeeper.serialization.keras._optimizer_config",
    "scalekeeper.serialization.keras.profile",
    "scalekeeper.serialization.keras.target",
}


@pytest.fixture(autouse=True)
def _in_the_root(monkeypatch):
    """Examples name files of the checkout, and what they register is gone afterwards."""
    monkeypatch.chdir(ROOT)
    assert "dynamic" in loss_scales.names()  # the built-in ones are registered before the copy is made
    monkeypatch.setattr(loss_scales, "_names", dict(loss_scales._names))


def public_sources():
    """Return the lines of code of each public example."""
    parser = doctest.DocTestParser()
    return {tuple(each.source for each in parser.get_examples(text)) for text, _ in examples().values()}


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    """The internal examples of a module pass, and it has some where it should."""
    public, attempted, failed = public_sources(), 0, 0
    for test in doctest.DocTestFinder().find(importlib.import_module(name)):
        if tuple(each.source for each in test.examples) not in public:
            result = doctest.DocTestRunner().run(test)
            attempted, failed = attempted + result.attempted, failed + result.failed
    assert failed == 0
    assert (attempted > 0) is (name in WITH_INTERNAL_EXAMPLES)
