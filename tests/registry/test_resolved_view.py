"""What show says of a document: every effective argument, where it comes from, and a document that says the same."""

import os
import random
import re
import tempfile
import unittest.mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalekeeper import load_document, temporary_registration
from scalekeeper.registry import known_targets, target
from scalekeeper.registry._document_files import source_at, source_of
from scalekeeper.registry._documents import Access, access_of, check_nodes, resolved
from scalekeeper.registry._optimizer_spec import OPTIMIZERS, SCHEDULES, OptimizerSpec, argument_model
from scalekeeper.registry._overrides import parsed_overrides
from scalekeeper.registry._resolved_view import differences, document_of, entries, yaml_lines, yaml_text
from scalekeeper_test_support.composed_documents import composed


def view_of(text, name="2.15", overrides=(), access=None):
    access = access or Access()
    nodes = resolved(source_of("train.yaml", text.encode()), access, parsed_overrides(overrides))
    return entries(check_nodes(nodes, target(name), access, "train.yaml"), nodes, access)


def effective(spec, name, kind=OPTIMIZERS):
    """An optimizer with all of its arguments, also those that are left to the constructor."""
    fields = argument_model(kind, spec.name, target(name)).model_fields
    every = {each: field.get_default(call_default_factory=True) for each, field in fields.items()}
    given_ones = {
        each: effective(value, name, SCHEDULES) if isinstance(value, OptimizerSpec) else value
        for each, value in spec.arguments.items()
    }
    return spec.class_path, {**every, **given_ones}


def meaning(document):
    """What a document builds, as values that can be compared."""
    policy = document.loss_scale
    return (
        effective(document.optimizer, document.target.name),
        (type(policy), policy._parameters()),
        (document.skipped_steps, document.monitoring),
    )


@given(st.integers(0, 2**62))
def test_a_composed_document_means_what_it_was_made_of(seed):
    """Files, overrides, references and variables give the document they were made of; what show prints is the same."""
    rng = random.Random(seed)
    aim = rng.choice(known_targets())
    made = composed(rng, aim)
    with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, made.environment):
        path, access = made.write(folder), access_of(allow_env=made.environment)
        nodes = resolved(source_at(path), access, parsed_overrides(made.overrides))
        document = check_nodes(nodes, aim, access, path)
        expected = load_document(made.expected, target=aim.name)
        assert meaning(document) == meaning(expected)
        assert document.optimizer == expected.optimizer
        view = entries(document, nodes, access)
        stated, left_out = document_of(view, aim, access)
        shown = "\n".join(yaml_lines(stated, view, left_out))
        printed = os.path.join(folder, "printed.yaml")
        with open(printed, "w", encoding="utf-8") as stream:
            stream.write(shown)
        assert meaning(load_document(printed, target=aim.name)) == meaning(expected), shown


def test_every_argument_has_its_origin():
    """A file and a line, an override, a preset, or a default; what was replaced is remembered."""
    text = "optimizer:\n  name: adam\n  beta_1: 0.8\nloss_scale: {name: dynamic/apex, minimum: 2}\n"
    found = {each.path: each for each in view_of(text, overrides=["optimizer.beta_1=0.7", "optimizer.beta_1=0.6"])}
    beta, epsilon = found["optimizer", "beta_1"], found["optimizer", "epsilon"]
    assert (beta.value, beta.origin.kind, beta.origin.text) == (0.6, "override", "override optimizer.beta_1=0.6")
    assert beta.origin.replaced == ("override optimizer.beta_1=0.7", "train.yaml:3")
    assert (epsilon.value, epsilon.origin) == (
        1e-7,
        epsilon.origin._replace(kind="default", text="default of TensorFlow 2.15.1, Keras 2.15.0"),
    )
    origins = {path[1]: each.origin for path, each in found.items() if path[0] == "loss_scale"}
    assert (origins["minimum"].text, origins["minimum"].line, origins["minimum"].column) == ("train.yaml:4", 4, 43)
    assert (origins["maximum"].kind, origins["maximum"].text) == ("preset", "preset dynamic/apex")
    assert (origins["multiplier"].kind, origins["multiplier"].text) == ("default", "default of dynamic")
    assert found["skipped_steps",].origin.kind == "default"


def test_a_list_names_the_overrides_of_its_elements():
    """The line of the list, and what has replaced elements of it."""
    text = "optimizer: adam\nloss_scale: {name: scheduled, values: [1, 2], boundaries: [5]}\n"
    found = {each.path: each for each in view_of(text, overrides=["loss_scale.values[1]=4"])}
    assert found["loss_scale", "values"].value == [1.0, 4.0]
    assert found["loss_scale", "values"].origin.text == "train.yaml:2 and override loss_scale.values[1]=4"


