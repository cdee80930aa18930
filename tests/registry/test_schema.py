"""The schema and the validator are two views of one thing."""

import copy
import json

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalekeeper import (
    DynamicLossScale,
    InvalidSpecError,
    LossScale,
    UnknownTargetError,
    document_schema,
    load_document,
    temporary_registration,
)
from scalekeeper.registry import target
from scalekeeper.registry.field_types import FLOAT32_ABOVE_ONE, FLOAT32_MAX, FLOAT32_TINY

TARGETS = ("2.0", "2.10", "2.15", "2.21-tf_keras", "2.21-keras3")
SCHEMAS = {name: document_schema(target(name)) for name in TARGETS}
JUDGES = {name: jsonschema.Draft202012Validator(schema) for name, schema in SCHEMAS.items()}

# Values at and around every limit that some field has; NaN and infinity are not JSON, so no schema speaks of them.
LIMITS = st.one_of(
    st.sampled_from(
        [0, 1, -1, 2, 3, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 128, 1e-46, 1e39, -0.5, 2**63 - 1, 2**63, 10**400]
        + [FLOAT32_MAX, FLOAT32_TINY, FLOAT32_ABOVE_ONE, 2000, 2000.5, 1e300, -(10**400)]
    ),
    st.integers(-3, 5000),
    st.floats(-10, 1e6),
)
NUMBERS = st.one_of(st.sampled_from([128, 0.5, 1, 3]), LIMITS)
REFERENCES = st.sampled_from(
    [
        *("${optimizer.learning_rate}", "${optimizer.learning_rate.decay_steps}", "${loss_scale.increment_period}"),
        *("${stop_after_skips}", "${skipped_steps}", "${nothing}", "${env:HOME}", "$${x}"),
    ]
)
JUNK = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=5), st.just([]), st.just({}), st.just([1, 2]))


@st.composite
def named(draw, key, models, spelled, required):
    """A mapping that names one of several things, with parameters of it: mostly right, sometimes not."""
    name = draw(st.sampled_from(sorted(models)))
    mapping = {key: draw(st.sampled_from(spelled[name]))}
    properties = models[name]["properties"]
    fields = sorted(set(properties) - {key})
    chosen = draw(st.lists(st.sampled_from(fields), unique=True, max_size=3)) if fields else []
    for field in sorted({*chosen, *(required.get(name, []) if draw(st.integers(0, 15)) else [])}):
        mapping[field] = draw(value_for(properties[field]))
    if not draw(st.integers(0, 20)):
        mapping[draw(st.sampled_from(["lr", "name", "schedule", "decay", "jit_compile", "x"]))] = draw(JUNK)
    return mapping


def value_for(schema):
    """A value that suits the field; now and then one at or beyond its limits, or of another type."""
    suitable = [suit for option in [schema, *schema.get("anyOf", [])] for suit in suiting(option)]
    return st.integers(0, 15).flatmap(
        lambda roll: (
            JUNK
            if roll == 0 or not suitable
            else LIMITS
            if roll == 1
            else REFERENCES
            if roll == 2
            else st.one_of(suitable)
        )
    )


def suiting(schema):
    kind = schema.get("type")
    low, high = max(schema.get("minimum", 0), -100), min(schema.get("maximum", 100), 100)
    if kind == "number":
        yield st.floats(low, high)
    elif kind == "integer":
        yield st.integers(low, max(low, 100))
        yield st.integers(low, max(low, 100)).map(float)
    elif kind == "boolean":
        yield st.booleans()
    elif kind == "null":
        yield st.none()
    elif "enum" in schema:
        yield st.sampled_from(schema["enum"])
    elif kind == "array":
        yield st.sampled_from([[1], [1, 2], [0.5], [2, 1], [1, 2, 3], ["x"], []])


def models_of(schema, prefix):
    return {name[len(prefix) :]: model for name, model in schema["$defs"].items() if name.startswith(prefix)}


def spellings_of(cases):
    """Name → spellings, from the schema's own cases."""
    found = {}
    for case in cases["allOf"]:
        (key,) = case["if"]["required"]
        found[case["then"]["$ref"].partition(".")[2].replace("~1", "/")] = case["if"]["properties"][key]["enum"]
    return found


def required_by(schema, kind, key):
    """Name → what a mapping with it needs, if no included file has it."""
    cases = schema["$defs"]["complete." + kind]["then"].get("allOf", [])
    return {case["if"]["properties"][key]["enum"][0]: case["then"]["required"] for case in cases}


