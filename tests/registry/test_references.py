"""References within a document and to environment variables: what they mean, and what they never tell."""

import os
import pickle
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalekeeper import ArgumentError, DocumentError, InvalidSpecError, load_document
from scalekeeper.registry._document_parser import MAX_NODES

FORM = "optimizer: {{name: adam, learning_rate: {}}}\nloss_scale: {{name: dynamic, minimum: {}}}\n"


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Load a document from an empty folder, by its bare name."""
    monkeypatch.chdir(tmp_path)

    def load_text(text, **options):
        (tmp_path / "train.yaml").write_bytes(text.encode("utf-8"))
        return load_document("train.yaml", target="2.15", **options)

    return load_text


def error_of(load, *args, **options):
    with pytest.raises(DocumentError) as caught:
        load(*args, **options)
    return str(caught.value)


def test_a_reference_is_the_value_it_refers_to(load):
    """A number, an element of a list, a mapping, and a reference to a reference."""
    text = """\
optimizer: {name: sgd, learning_rate: "${loss_scale.values[1]}", momentum: "${optimizer.learning_rate}"}
loss_scale: {name: scheduled, values: [2, 1, 4], boundaries: [1, 2]}
"""
    assert load(text).optimizer.arguments == {"learning_rate": 1.0, "momentum": 1.0}
    later = load(text, overrides=["optimizer.learning_rate=0.25"])
    assert later.optimizer.arguments == {"learning_rate": 0.25, "momentum": 0.25}
    assert load("optimizer: adam\nloss_scale: 8\nstop_after_skips: ${loss_scale}\n").monitoring.stop_after_skips == 8


def test_references_meet_what_was_included_and_overridden(load, tmp_path):
    """They are resolved last, so they refer to the values that win."""
    (tmp_path / "base.yaml").write_text(FORM.format("'${loss_scale.minimum}'", "0.5"))
    text = "include: base.yaml\noptimizer: {clipnorm: '${optimizer.learning_rate}'}\n"
    assert load(text).optimizer.arguments == {"learning_rate": 0.5, "clipnorm": 0.5}
    assert load(text, overrides=["loss_scale.minimum=2"]).optimizer.arguments == {"learning_rate": 2.0, "clipnorm": 2.0}
    assert load(text, overrides=["optimizer.clipnorm=${loss_scale.minimum}"]).optimizer.arguments["clipnorm"] == 0.5


def test_an_error_points_to_the_reference(load):
    """The value is wrong where it is used."""
    assert error_of(load, FORM.format(1, "'${optimizer.name}'")) == (
        "train.yaml:2:38: loss_scale.minimum: 'adam' must be a number\n"
        "   2 | loss_scale: {name: dynamic, minimum: '${optimizer.name}'}\n"
        "     |                                      ^^^^^^^^^^^^^^^^^^^"
    )


def test_a_reference_without_quotes_in_braces(load):
    """YAML ends the value there; the message says what to do."""
    assert "a reference is in quotes: '${…}'" in error_of(load, FORM.format(1, "${optimizer.name}"))
    assert "quotes" not in error_of(load, "optimizer: [1\n")


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (
            "'${nothing}'",
            "${nothing} refers to nothing: the document does not set 'nothing'; set there: optimizer,",
        ),
        ("'${optimizer.epsilon}'", "the document does not set 'epsilon'; set there: name, learning_rate"),
        ("'${optimizer.name.x}'", "there is no 'x': it is a value"),
        ("'${watch[5]}'", "there is no [5]: it is a list of 1"),
        ("'${}'", "'' is not a path"),
        ("'${ optimizer.name }'", "is not a path"),
        ("'${optimizer..name}'", "is not a path"),
        ("'${optimizer.name} '", "a reference is the whole of a value"),
        ("'a${optimizer.name}'", "a reference is the whole of a value"),
        ("'${${optimizer.name}}'", "a reference is the whole of a value"),
        ("'${optimizer.name'", "a reference is the whole of a value"),
        ("'${loss_scale.minimum}'", "a cycle of references: loss_scale.minimum → loss_scale.minimum"),
        ("'${loss_scale}'", "a cycle of references: loss_scale → loss_scale"),
        (
            "'${optimizer.learning_rate}'",
            "loss_scale.minimum → optimizer.learning_rate → loss_scale.minimum",
        ),
        ("'${env:}'", "'' is not the name of an environment variable"),
        ("'${env:A B}'", "'A B' is not the name of an environment variable"),
        ("'${env:\u0410}'", "is not the name of an environment variable"),
        ("'${ENV:HOME}'", "'ENV:HOME' is not a path"),
        ("'${env:HOME}'", "reading the environment variable HOME is not allowed. To allow it, pass allow_env=['HOME']"),
    ],
)
def test_wrong_references(load, reference, expected):
    """One message that points to the reference."""
    text = FORM.format("'${loss_scale.minimum}'" if "learning_rate}" in reference else 1, reference)
    found = error_of(load, text + "watch: [zero_share]\n")
    assert expected in found
    assert found.startswith("train.yaml:2:38: loss_scale.minimum: ") or "cycle" in found


def test_a_dollar_sign_is_written_twice(load):
    """``$${`` is the text ``${``; the schema's place is left alone, as is a dollar sign without a brace."""
    found = error_of(load, FORM.format(1, "'$${env:HOME}'"))
    assert "loss_scale.minimum: '${env:HOME}' must be a number" in found
    assert "'$5 $$' must be a number" in error_of(load, FORM.format(1, "'$5 $$'"))
    assert load("$schema: '${workspaceFolder}/x.json'\noptimizer: adam\n").optimizer.name == "adam"


@pytest.mark.parametrize(("value", "expected"), [("1e-3", 0.001), ("5", 5.0), (" 0.5\r\n", 0.5), ("0x10", 16.0)])
def test_an_environment_variable_is_a_scalar(load, monkeypatch, value, expected):
    """Read as in YAML, without the spaces around it, if its name is allowed."""
    monkeypatch.setenv("RATE", value)
    assert load(FORM.format("'${env:RATE}'", 1), allow_env=["RATE"]).optimizer.arguments["learning_rate"] == expected
    assert load({"a": 1} and FORM.format("'${env:RATE}'", 1), allow_env="RATE").optimizer.name == "adam"
    mapping = {"optimizer": {"name": "adam", "learning_rate": "${env:RATE}"}}
    assert load_document(mapping, allow_env=["RATE"]).optimizer.arguments["learning_rate"] == expected
    with pytest.raises(InvalidSpecError, match="RATE is not allowed"):
        load_document(mapping, allow_env=["RAT", "RATES", "rate"])


def test_a_variable_is_never_more_than_a_scalar(load, monkeypatch):
    """No mapping, no list, no reference, no tag comes out of the environment."""
    for value in (
        "{name: dynamic}",
        "[1]",
        "${optimizer.name}",
        "${env:OTHER}",
        "!!python/name:os.system",
        "*a",
        "a: b",
    ):
        monkeypatch.setenv("VALUE", value)
        text = error_of(load, "optimizer: adam\nloss_scale: ${env:VALUE}\n", allow_env=["VALUE"])
        assert "train.yaml:2:13: loss_scale: " in text
        assert value not in text


@pytest.mark.parametrize(
    ("value", "reason"),
    [(None, "not set"), ("", "empty"), (" \n", "empty"), ("9" * 500, "too long"), (b"a\xff", "not text")],
)
def test_variables_without_a_value(load, monkeypatch, value, reason):
    """Not set and empty are errors, and so are numbers of any length and bytes that are not text."""
    monkeypatch.delenv("VALUE", raising=False)
    if value is not None:
        monkeypatch.setenv("VALUE", os.fsdecode(value))
    text = error_of(load, FORM.format("'${env:VALUE}'", 1), allow_env=["VALUE"])
    assert reason in text.splitlines()[0]


@pytest.mark.parametrize("name", ["", "A B", "A=B", "*", "1A", "\u0410", 5])
def test_names_that_can_not_be_allowed(name):
    """Only exact names of ASCII letters, digits and underscores."""
    with pytest.raises(ArgumentError, match="is not the name of an environment variable"):
        load_document({"optimizer": "adam"}, allow_env=[name])


SECRETS = ["hunter2-correct-horse", "x" * 500, "-77123456", "-7.7123e11", "a\nb-secret", "Äpfel-geheim", "secret" * 20]


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret[:8])
@pytest.mark.parametrize(
    "form",
    [
        "optimizer: ${env:KEY}\n",
        "optimizer: {name: '${env:KEY}'}\n",
        "optimizer: {name: adam, learning_rate: '${env:KEY}'}\n",
        "optimizer: {name: adam, learning_rate: {schedule: '${env:KEY}'}}\n",
        "optimizer: {name: adam, beta_1: ['${env:KEY}', {a: '${env:KEY}'}]}\n",
        "optimizer: {name: adam, lr: '${env:KEY}'}\n",
        "optimizer: [adam, '${env:KEY}']\n",
        "optimizer: adam\nloss_scale: ${env:KEY}\n",
        "optimizer: adam\nloss_scale: {name: dynamic, minimum: 1, maximum: '${env:KEY}'}\n",
        "optimizer: adam\nloss_scale: {name: dynamic, refill: '${env:KEY}'}\n",
        "optimizer: adam\nskipped_steps: ${env:KEY}\n",
        "optimizer: adam\nskipped_steps: {a: '${env:KEY}'}\n",
        "optimizer: adam\nstop_after_skips: ${env:KEY}\n",
        "optimizer: adam\nwatch: ['${env:KEY}', '${watch[0]}']\n",
        "optimizer: adam\nloss_scale: '${skipped_steps}'\nskipped_steps: ${env:KEY}\n",
        "optimizer: {name: adam, epsilon: '${optimizer}'}\n",
        "${env:KEY}",
        "['${env:KEY}']",
        "x: ${env:KEY}\n",
    ],
)
def test_no_error_tells_a_secret(load, monkeypatch, form, secret):
    """No message and no finding contains a part of the value of a variable, even if the value is wrong."""
    monkeypatch.setenv("KEY", secret)
    with pytest.raises(DocumentError) as caught:
        load(form, allow_env=["KEY"], overrides=[])
    for text in (str(caught.value), repr(caught.value.findings), repr(pickle.loads(pickle.dumps(caught.value)).args)):
        for part in {secret, secret[:10], secret[-10:], repr(secret)[1:9], secret.strip()[-6:]}:
            assert part not in text
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("secret", ["4321", "4321.0", "4.321e3", "0x10E1"])
@pytest.mark.parametrize(
    "form",
    [
        "{name: dynamic, minimum: 9000, maximum: '${env:KEY}'}",
        "{name: dynamic, minimum: '${env:KEY}', maximum: 2}",
        "{name: dynamic, initial_loss_scale: '${env:KEY}', maximum: 2}",
        "{name: scheduled, values: [1, 2], boundaries: ['${env:KEY}', 5]}",
        "{name: scheduled, values: [1, 2, 3], boundaries: ['${env:KEY}', 5]}",
    ],
)
def test_no_error_tells_a_secret_that_a_rule_compares(load, monkeypatch, form, secret):
    """A number that is valid by itself, in a message on two parameters."""
    monkeypatch.setenv("KEY", secret)
    text = error_of(load, f"optimizer: adam\nloss_scale: {form}\n", allow_env=["KEY"])
    assert "4321" not in text
    assert "KEY" in text


@pytest.mark.parametrize(
    "lines",
    [
        # each line refers ten times to the next
        [f"k{number}: [" + ", ".join([f"'${{k{number + 1}}}'"] * 10) + "]" for number in range(30)],
        [f"k{number}: {{a: '${{k{number + 1}}}', b: '${{k{number + 1}}}'}}" for number in range(40)],
        # a chain, and one whose every link goes through others
        [f"k{number}: ${{k{number + 1}}}" for number in range(5000)],
        [f"k{number}: {{a: '${{k{number + 1}.a}}'}}" for number in range(2000)],
        ["k0: {a: '${k0}'}", "k1: ${k0" + ".a" * 60 + "}"],
        ["k0: {a: '${k1" + ".a" * 60 + "}'}", "k1: {a: '${k0" + ".a" * 60 + "}'}"],
        [f"k{number}: {{a: '${{k{number + 1}" + ".a" * 50 + "}'}" for number in range(50)],
        ["k: [" + ", ".join(f"'${{k[{number + 1}]}}'" for number in range(2000)) + "]"],
        ["k: &a ['${k}', '${k[0]}']", "l: [" + ", ".join(["*a"] * 500) + "]"],
    ],
)
def test_bombs_of_references(load, lines):
    """Expanding references ends soon, with an error."""
    began = time.process_time()
    text = error_of(load, "\n".join(["optimizer: adam", *lines]))
    assert time.process_time() - began < 2
    assert any(each in text for each in ("with what references refer to", "a cycle", "refers to nothing", "more than"))
    assert len(text) < 5000


def test_the_limit_of_values_counts_references(load):
    """Their values count each time."""
    text = "watch: [" + ", ".join(["1"] * (MAX_NODES // 2)) + "]\noptimizer: ${watch}\nloss_scale: ${watch}\n"
    assert "more than 10000 values" in error_of(load, text)


@given(st.text(alphabet="${}.[]0ak:env \u0410", max_size=12))
def test_any_text_with_braces(text):
    """It is a text, the value it refers to, or an error that is an InvalidSpecError."""
    document = {"optimizer": "adam", "loss_scale": {"name": "dynamic", "refill": text, "minimum": 2}}
    with pytest.raises(InvalidSpecError) as caught:
        load_document(document, target="2.15")
    assert all(problem.path[0] == "loss_scale" for problem in caught.value.problems)
