"""Text to plain values with places."""

import math

import pytest
from yaml import CSafeLoader, SafeLoader

from scalekeeper.registry import _document_parser
from scalekeeper.registry._document_parser import MAX_DEPTH, MAX_NODES, UnreadableError, read
from scalekeeper.registry._source_text import Source


@pytest.fixture(autouse=True, params=[CSafeLoader, SafeLoader])
def _both_parsers(request, monkeypatch):
    """PyYAML comes with libyaml or without; nothing may depend on which."""
    monkeypatch.setattr(_document_parser, "_YAML_LOADER", request.param)


def yaml(text):
    return read(Source("x.yaml", text), is_json=False)


def json(text):
    return read(Source("x.json", text), is_json=True)


def problem(reader, text):
    """The message, line and column of a syntax problem."""
    with pytest.raises(UnreadableError) as caught:
        reader(text)
    return (caught.value.message, *Source("x", text).position(caught.value.offset))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e-3", 0.001),
        ("1.", 1.0),
        (".5", 0.5),
        ("+12", 12),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("'1'", "1"),
        ('"true"', "true"),
        ("2001-01-01", "2001-01-01"),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("1e999", math.inf),
        ("=", "="),
        ("<<", "<<"),
    ],
)
def test_yaml_scalars_are_those_of_yaml_1_2(text, expected):
    """1e-3 is a number and no is text, as editors that check against a schema have it."""
    value = yaml("a: " + text).plain()["a"]
    assert (value, type(value)) == (expected, type(expected))


def test_yaml_nan():
    """It can be written; the validator refuses it later, with its place."""
    assert math.isnan(yaml("a: .nan").plain()["a"])


def test_aliases_stand_for_what_they_refer_to():
    """Anchors and aliases work in the ordinary way."""
    assert yaml("a: &x {b: [1, 2]}\nc: *x\n").plain() == {"a": {"b": [1, 2]}, "c": {"b": [1, 2]}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", ("the key 'a' is there twice, first at line 1", 3, 1)),
        (
            "a: !!python/object/apply:os.system [echo]",
            ("the tag 'tag:yaml.org,2002:python/object/apply:os.system' is not allowed: values are plain", 1, 4),
        ),
        ("a: !local {}", ("the tag '!local' is not allowed: values are plain", 1, 4)),
        ("a: !!str 5", ("the tag 'tag:yaml.org,2002:str' is not allowed: values are plain", 1, 4)),
        ("a: &x [*x]", ("the alias *x stands inside what it refers to", 1, 8)),
        ("a: *x", ("the alias *x has no anchor before it", 1, 4)),
        ("? [1]\n: 2", ("a key must be text, not a list or mapping", 1, 3)),
        ("5: x", ("a key must be text, not 5", 1, 1)),
        ("~: x", ("a key must be text, not None", 1, 1)),
        (
            "a: &x {b: 1}\nc:\n  <<: *x\n",
            ("YAML 1.2 has no merge keys: write the keys themselves, or put them into a file and include it", 3, 3),
        ),
        ("\t- x", ("YAML does not allow tabs for indentation; use spaces", 1, 1)),
        ("a: 1\n---\nb: 2", ("a second document starts here; a file holds one", 2, 1)),
        ("a: \x07", ("the character U+0007 is not allowed in YAML", 1, 4)),
        ("", ("the document is empty", 1, 1)),
        ("# only a comment\n", ("the document is empty", 1, 1)),
        ("a: " + "9" * 5000, ("a number of 5000 digits is too large", 1, 4)),
    ],
)
def test_yaml_that_is_refused(text, expected):
    """Each with its own message, at its place."""
    assert problem(yaml, text) == expected


@pytest.mark.parametrize("text", ["a: b: c", "a: [1", "{", "a: 'x", "%YAML 9\n---\n", "a: |x\n", "- a\nb: c"])
def test_broken_yaml(text):
    """Every error of PyYAML becomes a message of one line."""
    message, _, _ = problem(yaml, text)
    assert message.startswith("not YAML: ")
    assert "\n" not in message


