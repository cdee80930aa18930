"""The tables of docs/configuration.md: from the models that check a document, and from what each version has."""

from typing import Any, Callable, Dict, List, Mapping, Sequence

import json

from scalekeeper.registry import known_targets, loss_scales
from scalekeeper.registry._monitor_options import Monitoring
from scalekeeper.registry._optimizer_spec import OPTIMIZERS, SCHEDULES, argument_model, names
from scalekeeper.registry._schema import document_schema
from scalekeeper.registry._targets import Target, ranges
from scalekeeper.registry.field_types import FLOAT32_ABOVE_ONE, FLOAT32_BELOW_ONE, FLOAT32_MAX, FLOAT32_TINY, INT64_MAX

NEWEST = known_targets()[-1]
# bounds of the device's types, in words; None goes without saying
_LEAST = {FLOAT32_TINY: "> 0", FLOAT32_ABOVE_ONE: "> 1", -FLOAT32_MAX: None}
_WORDS = {"integer": "whole number", "boolean": "true or false", "string": "text"}
_OFTEN = {FLOAT32_TINY: "2^-126", FLOAT32_MAX: "float32's largest"}
_MOST = {FLOAT32_BELOW_ONE: "< 1", FLOAT32_MAX: None, 1 / FLOAT32_TINY: None, INT64_MAX: None}


def parts_of_page() -> Dict[str, str]:
    """Name → text of each marked part."""
    return {
        "document": document_keys(),
        "policies": policies(),
        "presets": presets(),
        "monitoring": parameters(Monitoring),
        "optimizers": optimizers_or_schedules(OPTIMIZERS),
        "every optimizer": arguments_of_all(),
        "schedules": optimizers_or_schedules(SCHEDULES),
    }


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def code(value: Any) -> str:
    return f"`{value}`"


# Types and bounds


def kind(schema: Mapping[str, Any]) -> str:
    """A type and its bounds in words, from its JSON Schema."""
    if "anyOf" in schema:
        return " or ".join(kind(each) for each in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(code(value) for value in schema["enum"])
    if "const" in schema:
        return code(schema["const"])
    name = schema["type"]
    if name == "array":
        at_least = " (not empty)" if schema.get("minItems") else ""
        return f"list of {kind(schema['items'])}{at_least}"
    bounds = [each for each in (_bound(schema, "minimum", "≥", _LEAST), _bound(schema, "maximum", "≤", _MOST)) if each]
    if schema.get("exclusiveMinimum") == 0:
        bounds = ["> 0"] + [each for each in bounds if not each.startswith("≥")]
    return " ".join([_WORDS.get(name, name), ", ".join(bounds)]).strip()


def _bound(schema: Mapping[str, Any], key: str, sign: str, words: Mapping[float, Any]) -> Any:
    if key not in schema:
        return None
    return words[schema[key]] if schema[key] in words else f"{sign} {number(schema[key])}"


def number(value: Any) -> str:
    """2^15 where it is a large power of two."""
    if value in _OFTEN:
        return _OFTEN[value]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value):
        exponent = int(value).bit_length() - 1
        return f"2^{exponent}" if exponent >= 12 and value == 2**exponent else str(int(value))
    return json.dumps(value)


