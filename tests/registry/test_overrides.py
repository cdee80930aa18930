"""Overrides: values that replace those of a document, and errors that point into them."""

import pytest

from scalekeeper import ArgumentTypeError, DocumentError, InvalidSpecError, load_document

TEXT = """\
optimizer:
  name: sgd
  learning_rate: {schedule: piecewise_constant_decay, boundaries: [10, 20], values: [0.1, 0.01, 0.001]}
  momentum: 0.9
loss_scale: {name: dynamic, initial_loss_scale: 4096, maximum: 8192}
"""


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Load a document from an empty folder with overrides, by its bare name, so that messages are short."""
    monkeypatch.chdir(tmp_path)

    def load_with(*overrides, text=TEXT, name="train.yaml"):
        (tmp_path / name).write_bytes(text.encode("utf-8"))
        return load_document(name, target="2.15", overrides=overrides)

    return load_with


def error_of(load, *overrides, **options):
    with pytest.raises(DocumentError) as caught:
        load(*overrides, **options)
    return str(caught.value)


def test_a_value_is_replaced_added_and_deleted(load):
    """In order: the last one wins; nothing else changes."""
    document = load(
        "optimizer.momentum=0.5", "optimizer.momentum=0.8", "optimizer.nesterov=true", "~loss_scale.maximum"
    )
    assert document.optimizer.arguments["momentum"] == 0.8
    assert document.optimizer.arguments["nesterov"] is True
    assert document.optimizer.arguments["learning_rate"].arguments["boundaries"] == [10, 20]
    assert (document.loss_scale.params.maximum, document.loss_scale.params.initial_loss_scale) == (None, 4096.0)


@pytest.mark.parametrize(
    ("override", "boundaries", "values"),
    [
        ("optimizer.learning_rate.boundaries=[1, 2]", [1, 2], [0.1, 0.01, 0.001]),
        ("optimizer.learning_rate.values[1]=5e-2", [10, 20], [0.1, 0.05, 0.001]),
        ("optimizer.learning_rate.values[2]=1", [10, 20], [0.1, 0.01, 1.0]),
    ],
)
def test_a_list_in_a_schedule(load, override, boundaries, values):
    """The whole list, or one element of it."""
    arguments = load(override).optimizer.arguments["learning_rate"].arguments
    assert (arguments["boundaries"], arguments["values"]) == (boundaries, values)


def test_an_element_is_deleted(load):
    """Together with the boundary that belongs to it."""
    found = load("~optimizer.learning_rate.values[0]", "~optimizer.learning_rate.boundaries[1]")
    assert found.optimizer.arguments["learning_rate"].arguments == {"boundaries": [10], "values": [0.01, 0.001]}


def test_a_mapping_is_replaced_as_a_whole(load):
    """A name or a mapping in its place: nothing of the old one stays."""
    assert load("loss_scale=dynamic/pytorch").loss_scale.params.initial_loss_scale == 65536.0
    assert load("loss_scale={name: dynamic, minimum: 2}").loss_scale.params.maximum is None
    assert load("optimizer.learning_rate=1e-3").optimizer.arguments["learning_rate"] == 0.001
    assert load("optimizer=adam").optimizer.arguments == {}
    assert load("~loss_scale").loss_scale.params.initial_loss_scale == 32768.0


@pytest.mark.parametrize(
    ("text", "override", "expected"),
    [
        ("optimizer: adam\nloss_scale: dynamic/pytorch\n", "loss_scale.increment_period=100", (65536.0, 100)),
        ("optimizer: adam\n", "loss_scale.increment_period=100", (32768.0, 100)),
        ("optimizer: adam\nloss_scale: {name: dynamic}\n", "loss_scale.initial_loss_scale=8", (8.0, 2000)),
    ],
)
def test_a_parameter_of_a_name(load, text, override, expected):
    """A name becomes a mapping with that name; without a loss scale, that of the default."""
    params = load(override, text=text).loss_scale.params
    assert (params.initial_loss_scale, params.increment_period) == expected


def test_other_short_forms(load):
    """An optimizer's name gets arguments, a number is a fixed loss scale."""
    document = load("optimizer.beta_1=0.5", "loss_scale.skip_nonfinite=true", text="optimizer: adam\nloss_scale: 128\n")
    assert (document.optimizer.name, document.optimizer.arguments) == ("adam", {"beta_1": 0.5})
    assert (document.loss_scale(), document.loss_scale.params.skip_nonfinite) == (128.0, True)