def documents(schema):
    optimizer_cases = schema["properties"]["optimizer"]["anyOf"][-2]
    scale_cases = schema["properties"]["loss_scale"]["anyOf"][-2]
    schedules = named(
        "schedule",
        models_of(schema, "schedule."),
        spellings_of(schema["$defs"]["schedule"]),
        required_by(schema, "schedule", "schedule"),
    )
    optimizers = named(
        "name",
        models_of(schema, "optimizer."),
        spellings_of(optimizer_cases),
        required_by(schema, "optimizer", "name"),
    )
    scheduled = st.builds(lambda optimizer, rate: dict(optimizer, learning_rate=rate), optimizers, schedules)
    names = optimizer_cases["properties"]["name"]["anyOf"][0]["enum"] + ["adm", "ADAM", ""]
    scales = named(
        "name", models_of(schema, "loss_scale."), spellings_of(scale_cases), required_by(schema, "loss_scale", "name")
    )
    optimizer = mostly(st.one_of(optimizers, scheduled, st.sampled_from(names)), JUNK)
    scale = mostly(st.one_of(scales, NUMBERS, st.just("dynamic")), st.one_of(JUNK, st.sampled_from(["fixed", "128"])))
    return st.fixed_dictionaries({"optimizer": optimizer, "loss_scale": scale}).flatmap(_with_variations)


def mostly(usual, rare):
    return st.integers(0, 12).flatmap(lambda roll: usual if roll else rare)


def _with_variations(document):
    def vary(drop, extra):
        varied = copy.deepcopy(document)
        varied.pop(drop, None)
        varied.update(extra)
        return varied

    drops = mostly(st.sampled_from(["", "loss_scale"]), st.just("optimizer"))
    right = [{}, {"$schema": "x"}, {"skipped_steps": "hold"}, {"stop_after_skips": 5}, {"stop_after_skips": None}]
    right += [{"attribute_overflows": True}, {"watch": []}, {"watch": ["zero_share", "largest_magnitude"]}]
    wrong = [{"$schema": 5}, {"other": 1}, {"skipped_steps": "x"}, {"skipped_steps": None}, {"skipped_steps": []}]
    wrong += [{"stop_after_skips": 0}, {"stop_after_skips": "5"}, {"watch": ["x"]}, {"watch": "zero_share"}]
    wrong += [{"attribute_overflows": 1}, {"attribute_overflows": None}, {"watch": None}]
    extras = mostly(st.sampled_from(right), st.sampled_from(wrong))
    return st.builds(vary, drops, extras)


def verdict(document, name):
    """Whether the validator accepts, and the kinds of problems it found."""
    try:
        load_document(document, target=name)
    except InvalidSpecError as error:
        return False, {problem.kind for problem in error.problems}
    return True, set()


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.data())
def test_what_one_accepts_the_other_accepts(name, data):
    """In both directions, but for what no JSON Schema can state: rules between fields, and what references refer to."""
    document = data.draw(documents(SCHEMAS[name]))
    accepted, kinds = verdict(document, name)
    by_schema = JUDGES[name].is_valid(document)
    if "${" in str(document):
        assert by_schema or not accepted, document
    elif kinds == {"rule"}:
        assert by_schema, "a document whose only fault is a rule between fields has the right form"
    else:
        assert accepted == by_schema, (document, kinds)


def test_the_generator_reaches_both_verdicts():
    """The comparison above would prove nothing if all documents were wrong, or all right."""
    counts = {True: 0, False: 0}

    @settings(max_examples=500)
    @given(documents(SCHEMAS["2.21-keras3"]))
    def count(document):
        counts[verdict(document, "2.21")[0]] += 1

    count()
    assert min(counts.values()) >= 80, counts


PIECEWISE = {"schedule": "piecewise_constant_decay", "boundaries": [1, 2], "values": [1, 2, 3]}


@pytest.mark.parametrize(
    "document",
    [
        {"optimizer": "sgd", "loss_scale": {"name": "dynamic", "minimum": 4, "maximum": 2}},
        {"optimizer": "sgd", "loss_scale": {"name": "dynamic", "maximum": 1024}},
        {"optimizer": "sgd", "loss_scale": {"name": "dynamic/apex", "minimum": 2**20}},
        {"optimizer": "sgd", "loss_scale": {"name": "scheduled", "values": [1, 2, 4], "boundaries": [2, 1]}},
        {"optimizer": "sgd", "loss_scale": {"name": "scheduled", "values": [1, 2, 4], "boundaries": [2]}},
        {"optimizer": "sgd", "loss_scale": {"name": "none", "apply_after_skips": 3}},
        {"optimizer": "sgd", "loss_scale": {"name": "adaptive_window", "initial_window": 21}},
        {"optimizer": {"name": "sgd", "learning_rate": dict(PIECEWISE, values=[1, 2])}},
        {"optimizer": {"name": "sgd", "learning_rate": dict(PIECEWISE, boundaries=[2, 1])}},
    ],
)
def test_the_rules_that_the_schema_can_not_state(document):
    """These are all: the schema finds the form right, the validator finds the rule broken."""
    assert JUDGES["2.21-keras3"].is_valid(document)
    assert verdict(document, "2.21") == (False, {"rule"})