def test_json_values():
    """Everything JSON has, with tabs for white space and escapes in strings."""
    text = '{\t"a": [1, -2.5e-1, true, false, null, "\\ud83d\\ude00\\u00e9\\"\\\\ {[,:"],\r\n "b": {}, "c": []}'
    assert json(text).plain() == {"a": [1, -0.25, True, False, None, '😀é"\\ {[,:'], "b": {}, "c": []}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1,\n "a": 2}', ("the key 'a' is there twice, first at line 1", 2, 2)),
        ('{"a": 1, "\\u0061": 2}', ("the key 'a' is there twice, first at line 1", 1, 10)),
        ('{"a": NaN}', ("not JSON: NaN is not a JSON number", 1, 7)),
        ('{"a": -Infinity}', ("not JSON: -Infinity is not a JSON number", 1, 7)),
        ('{"a": 1', ("not JSON: Expecting ',' delimiter", 1, 7)),
        ('{"a": "\\ud800"}', ("half of a pair of \\u escapes is not a character", 1, 7)),
        ('{"\\udc00": 1}', ("half of a pair of \\u escapes is not a character", 1, 2)),
        ("", ("the document is empty", 1, 1)),
        (" \n ", ("the document is empty", 1, 1)),
        ('{"a": ' + "9" * 5000 + "}", ("a number of 5000 digits is too large", 1, 7)),
    ],
)
def test_json_that_is_refused(text, expected):
    """Each with its own message, at its place."""
    assert problem(json, text) == expected


@pytest.mark.parametrize("text", ["{'a': 1}", "{a: 1}", "[1,]", "{}}", "// x\n{}", "nul", '"\x00"', "{,}"])
def test_what_is_yaml_but_not_json(text):
    """A file called .json is held to JSON."""
    assert problem(json, text)[0].startswith("not JSON: ")


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 1000, 100_000])
@pytest.mark.parametrize("reader", [yaml, json])
@pytest.mark.parametrize(("left", "right"), [("[", "]"), ('{"a":', "}")])
def test_deep_nesting(reader, depth, left, right):
    """However deep, it ends in one error and not in a stack overflow."""
    text = left * depth + "1" + right * depth
    assert problem(reader, text)[0] == f"nested deeper than {MAX_DEPTH} levels"


def test_nesting_up_to_the_limit_is_fine():
    """The limit itself is allowed."""
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert yaml(text).plain() == json(text).plain()


def test_an_alias_bomb():
    """Aliases that would expand to millions of values are counted, not expanded."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += ["a{0}: &a{0} [{1}]".format(n, ", ".join([f"*a{n - 1}"] * 10)) for n in range(1, 30)]
    assert problem(yaml, "\n".join(lines))[0] == f"more than {MAX_NODES} values (aliases count each time)"


@pytest.mark.parametrize("reader", [yaml, json])
def test_too_many_values(reader):
    """A wide document meets the same limit."""
    assert problem(reader, "[" + ",".join(["1"] * 20_000) + "]")[0].startswith("more than 10000 values")


@pytest.mark.parametrize("reader", [yaml, json])
def test_places(reader):
    """A path leads to its value, or to its key, or to the last thing on the way."""
    text = '{"a": {"b": [10, 200]},\n "cé": "d"}'
    root = reader(text)

    def found(path, at_key=False):
        span = root.find(path, at_key)
        return text[span.start : span.end]

    assert found(("a", "b", 1)) == "200"
    assert found(("a", "b"), at_key=True) == '"b"'
    assert found(("cé",)) == '"d"'
    assert found(("a", "b", "x", "y")) == "[10, 200]"
    assert found(("a", "nothing")) == '{"b": [10, 200]}'
    assert found(("nothing",), at_key=True) == text
