"""Plain values that nobody expects, and trees of them: what documents and the JSON in files are made of."""

import copy
import json

# names that would run or import something, if anything in a document or a file could
DANGEROUS = [
    "os:system",
    "os.system",
    "antigravity:fly",
    "builtins:eval",
    "subprocess:Popen",
    "..:x",
    "__main__:main",
    "Custom>Adam",
    "Custom>antigravity",
    "keras>Lambda",
    "Lambda",
    "../../etc/passwd",
]
WORDS = [
    *("adam", "sgd", "Adam", "SGD", "legacy.adam", "dynamic", "fixed", "exponential_decay", "LossScaleOptimizer"),
    *("DynamicLossScale", "FixedLossScale", "float32", "float16", "Dense", "Sequential", "Functional", "2.4.0", "3.0"),
    *("", " ", "128", "1e-3", "nan", "x" * 300, "%s{0}", "[bold]", "[/]"),
    *("\u202e", "\x00", "\n", "\x1b[31m", "\ud800", "漢字"),
]
NUMBERS = [
    *(0, 1, -1, 2, 128, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**30, 10**400, 0.5, 1e-320, 1e39, 1e308, -0.0),
    *(float("nan"), float("inf"), float("-inf"), True, False),
]
KEYS = [
    *("optimizer", "loss_scale", "name", "schedule", "learning_rate", "momentum", "multiplier", "skipped_steps"),
    *("class_name", "config", "module", "registered_name", "inner_optimizer", "layers", "dynamic", "initial_scale"),
    *("dynamic_growth_steps", "version", "written_by", "owners", "state", "scalars", "skips", "iterations"),
    *("function", "$schema", "<<", "__class__", "x", ""),
]
_DEEP = "«deep»"


def scalar(rng):
    roll = rng.randrange(10)
    if roll < 4:
        return rng.choice(NUMBERS)
    if roll < 8:
        return rng.choice(WORDS)
    return rng.choice(DANGEROUS) if roll == 8 else None


def tree(rng, depth=0):
    """A value of any shape, with keys and values that mean something here."""
    roll = rng.randrange(8 if depth < 4 else 5)
    if roll < 5:
        return scalar(rng)
    if roll == 5:
        return [tree(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(KEYS): tree(rng, depth + 1) for _ in range(rng.randrange(5))}


def mutated(rng, value):
    """A copy in which a few places hold something else, are gone, have another name, or are there twice."""
    root = [copy.deepcopy(value)]
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3, 6])):
        container, place = rng.choice(list(_places(root)))
        roll = rng.randrange(8)
        if roll < 3:
            container[place] = scalar(rng)
        elif roll == 3:
            container[place] = tree(rng)
        elif roll == 4:
            container[place] = rng.choice([[container[place]], {rng.choice(KEYS): container[place]}])
        elif container is root:
            container[place] = rng.choice([tree(rng), _DEEP])
        elif roll == 5:
            del container[place]
        elif isinstance(container, dict):
            container[rng.choice([*KEYS, *WORDS])] = container.pop(place) if roll == 6 else container[place]
        else:
            container.insert(place, container[place])
    return root[0]


def _places(container):
    """Every place in a tree: what holds it, and its key there."""
    for place in list(container) if isinstance(container, dict) else range(len(container)):
        yield container, place
        if isinstance(container[place], (dict, list)):
            yield from _places(container[place])


def as_json(rng, value):
    """A tree as JSON text, which may hold what ``json.dumps`` does not write: too deep, too many digits."""
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.02:
        text = text.replace(json.dumps(rng.choice([*NUMBERS, "adam"])), json.dumps(_DEEP), 1)
    if _DEEP in text or "\\u00abdeep" in text:
        text = text.replace(json.dumps(_DEEP), _deep(rng)).replace(f'"{_DEEP}"', _deep(rng))
    return text


def _deep(rng):
    many = rng.choice([50, 70, 500, 2000, 100_000])
    return rng.choice(["[" * many + "]" * many, '{"a":' * many + "1" + "}" * many, "9" * many, "-" + "1" * many + "e5"])