def test_an_alias_keeps_its_value(load):
    """An override changes the place it names, not the others that the anchor's value is used in."""
    text = (
        "optimizer: {name: sgd, learning_rate: &a {schedule: cosine_decay, initial_learning_rate: 1, decay_steps: 5}}"
    )
    text += "\nloss_scale: *a\n"
    error = error_of(load, "optimizer.learning_rate.decay_steps=7", text=text)
    assert "a loss scale given as a mapping needs a 'name'" in error
    changed = load("optimizer.learning_rate.decay_steps=7", "loss_scale={name: dynamic}", text=text)
    assert changed.optimizer.arguments["learning_rate"].arguments["decay_steps"] == 7
    kept = load("loss_scale.decay_steps=7", "loss_scale={name: dynamic}", text=text)
    assert kept.optimizer.arguments["learning_rate"].arguments["decay_steps"] == 5


def test_values_are_yaml(load):
    """Scalars as in a document, quoted or not; a hash is not a comment inside of a text."""
    assert load("optimizer.momentum=5e-1").optimizer.arguments["momentum"] == 0.5
    assert load("optimizer.clipnorm=null").optimizer.arguments["clipnorm"] is None
    assert load("$schema='a # b = c'").optimizer.name == "sgd"
    assert load(" optimizer.momentum = 0.5 ").optimizer.arguments["momentum"] == 0.5
    assert "'0.5' must be a number" in error_of(load, "optimizer.momentum='0.5'")


def test_an_error_points_into_the_override(load):
    """With a caret under the value, and where the value had been set before."""
    assert error_of(load, "optimizer.momentum=fast") == (
        "<override 1>:1:20: optimizer.momentum: 'fast' must be a number "
        "(train.yaml:4:13 had set it to 0.9)\n"
        "   1 | optimizer.momentum=fast\n"
        "     |                    ^^^^"
    )


def test_an_error_names_the_override_before(load):
    """Not the file, whose value another override had replaced."""
    text = error_of(load, "optimizer.momentum=0.1", "optimizer.momentum=-1")
    assert text.startswith("<override 2>:1:20: optimizer.momentum: -1 must be")
    assert "(<override 1>:1:20 had set it to 0.1)" in text


