"""docs/reference/ has every public name, with every section that applies, and no internal name."""

import ast
import os
import re

import pytest

from scalekeeper_test_support.repository import load_script, repository_path

reference = load_script("docs/making/reference.py")
ENTRIES = reference.entries()


def page(name):
    with open(repository_path("docs", "reference", name), encoding="utf-8") as stream:
        return stream.read()


def missing(found, is_member=False):
    """Return what the docstring of a function lacks."""
    sections = found.docstring.sections
    names = [each.arg for each in found.arguments]
    documented = [name for name, _ in sections.get("Args", [])]
    lacks = [] if documented == names else [f"Args {documented}, not {names}"]
    returns = found.node.returns
    is_named = found.has_decorator("property") or is_member and re.match("Returns? |Yields? ", found.docstring.summary)
    if returns is not None and ast.unparse(returns) not in ("None", "NoReturn") and not is_named:
        lacks += [] if sections.get("Returns") else ["Returns"]
    return lacks + missing_errors(found, sections)


def missing_errors(function, sections):
    """Return the errors that a function raises itself and that its sections do not name."""
    raised = [name for name in function.raised if name != "NotImplementedError"]
    documented = {name for name, _ in sections.get("Raises", [])}
    lacks = [f"Raises {name}" for name in raised if name[0].isupper() and name not in documented]
    return lacks + (["Raises"] if raised and not documented else [])


def missing_in_class(entry):
    """Return what the docstring of a class lacks."""
    found, lacks = entry.definition, []
    sections, constructor = found.docstring.sections, entry.constructor
    if constructor is not None and entry.policy is None:
        names = [each.arg for each in constructor.arguments]
        documented = [name for name, _ in sections.get("Args", [])]
        lacks += [] if documented == names else [f"Args {documented}, not {names}"]
        lacks += missing_errors(constructor, sections)
    attributes = {name for name, _ in sections.get("Attributes", [])}
    return lacks + [f"Attributes {name}" for name in data_of(entry) if name not in attributes]


def data_of(entry):
    """Return the attributes of a named tuple or a model, or those that the constructor of an error sets."""
    body = entry.definition.node.body
    if {*reference.bases(entry.definition)} & {*reference.DATA_OF_CLASSES}:
        found = [each.target.id for each in body if isinstance(each, ast.AnnAssign)]
    elif entry.is_error:
        found = [
            each.attr
            for each in ast.walk(entry.definition.node)
            if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
        ]
    else:
        found = []
    return [name for name in found if not name.startswith("_")]


def lacks(entry):
    """Return everything that the docstrings of a public name and of its members lack."""
    found = entry.definition
    result = [] if found.docstring.summary else ["a first line"]
    result += [] if ">>> " in found.docstring.sections.get("Example", "") else ["Example"]
    if found.is_function:
        result += missing(found)
    elif found.is_class:
        result += missing_in_class(entry)
    for member, _ in entry.members:
        of_member = missing(member, is_member=True) if member.docstring.text else ["a first line"]
        result += [f"{member.node.name}: {each}" for each in of_member]
    return result


def test_every_public_name_has_an_entry():
    """`PAGES` of docs/making/reference.py has each name of each `__all__` once, and no other."""
    names = [name for _, _, topics in reference.PAGES.values() for _, several in topics for name in several.split()]
    assert sorted(names) == sorted(reference.public_names())


@pytest.mark.parametrize("name", ENTRIES)
def test_every_section_that_applies(name):
    """A name has a first line and an example; Args, Returns, Raises and Attributes if it has parameters, …."""
    assert lacks(ENTRIES[name]) == []


if __name__ == "__main__":
    for name, entry in ENTRIES.items():
        if lacks(entry):
            print(entry.page, entry.definition.module, name, lacks(entry))