def test_every_argument_of_every_optimizer_is_there():
    """A name alone shows all arguments that the target's constructor has."""
    for each in known_targets():
        for name in each.table[OPTIMIZERS]:
            paths = [entry.path for entry in view_of(f"optimizer: {name}", each.name)]
            assert {path[1] for path in paths if path[0] == "optimizer"} == {
                "name",
                *argument_model(OPTIMIZERS, name, each).model_fields,
            }


@pytest.mark.parametrize(
    ("name", "older", "newer", "argument", "values"),
    [
        ("lion", "2.15", "2.21", "learning_rate", (0.0001, 0.001)),
        ("rmsprop", "2.3", "2.15", "ema_overwrite_frequency", (None, 100)),
        ("adam", "2.10", "2.11", "jit_compile", (None, True)),
        ("adamax", "2.15", "2.21", "jit_compile", (True, None)),
    ],
)
def test_defaults_that_changed_between_versions(name, older, newer, argument, values):
    """The defaults of both targets are those of their tables."""
    both = [{each.path: each.value for each in view_of(f"optimizer: {name}", aim)} for aim in (older, newer)]
    assert tuple(each.get(("optimizer", argument)) for each in both) == values


def test_what_differs_between_targets():
    """Every default that two tables have in common and differently is found, and so is what one does not have."""
    for name in ("adam", "sgd", "rmsprop", "adadelta", "ftrl", "nadam"):
        first, second = view_of(f"optimizer: {name}", "2.0"), view_of(f"optimizer: {name}", "2.21")
        tables = [target(aim).table[OPTIMIZERS][name]["arguments"] for aim in ("2.0", "2.21")]
        expected = {
            argument
            for argument in {*tables[0], *tables[1]} - {"name", "loss_scale_factor"}
            if argument not in tables[0] or argument not in tables[1] or tables[0][argument] != tables[1][argument]
        }
        assert {each.path[1] for each in differences(first, second)} == expected
    assert differences(first, first) == []


def test_null_that_a_constructor_does_not_take():
    """It is left out of the document, and in the comment it is null, as in YAML."""
    view = view_of("optimizer: adam\n", "2.0")
    stated, left_out = document_of(view, target("2.0"), Access())
    lines = yaml_lines(stated, view, left_out)
    assert lines[-2:] == ["#   optimizer.clipnorm: null", "#   optimizer.clipvalue: null"]


def test_what_a_document_can_not_say():
    """A default that is not plain, or that its own type refuses, is left out of the document."""

    class Odd:
        def __init__(self, start: float = 8.0, strange: complex = 1j, count: int = "many", high: float = float("inf")):
            pass

        def __call__(self):
            return 1.0

        def update(self, grads):
            return None, True

    with temporary_registration("odd", Odd):
        view = view_of("optimizer: sgd\nloss_scale: {name: odd, start: 4}\n")
        document, left_out = document_of(view, target("2.15"), Access())
        assert document["loss_scale"] == {"name": "odd", "start": 4.0}
        assert {each.path[1] for each in left_out} == {"strange", "count", "high"}
        text = "\n".join(yaml_lines(document, view, left_out))
        assert "#   loss_scale.strange: 1j" in text
        assert view_of(text)


@given(st.text(max_size=30) | st.sampled_from(["null", "1e-3", "${x}", "$${x}", "a: b", "- a", "#", " ", "~", "0x1F"]))
def test_text_is_written_such_that_it_is_read_back(text):
    """Any text at all, also one that looks like a number or a reference, and one with line breaks."""
    line = yaml_text([text, {"k": text}])
    assert "\n" not in line
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return
    read = resolved(source_of("x.yaml", f"loss_scale: {line}".encode()), Access())
    assert read.plain() == {"loss_scale": [text, {"k": text}]}


def test_a_comment_stays_one():
    """An origin with a line break in its name can't add a line to the document."""
    view = [each._replace(origin=each.origin._replace(text="a\nb: 1\x85\u2028")) for each in view_of("optimizer: sgd")]
    lines = yaml_lines(document_of(view, target("2.15"), Access())[0], view, ())
    assert all(re.search(r"#.*\\n", line) or line.endswith(":") for line in lines)
    assert len("\n".join(lines).splitlines()) == len(lines)
