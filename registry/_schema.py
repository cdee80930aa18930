"""The JSON Schema of a document, for completion and checks in an editor.

It comes from the pydantic models that check a document. JSON Schema can't express rules between fields, such as
``minimum <= maximum``: the descriptions state them, and only ``validate`` enforces them. Neither can it follow includes
and references: every value may be a reference, and a document that includes others need not be complete.
"""

from typing import Any, Dict, List, Type, Union

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from ._documents import SKIPPED_STEPS
from ._merging import DEFAULT_LOSS_SCALE
from ._monitor_options import Monitoring
from ._optimizer_spec import OPTIMIZERS, SCHEDULES, argument_model, names, spellings
from ._overrides import INCLUDE
from ._plugins import Plugin, loss_scales
from ._references import PATTERN, SCHEMA
from ._targets import Target
from ._targets import target as target_named

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE, _COMPLETE = "reference", "complete."
_NOTES = ("default", "description", "title")  # keywords that stay beside the alternatives of a schema


def document_schema(target: Union[Target, str, None] = None) -> Dict[str, Any]:
    """Return the JSON Schema of a document, with every loss scale that is registered now.

    Args:
        target: The TensorFlow that runs the document: a name such as ``"2.21"``, or a
            :class:`scalekeeper.registry.Target`. Default: the installed one, or else the newest.

    Returns:
        The schema as plain values for JSON.

    Raises:
        UnknownTargetError: The target is not known.

    Example:
        >>> import scalekeeper
        >>> scalekeeper.document_schema("2.3")["title"]
        'scalekeeper document for TensorFlow 2.3.4, Keras 2.4.0'
    """
    target = target if isinstance(target, Target) else target_named(target)
    definitions: Dict[str, Any] = {}
    optimizer, loss_scale = _optimizer(target, definitions), _loss_scale(definitions)
    for definition in definitions.values():
        if "properties" in definition:
            definition["properties"] = _with_references(definition["properties"])
    definitions[_REFERENCE] = {
        "description": "Another value of the document, such as ${loss_scale.minimum}; or ${env:NAME}, if the caller "
        "allows that environment variable.",
        "type": "string",
        "pattern": f"^{PATTERN}$",
    }
    others = {
        "skipped_steps": {
            "description": "Whether a skipped step advances iterations; native: as in the TensorFlow that runs it.",
            "enum": list(SKIPPED_STEPS),
            "default": SKIPPED_STEPS[0],
        },
        **Monitoring.model_json_schema(schema_generator=_Generator)["properties"],
    }
    complete = {key: {"$ref": f"#/$defs/{_COMPLETE}{key}"} for key in ("optimizer", "loss_scale")}
    return {
        "$schema": DIALECT,
        "title": f"scalekeeper document for {target}",
        "description": "An optimizer and its loss scale.",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            SCHEMA: {"type": "string", "description": "Where an editor finds this schema."},
            INCLUDE: {
                "description": "Files whose values this document starts from: a name relative to this file, or a list.",
                "anyOf": [_FILE_NAME, {"type": "array", "items": _FILE_NAME}],
            },
            **_with_references({"optimizer": optimizer, "loss_scale": loss_scale, **others}),
        },
        "if": {"not": {"required": [INCLUDE]}},
        "then": {"required": ["optimizer"], "properties": complete},
        "$defs": definitions,
    }


_FILE_NAME = {"type": "string", "minLength": 1}


def _with_references(properties: Dict[str, Any]) -> Dict[str, Any]:
    """Return the schemas of values that may be references instead."""
    return {key: schema if schema is True else _or_reference(schema) for key, schema in properties.items()}


def _or_reference(schema: Dict[str, Any]) -> Dict[str, Any]:
    notes = {key: schema[key] for key in _NOTES if key in schema}
    alone = {key: value for key, value in schema.items() if key not in _NOTES}
    options = alone["anyOf"] if list(alone) == ["anyOf"] else [alone]
    return {**notes, "anyOf": [*map(_with_items, options), {"$ref": f"#/$defs/{_REFERENCE}"}]}


def _with_items(option: Dict[str, Any]) -> Dict[str, Any]:
    return {**option, "items": _or_reference(option["items"])} if "items" in option else option


def _complete(kind: str, key: str, spelled: Dict[str, List[str]], definitions: Dict[str, Any]) -> Dict[str, Any]:
    """Return what a mapping must have if no included file can have it, and take that out of the definitions."""
    cases = []
    for name, spellings_of_one in spelled.items():
        required = definitions[f"{kind}.{name}"].pop("required", None)
        if required:
            is_this = {"required": [key], "properties": {key: {"enum": spellings_of_one}}}
            cases.append({"if": is_this, "then": {"required": required}})
    then: Dict[str, Any] = {"required": [key]}
    if cases:
        then["allOf"] = cases
    return {"if": {"type": "object"}, "then": then}