@pytest.mark.parametrize("name", TARGETS)
def test_it_is_a_schema_of_2020_12(name):
    """The meta-schema agrees, and it is plain JSON."""
    schema = json.loads(json.dumps(SCHEMAS[name]))
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("name", TARGETS)
def test_every_property_is_described(name):
    """An editor has something to show for each key."""
    for key, model in SCHEMAS[name]["$defs"].items():
        for field, schema in model.get("properties", {}).items():
            if schema is not True and field != "schedule":
                assert schema.get("description"), (key, field)
    assert all(part["description"] for part in SCHEMAS[name]["properties"].values())


@pytest.mark.parametrize(
    ("document", "is_valid"),
    [
        ({"include": "base.yaml"}, True),
        ({"include": ["a.yaml", "b.json"], "optimizer": {"clipnorm": 1}, "loss_scale": {"minimum": 2}}, True),
        ({"include": "base.yaml", "optimizer": {"name": "sgd", "learning_rate": {"decay_steps": 5}}}, True),
        ({"include": "base.yaml", "loss_scale": {"name": "fixed"}}, True),
        ({"include": "base.yaml", "optimizer": {"name": "sgd", "momentum": "x"}}, False),
        ({"include": "base.yaml", "loss_scale": {"name": "fixed", "minimum": 1}}, False),
        ({"include": 5}, False),
        ({"include": ""}, False),
        ({"include": [["a.yaml"]]}, False),
        ({"loss_scale": "dynamic"}, False),
        ({"optimizer": {"clipnorm": 1}}, False),
        ({"optimizer": {"name": "sgd", "learning_rate": {"decay_steps": 5}}}, False),
        ({"optimizer": "sgd", "loss_scale": {"name": "fixed"}}, False),
        ({"optimizer": {"name": "sgd", "momentum": "${optimizer.learning_rate}"}}, True),
        ({"optimizer": {"name": "sgd", "momentum": "a ${optimizer.learning_rate}"}}, False),
        ({"optimizer": {"name": "sgd", "clipnorm": "${loss_scale.minimum}", "clipvalue": 1}}, True),
        ({"optimizer": {"name": "sgd", "clipnorm": 1, "clipvalue": 1}}, False),
    ],
    ids=str,
)
def test_includes_and_references_in_the_schema(document, is_valid):
    """A document that includes others need not be complete, and any value may be a reference."""
    assert JUDGES["2.21-keras3"].is_valid(document) is is_valid


def test_only_standard_keywords():
    """Nothing of pydantic's own leaks in that an editor would not know."""
    known = set(jsonschema.Draft202012Validator.VALIDATORS) | {
        "$schema",
        "$defs",
        "title",
        "description",
        "default",
        "then",
    }

    def walk(schema):
        if isinstance(schema, dict):
            assert set(schema) <= known, set(schema) - known
            for keyword, value in schema.items():
                if keyword in ("properties", "$defs"):
                    for inner in value.values():
                        walk(inner)
                elif keyword in ("anyOf", "allOf"):
                    for inner in value:
                        walk(inner)
                elif keyword in ("items", "if", "then", "not"):
                    walk(value)

    for schema in SCHEMAS.values():
        walk(schema)


def test_registered_policies_are_in_it():
    """A policy of the user's own, with its parameters and the first line of its docstring."""

    class Mine(DynamicLossScale):
        """Mine alone.

        More.
        """

    class Plain(LossScale):
        def __init__(self, start: float, strange: complex = 1j):
            pass

        def __call__(self):
            return 1.0

        def update(self, grads):
            return None, True

    with temporary_registration("mine", Mine, aliases=("my",)), temporary_registration("plain", Plain):
        schema = document_schema(target("2.21"))
        judge = jsonschema.Draft202012Validator(schema)
        for scale in ("mine", "my", {"name": "my", "minimum": 2}, {"name": "plain", "start": 3}):
            assert judge.is_valid({"optimizer": "sgd", "loss_scale": scale})
            assert verdict({"optimizer": "sgd", "loss_scale": scale}, "2.21")[0]
        for scale in ("plain", {"name": "plain", "start": "3"}, {"name": "plain", "start": 3, "strange": 1}):
            assert not judge.is_valid({"optimizer": "sgd", "loss_scale": scale})
            assert not verdict({"optimizer": "sgd", "loss_scale": scale}, "2.21")[0]
    assert schema["$defs"]["loss_scale.mine"]["description"] == "Mine alone."


def test_a_target_by_its_name():
    """A name, a Target, and nothing, which is the installed TensorFlow or the newest."""
    assert document_schema("2.21") == document_schema(target("2.21"))
    assert document_schema("2.0")["title"] != document_schema("2.21")["title"]
    assert document_schema() == document_schema(target())
    with pytest.raises(UnknownTargetError):
        document_schema("1.15")
