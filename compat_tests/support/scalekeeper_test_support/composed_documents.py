"""Random documents that are spread over files, overrides, references and environment variables.

The expected document is known before it is spread, so what resolving gives back can be compared with it.
"""

from typing import NamedTuple

import json
import os

import yaml

from scalekeeper.registry import load_document, loss_scales
from scalekeeper.registry._optimizer_spec import OPTIMIZERS, SCHEDULES, argument_model, names
from scalekeeper.registry.errors import InvalidSpecError, dotted

_POLICIES = ("dynamic", "dynamic/pytorch", "dynamic/deepspeed", "log_max", "tolerant", "adaptive_window", "none")
_VARIABLE = "SCALEKEEPER_TEST_VALUE"


class Composed(NamedTuple):
    """Files by name, of which the first is the document; overrides; environment variables; and what it all means."""

    files: dict
    overrides: list
    environment: dict
    expected: dict

    def write(self, folder):
        """Write the files, and return the path of the document."""
        for name, text in self.files.items():
            path = os.path.join(str(folder), name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(text)
        return os.path.join(str(folder), next(iter(self.files)))


def composed(rng, target):
    """Return a random document for a target, in pieces."""
    expected = _valid_document(rng, target)
    leaves = dict(_leaves(expected))
    written = dict(leaves)
    environment = {}
    for path in rng.sample(sorted(leaves), min(len(leaves), 4)):
        value, other = leaves[path], rng.choice(sorted(leaves))
        if path in _referred(written) or path[-1] in ("name", "schedule"):
            continue
        if _is_number(value) and _is_number(leaves[other]) and path != other and rng.random() < 0.6:
            changed = {**leaves, path: leaves[other]}
            if written[other] == leaves[other] and _is_valid(changed, target):
                leaves, written[path] = changed, "${" + dotted(other) + "}"
        elif isinstance(value, (int, float, str)) and not environment and rng.random() < 0.2:
            environment[_VARIABLE] = json.dumps(value).strip('"')
            written[path] = "${env:" + _VARIABLE + "}"
    files, overrides = _spread(rng, written)
    return Composed(files, overrides, environment, _nested(leaves))


def _referred(written):
    texts = [value for value in written.values() if isinstance(value, str)]
    return [path for path in written if "${" + dotted(path) + "}" in texts]


def _spread(rng, leaves):
    """Set each leaf in one of several layers: files that include one another, and overrides above all."""
    count = rng.randint(1, 4)
    layers = [{} for _ in range(count)]
    overrides = []
    for path, value in leaves.items():
        if rng.random() < 0.15 and path[-1] not in ("name", "schedule"):
            overrides.append((path, value))
            layer = count
        else:
            layer = rng.randrange(count)
            layers[layer][path] = value
        if layer and rng.random() < 0.3:  # an earlier value, which is replaced
            layers[rng.randrange(layer)][path] = rng.choice([value, 3, "old", [1], None])
    deleted = ("loss_scale", "junk")
    if rng.random() < 0.2 and any(path[0] == "loss_scale" for path in leaves):
        layers[rng.randrange(count)][deleted] = rng.choice([1, {"a": [2]}])
        overrides.append((deleted, None))
    rng.shuffle(overrides)
    texts = [
        "~" + dotted(path) if path == deleted else f"{dotted(path)}={json.dumps(value)}" for path, value in overrides
    ]
    return _files(rng, layers), texts


def _files(rng, layers):
    """Write layers as files: a chain of includes, or a list."""
    names_of_layers = [f"{rng.choice(['', 'sub/'])}part{number}{rng.choice(_ENDINGS)}" for number in range(len(layers))]
    names_of_layers[-1] = "train" + rng.choice(_ENDINGS)
    is_chain = rng.random() < 0.5
    files = {}
    for number in reversed(range(len(layers))):
        document = _nested(layers[number])
        below = names_of_layers[:number] if number == len(layers) - 1 and not is_chain else []
        if is_chain and number:
            below = [names_of_layers[number - 1]]
        folder = os.path.dirname(names_of_layers[number])
        relative = [os.path.relpath(name, folder or ".").replace(os.sep, "/") for name in below]
        if relative:
            document["include"] = relative[0] if len(relative) == 1 and rng.random() < 0.5 else relative
        is_yaml = names_of_layers[number].endswith(".yaml") and rng.random() < 0.7
        files[names_of_layers[number]] = (
            yaml.safe_dump(document, sort_keys=False) if is_yaml else json.dumps(document, indent=rng.choice([None, 2]))
        )
    return files


_ENDINGS = (".yaml", ".json", ".yml")


def _valid_document(rng, target):
    while True:
        document = {"optimizer": _optimizer(rng, target)}
        if rng.random() < 0.9:
            document["loss_scale"] = _loss_scale(rng)
        if rng.random() < 0.3:
            document["skipped_steps"] = rng.choice(["native", "advance", "hold"])
        if rng.random() < 0.3:
            document["stop_after_skips"] = rng.randint(1, 100)
        if rng.random() < 0.2:
            document["watch"] = rng.choice([[], ["zero_share"]])
        if _is_valid(dict(_leaves(document)), target):
            return document


def _optimizer(rng, target):
    name = rng.choice(names(OPTIMIZERS, target))
    optimizer = {"name": name, **_arguments(rng, OPTIMIZERS, name, target)}
    if rng.random() < 0.3:
        schedule = rng.choice(names(SCHEDULES, target))
        rate = {"schedule": schedule, **_arguments(rng, SCHEDULES, schedule, target)}
        if "boundaries" in rate:
            rate.update(boundaries=[10, 20], values=[0.1, 0.01, 0.001])
        optimizer["learning_rate"] = rate
    return optimizer


def _arguments(rng, kind, name, target):
    return _values(rng, argument_model(kind, name, target).model_json_schema())


def _loss_scale(rng):
    name = rng.choice(_POLICIES)
    schema = loss_scales.plugin(name).parameters.model_json_schema()
    return {"name": name, **_values(rng, schema)}


def _values(rng, schema):
    """Return values for what is required, and for a few other fields."""
    fields, required = schema.get("properties", {}), schema.get("required", [])
    chosen = rng.sample(sorted(fields), min(len(fields), rng.randint(0, 4)))
    return {name: _value(rng, fields[name]) for name in fields if name in required or name in chosen}


def _value(rng, schema):
    option = rng.choice(schema["anyOf"]) if "anyOf" in schema else schema
    if "enum" in option:
        return rng.choice(option["enum"])
    kind = option.get("type")
    if kind == "integer":
        return rng.randint(option.get("minimum", 0), max(option.get("minimum", 0), 50))
    if kind == "number":
        low, high = max(option.get("minimum", 0), 0), min(option.get("maximum", 10), 10)
        return rng.choice([round(rng.uniform(low, high), 3), float(f"{rng.uniform(low, high):.2g}"), high])
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "array":
        return ["a b", "c"] if option["items"].get("type") == "string" else [1]
    return None


def _is_valid(leaves, target):
    try:
        load_document(_nested(leaves), target=target.name)
    except InvalidSpecError:
        return False
    return True


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _leaves(document, path=()):
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _nested(leaves):
    document = {}
    for path, value in leaves.items():
        part = document
        for key in path[:-1]:
            if not isinstance(part.get(key), dict):
                part[key] = {}
            part = part[key]
        if not isinstance(part.get(path[-1]), dict):
            part[path[-1]] = value
    return document