def _optimizer(target: Target, definitions: Dict[str, Any]) -> Dict[str, Any]:
    schedules = {}
    for name in names(SCHEDULES, target):
        schedules[name] = _define(definitions, "schedule." + name, argument_model(SCHEDULES, name, target))
    spelled_schedules = _spelled(SCHEDULES, target)
    schedule = _by_name("schedule", spelled_schedules, schedules)
    schedule["description"] = "A learning rate that changes with the steps."
    definitions["schedule"] = schedule

    optimizers = {}
    for name in names(OPTIMIZERS, target):
        key = "optimizer." + name
        optimizers[name] = _define(definitions, key, argument_model(OPTIMIZERS, name, target))
        rate = definitions[key]["properties"]["learning_rate"]
        number = {key: rate.pop(key) for key in ("type", "minimum", "maximum")}
        rate["anyOf"] = [number, {"$ref": "#/$defs/schedule"}]
    spelled = _spelled(OPTIMIZERS, target)
    complete = _complete("optimizer", "name", spelled, definitions)
    complete["then"]["properties"] = {"learning_rate": {"$ref": f"#/$defs/{_COMPLETE}schedule"}}
    definitions[_COMPLETE + "optimizer"] = complete
    definitions[_COMPLETE + "schedule"] = _complete("schedule", "schedule", spelled_schedules, definitions)
    return {
        "description": f"Which optimizer: a name, or a mapping with the name and arguments of {target}.",
        "anyOf": [{"enum": _all_of(spelled)}, _by_name("name", spelled, optimizers)],
    }


def _loss_scale(definitions: Dict[str, Any]) -> Dict[str, Any]:
    plugins: List[Plugin] = [row.plugin for row in loss_scales.listing() if row.plugin is not None]
    spelled = {plugin.name: [plugin.name, *plugin.aliases] for plugin in plugins}
    models = {plugin.name: _define(definitions, "loss_scale." + plugin.name, plugin.parameters) for plugin in plugins}
    for plugin in plugins:
        if plugin.description:
            definitions["loss_scale." + plugin.name]["description"] = plugin.description
    number_name, number_parameter = loss_scales.number
    number = dict(definitions["loss_scale." + number_name]["properties"][number_parameter])
    number.update(title="a number", description="A fixed loss scale.")
    definitions[_COMPLETE + "loss_scale"] = _complete("loss_scale", "name", spelled, definitions)
    alone = [spelling for plugin in plugins if plugin.needs_nothing for spelling in spelled[plugin.name]]
    return {
        "description": "How the loss is scaled: a number, a name, or a mapping with a name and parameters.",
        "default": DEFAULT_LOSS_SCALE,
        "anyOf": [number, {"enum": sorted(alone)}, _by_name("name", spelled, models)],
    }


def _spelled(kind: str, target: Target) -> Dict[str, List[str]]:
    found: Dict[str, List[str]] = {}
    for spelling, name in spellings(kind, target).items():
        found.setdefault(name, []).append(spelling)
    return found


def _all_of(spelled: Dict[str, List[str]]) -> List[str]:
    found = (spelling for spellings_of_one in spelled.values() for spelling in spellings_of_one)
    return sorted(found, key=lambda spelling: (spelling != spelling.lower(), spelling))  # lower-case names first


def _by_name(key: str, spelled: Dict[str, List[str]], references: Dict[str, Dict[str, Any]]) -> Dict[str, Any]:
    """Return the schema of a mapping whose ``key`` selects its other keys; if/then gives precise errors in editors."""
    cases = []
    for name, reference in references.items():
        is_this = {"required": [key], "properties": {key: {"enum": spelled[name]}}}
        cases.append({"if": is_this, "then": reference})
    return {"type": "object", "properties": _with_references({key: {"enum": _all_of(spelled)}}), "allOf": cases}


class _Generator(GenerateJsonSchema):
    """A generator that forbids parameters whose type JSON can't express."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> Dict[str, Any]:
        return {"not": {}}


def _define(definitions: Dict[str, Any], name: str, model: Type[BaseModel]) -> Dict[str, Any]:
    """Add the schema of a model, with the key that has its name, to the definitions; return a reference to it."""
    pointer = "#/$defs/" + name.replace("/", "~1")  # the separator of JSON pointers
    schema = model.model_json_schema(schema_generator=_Generator, ref_template=pointer + ".{model}")
    for inner_name, inner in schema.pop("$defs", {}).items():
        definitions[f"{name}.{inner_name}"] = inner
    schema.setdefault("properties", {})["schedule" if name.startswith("schedule.") else "name"] = True
    schema["title"] = name.partition(".")[2]
    exclusive = getattr(model, "exclusive", ())
    if exclusive:
        schema["allOf"] = [
            {"not": {"required": list(pair), "properties": {key: {"type": "number"} for key in pair}}}
            for pair in exclusive
        ]
    definitions[name] = schema
    return {"$ref": pointer}