def test_errors_of_files_and_overrides_come_together(load):
    """Those of the file first, each with its own text."""
    text = error_of(load, "loss_scale.minimum=0", text=TEXT.replace("0.9", "9"))
    assert [line.partition(": ")[0] for line in text.splitlines() if not line.startswith(" ")] == [
        "train.yaml:4:13",
        "<override 1>:1:20",
    ]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("", "an override needs '='"),
        ("=", "'' is not a path"),
        ("~", "'' is not a path"),
        ("optimizer", "an override needs '='"),
        ("optimizer.momentum", "an override needs '='"),
        ("optimizer..momentum=1", "'optimizer..momentum' is not a path"),
        (".optimizer=1", "is not a path"),
        ("[0]=1", "is not a path"),
        ("optimizer.[0]=1", "is not a path"),
        ("optimizer momentum=1", "is not a path"),
        ("a" + ".a" * 64 + "=1", "is not a path"),
        ("optimizer.momentum=", "the value is missing; write null for null"),
        ("optimizer.momentum= # 5", "the document is empty"),
        ("optimizer.momentum=[1", "not YAML"),
        ("optimizer.momentum=}", "not YAML"),
        ("optimizer=name: sgd", "write a mapping as {key: value}"),
        ("optimizer=- sgd", "a list as [value]"),
        ("optimizer.momentum=1\nloss_scale: 5", "an override is one line"),
        ("optimizer.momentum=1\u2028x: 5", "an override is one line"),
        ("optimizer.momentum=!!python/name:os.system x", "the tag"),
        ("optimizer.momentum=*a", "the alias *a has no anchor"),
        ("optimizer.momentum=\x00", "the character U+0000"),
        ("optimizer.momentum=\udcff", "the character U+DCFF"),
        ("optimizer.momentum=1 # \udcff", "the character U+DCFF"),
        ("optimizer.\udcff=1", "is not a path"),
        ("optimizer={a: 1, a: 2}", "is there twice"),
        ("include=base.yaml", "'include' can't be overridden"),
        ("~include", "'include' can't be overridden"),
        (
            "~loss_scale.minimum",
            "does not set 'minimum'; did you mean 'maximum'? Set there: name, initial_loss_scale, maximum",
        ),
        ("~nothing", "the document does not set 'nothing'; set there: optimizer, loss_scale"),
        ("~optimizer.learning_rate.values[3]", "there is no [3]: it is a list of 3, [0] to [2]"),
        ("optimizer.learning_rate.values[3]=1", "there is no [3]"),
        ("optimizer.learning_rate.values[-1]=1", "is not a path"),
        ("optimizer.learning_rate.values.first=1", "optimizer.learning_rate.values is a list (train.yaml:3:85)"),
        ("optimizer[0]=1", "optimizer is a mapping"),
        ("watch[0]=zero_share", "does not set watch, so it has no [0]; give the whole list"),
        ("optimizer.momentum.x=1", "optimizer.momentum is a value (train.yaml:4:13), so it has no key 'x'"),
        ("optimiser.momentum=1", "unknown key 'optimiser'; did you mean 'optimizer'?"),
        ("\u043eptimizer.momentum=1", "unknown key '\u043eptimizer'"),
        ("optimizer.momentun=1", "unknown parameter 'momentun' of sgd; did you mean 'momentum'?"),
        ("loss_scale=fixed", "fixed needs 'loss_scale_value', which is not given"),
        ("~optimizer.name", "optimizer needs 'name'"),
        ("~optimizer", "the key 'optimizer' is missing"),
        ("loss_scale.name=os:system", "importing 'os:system' is not allowed"),
        ("optimizer.momentum=" + "9" * 500, "a number of 500 digits is too large"),
        ("optimizer.momentum=" + "[" * 70 + "]" * 70, "nested deeper than 64 levels"),
    ],
)
def test_wrong_overrides(load, override, expected):
    """One message each, which points into the override or the file."""
    text = error_of(load, override)
    assert expected in text


def test_a_document_that_is_not_a_mapping(load):
    """An override can't begin in a list or in a text."""
    for text in ("[]", "5", "adam"):
        assert "the document is a" in error_of(load, "optimizer.momentum=1", text=text)


def test_a_mapping_of_a_program():
    """Its values have no place, those of overrides do."""
    document = {"optimizer": {"name": "sgd"}, "loss_scale": "dynamic"}
    assert load_document(document, overrides="loss_scale.minimum=2").loss_scale.params.minimum == 2.0
    assert document == {"optimizer": {"name": "sgd"}, "loss_scale": "dynamic"}
    with pytest.raises(DocumentError, match=r"<override 1>:1:20: loss_scale\.minimum: -2 must"):
        load_document(document, overrides=["loss_scale.minimum=-2"])
    with pytest.raises(InvalidSpecError, match=r"optimizer\.momentum: 'x' must be a number"):
        load_document({"optimizer": {"name": "sgd", "momentum": "x"}}, overrides=["loss_scale.minimum=2"])
    with pytest.raises(ArgumentTypeError, match="an override is a text"):
        load_document(document, overrides=[5])
