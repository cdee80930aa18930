"""docs/reference/ has every public name, with every section that applies, and no internal name."""

import ast
import importlib
import re

import pytest

from scalekeeper.registry import loss_scales
from scalekeeper_test_support.dependencies import project
from scalekeeper_test_support.reference_examples import examples, failures, folder_with_examples
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
    documented = [name.lstrip("*") for name, _ in sections.get("Args", [])]
    lacks = [] if documented == names else [f"Args {documented}, not {names}"]
    returns = found.node.returns
    summary = found.docstring.summary
    is_named = found.has_decorator("property") or (is_member and summary.startswith(("Return ", "Yield ")))
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
        documented = [name.lstrip("*") for name, _ in sections.get("Args", [])]
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


def control(source):
    """Return the definition of the only function or class of a program."""
    (node,) = ast.parse(source).body
    return reference.Definition("control", node, reference.parsed_docstring(ast.get_docstring(node)))


def test_every_public_name_has_an_entry():
    """`PAGES` of docs/making/reference.py has each name of each `__all__` once, and no other."""
    names = [name for _, _, topics in reference.PAGES.values() for _, several in topics for name in several.split()]
    assert sorted(names) == sorted(reference.public_names())


def test_every_room_is_public():
    """`ROOMS` has every package with an `__all__`."""
    packages = project()["tool"]["setuptools"]["packages"]
    assert {each for each in packages if hasattr(importlib.import_module(each), "__all__")} == set(reference.ROOMS)


@pytest.mark.parametrize("name", ENTRIES)
def test_every_section_that_applies(name):
    """A name has a first line and an example; Args, Returns, Raises and Attributes if it has parameters, …."""
    assert lacks(ENTRIES[name]) == []


@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_is_on_its_page(name):
    """The committed page has its heading, its address, its example, and a link to the page that explains it."""
    entry = ENTRIES[name]
    _, section = page(entry.page + ".md").split(f"\n## {entry.heading}\n")
    section = section.partition("\n## ")[0]
    assert entry.address in section
    assert "**Example**\n\n```pycon\n>>> " in section
    assert f"](../{entry.explained})." in section
    assert [f"### `{name}.{each.node.name}`\n" in section for each, _ in entry.members] == [True] * len(entry.members)
    assert f"[`{entry.address}`]({entry.page}.md#" in page("index.md")


@pytest.mark.parametrize("name", reference.PAGES)
def test_every_heading_of_a_page_has_its_own_anchor(name):
    """A link to a class does not lead to a function or a page whose name differs in upper and lower case only."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page(f"{name}.md"), flags=re.DOTALL), re.MULTILINE)
    anchors = [reference._anchor(heading) for heading in headings]
    assert len(anchors) > 2
    assert sorted(anchors) == sorted({*anchors})


def test_links_to_names_that_differ_in_case_only():
    """The index links to the class and to the function, each by its kind."""
    assert "[`scalekeeper.registry.Target`](documents.md#target-class)" in page("index.md")
    assert "[`scalekeeper.registry.target`](documents.md#target-function)" in page("index.md")
    assert "[`scalekeeper.build`](documents.md#build)" in page("index.md")


def test_the_optimizer_has_every_documented_member():
    """The members of TensorFlow's class and scalekeeper's own are on the page, also those that only adapters define."""
    entry = ENTRIES["LossScaleOptimizer"]
    members = {each.node.name for each, _ in entry.members}
    assert members >= {
        *("loss_scale", "dynamic", "initial_scale", "dynamic_growth_steps", "dynamic_counter", "lr", "iterations"),
        *("get_scaled_loss", "get_unscaled_gradients", "apply_gradients", "minimize", "get_gradients", "get_updates"),
        *("get_slot", "get_slot_names", "add_slot", "add_weight", "get_weights", "set_weights", "weights", "variables"),
        *("get_config", "from_config", "state_dict", "load_state_dict", "telemetry", "skipped_steps"),
        *("raise_if_stuck", "scale_loss", "apply", "build", "compute_gradients"),
    }
    attributes = [name for name, _ in entry.definition.docstring.sections["Attributes"]]
    assert attributes == ["inner_optimizer", "learning_rate"]


@pytest.mark.parametrize("name", [*(f"{page}.md" for page in reference.PAGES), "index.md"])
def test_no_internal_name_is_on_a_page(name):
    """Outside of examples, no name on a page begins with an underscore; `__version__` is public."""
    text = re.sub(r"```pycon.*?```", "", page(name), flags=re.DOTALL)
    assert {*re.findall(r"(?<!\w)_\w+", text)} <= {"__version__", "__call__"}


def test_names_of_several_rooms_are_the_same_object():
    """A name stands for one object wherever it is public, so one entry is enough."""
    for name, entry in ENTRIES.items():
        homes = [importlib.import_module(room) for room in reference.ROOMS if room != "scalekeeper.optimizer"]
        if entry.definition.module.startswith("scalekeeper.optimizer"):
            continue  # needs TensorFlow
        found = [getattr(home, name) for home in homes if name in home.__all__]
        assert all(each is found[0] or each == found[0] for each in found)


def test_missing_sections_are_found():
    """The checks above fail for a function without a section, and not for one with all of them."""
    complete = '''
def scale(loss: float, *, by: float = 2.0) -> float:
    """Scale a loss.

    Args:
        loss: The loss.
        by: The factor.

    Returns:
        The product.

    Raises:
        ValueError: The factor is 0.
    """
    if not by:
        raise ValueError("0")
    return loss * by
'''
    assert missing(control(complete)) == []
    assert missing(control(complete.replace("        by: The factor.\n", ""))) == ["Args ['loss'], not ['loss', 'by']"]
    assert missing(control(complete.replace("    Returns:\n        The product.\n", ""))) == ["Returns"]
    assert missing(control(complete.replace("ValueError: The", "TypeError: The"))) == ["Raises ValueError"]
    error = '''
class LostError(ScalekeeperError):
    """Raised for a test.

    Example:
        >>> 1
        1
    """

    def __init__(self, where):
        self.where = where
'''
    entry = reference.Entry("scalekeeper.LostError", control(error), "errors", "policies.md")
    assert lacks(entry) == ["Attributes where"]
    entry = entry._replace(definition=control(error.replace("        >>> 1\n", "")))
    assert lacks(entry) == ["Example", "Attributes where"]


@pytest.mark.parametrize("name", [name for name, (_, needs_tensorflow) in examples().items() if not needs_tensorflow])
def test_example(name, tmp_path, monkeypatch):
    """An example needs nothing but what it imports, and a folder with `examples/`."""
    assert "dynamic" in loss_scales.names()  # the built-in ones are registered before the copy is made
    monkeypatch.setattr(loss_scales, "_names", dict(loss_scales._names))
    with folder_with_examples(str(tmp_path)):
        assert failures(name, examples()[name][0]) == ""