def default(schema: Mapping[str, Any], is_required: bool) -> str:
    if is_required:
        return "required"
    if "default" not in schema:
        return "left to Keras"
    value = schema["default"]
    return code(number(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else json.dumps(value))


def parameters(model: Any) -> str:
    """A row for each field."""
    schema = model.model_json_schema()
    required = schema.get("required", [])
    rows = [
        [code(name), kind(field), default(field, name in required), field["description"]]
        for name, field in schema["properties"].items()
    ]
    return table(["parameter", "type", "default", "what it is"], rows)


# Documents and policies


def document_keys() -> str:
    rows = []
    schema = document_schema(NEWEST)
    for name, field in schema["properties"].items():
        said = field["description"].replace(f"of {NEWEST}", "of the target")
        value = field.get("default", "")
        shown = (
            "required"
            if name in schema["then"]["required"]
            else code(json.dumps(value).strip('"'))
            if value != ""
            else ""
        )
        rows.append([code(name), shown, said])
    return table(["key", "default", "what it is"], rows)


def built_in(is_preset: bool) -> List[Any]:
    """Those of the package itself, not what else is installed or registered."""
    plugins = [row.plugin for row in loss_scales.listing() if row.plugin is not None]
    ours = [plugin for plugin in plugins if plugin.cls.__module__.startswith("scalekeeper.")]
    return [plugin for plugin in ours if (plugin.preset is not None) is is_preset]


def policies() -> str:
    found = []
    for plugin in built_in(is_preset=False):
        also = f" Also called {', '.join(map(code, plugin.aliases))}." if plugin.aliases else ""
        found.append(f"### {plugin.name}\n\n{plugin.description}{also}\n\n{parameters(plugin.parameters)}\n")
    return "\n".join(found)


def presets() -> str:
    rows = []
    for plugin in built_in(is_preset=True):
        changed = ", ".join(f"`{name}` = {said(value)}" for name, value in plugin.preset.items())
        rows.append([code(plugin.name), changed or "none", plugin.description])
    return table(["preset", "other defaults than `dynamic`", "whose rule it is"], rows)


def said(value: Any) -> str:
    return number(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else json.dumps(value)


# Optimizers and schedules


def optimizers_or_schedules(of: str) -> str:
    """A section for each, with its own arguments and the versions that have them."""
    of_all = argument_rows(OPTIMIZERS, "sgd") if of == OPTIMIZERS else []
    found = []
    for name in sorted({name for target in known_targets() for name in names(of, target) if "." not in name}):
        shared = [row for row in of_all if row[0].strip("`") in shared_arguments()]
        rows = [row for row in argument_rows(of, name) if not any(_says_the_same(row, other) for other in shared)]
        also = [
            f" As `{kind_of}.{name}` on {where(lambda target, each=f'{kind_of}.{name}': each in target.table[of])}."
            for kind_of in ("legacy", "experimental")
            if any(f"{kind_of}.{name}" in target.table[of] for target in known_targets())
        ]
        place = where(lambda target, name=name: name in target.table[of])
        head = ["argument", "type", "default", "TensorFlow", "what it is"]
        found.append(f"### {name}\n\nOn {place}.{''.join(also)}\n\n{table(head, rows)}\n")
    return "\n".join(found)


def _says_the_same(row: Sequence[str], other: Sequence[str]) -> bool:
    """But for the versions: an optimizer may be younger than an argument."""
    return [*row[:3], row[4]] == [*other[:3], other[4]]


def where(is_wanted: Callable[..., bool]) -> str:
    """The versions in few words."""
    of_keras_2, of_keras_3 = [], []
    for each in ranges(is_wanted):
        (of_keras_3 if "keras3" in each else of_keras_2).append(each)
    is_all_of_keras_3 = of_keras_3 == ["2.16-keras3 to 2.21-keras3"]
    words = []
    for each in of_keras_2:
        start, _, end = each.partition(" to ")
        if start == "2.16-tf_keras" and end == "2.21-tf_keras":
            words.append("tf_keras")
        elif end == "2.21-tf_keras" and is_all_of_keras_3:
            return "all" if start == "2.0" else f"{start} and later"
        elif end == "2.21-tf_keras":
            words.append(f"{start} to 2.15, tf_keras")
        else:
            words.append(each)
    return ", ".join(words + (["Keras 3"] if is_all_of_keras_3 else of_keras_3))


def shared_arguments() -> List[str]:
    """Those that all optimizers of a target have, wherever a target has them; but not the learning rate."""
    of_all: Dict[str, bool] = {}
    for target in known_targets():
        plain = [name for name in names(OPTIMIZERS, target) if "." not in name]
        fields = [argument_model(OPTIMIZERS, name, target).model_fields for name in plain]
        for argument in {each for some in fields for each in some}:
            of_all[argument] = of_all.get(argument, True) and all(argument in some for some in fields)
    return sorted(name for name, is_shared in of_all.items() if is_shared and name != "learning_rate")


def arguments_of_all() -> str:
    rows = [row for row in argument_rows(OPTIMIZERS, "sgd") if row[0].strip("`") in shared_arguments()]
    return table(["argument", "type", "default", "TensorFlow", "what it is"], rows)


def argument_rows(of: str, name: str) -> List[List[str]]:
    """A row for each argument that any version has; type and default are those of the newest that has it."""
    having: Dict[str, Target] = {}
    for target in known_targets():
        if name in target.table[of]:
            having.update(dict.fromkeys(argument_model(of, name, target).model_fields, target))
    everywhere = where(lambda target: name in target.table[of])
    rows = []
    for argument in sorted(having, key=lambda each: (each != "learning_rate", each)):
        schema = argument_model(of, name, having[argument]).model_json_schema()
        field, required = schema["properties"][argument], schema.get("required", [])
        place = where(lambda target, argument=argument: _has(of, name, argument, target))
        words = [code(argument), kind(field), default(field, argument in required)]
        rows.append([*words, "all" if place == everywhere else place, field["description"]])
    return rows


def _has(of: str, name: str, argument: str, target: Target) -> bool:
    return name in target.table[of] and argument in argument_model(of, name, target).model_fields
