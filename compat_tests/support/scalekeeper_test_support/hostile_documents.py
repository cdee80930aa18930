"""Documents that nobody should send: good ones with nasty bytes in them, and trees of values in YAML or JSON.

Some of them include others, refer to themselves and to the environment, and come with overrides.
"""

import glob
import json
import os

import yaml

from scalekeeper_test_support import hostile_values
from scalekeeper_test_support.repository import repository_path

CORPUS = repository_path("tests", "hostile", "corpus", "documents")

GOOD = [
    b"""\
optimizer:
  name: adam
  learning_rate: {schedule: exponential_decay, initial_learning_rate: 1e-3,
    decay_steps: 1000, decay_rate: 0.9}
loss_scale: {name: dynamic, initial_loss_scale: 4096}
""",
    b"""\
{"optimizer": {"name": "sgd", "momentum": 0.9, "nesterov": true},
 "loss_scale": {"name": "fixed", "loss_scale_value": 128, "skip_nonfinite": false}}
""",
    b"optimizer: &o {name: rmsprop, rho: 0.9, centered: false}\nloss_scale: 1024\n",
    b"# comment\noptimizer: 'adam'\nloss_scale: \"dynamic\"\n",
    b"""\
optimizer:
  name: sgd
  learning_rate: {schedule: piecewise_constant_decay, boundaries: [100, 200], values: [0.1, 0.01, 0.001]}
loss_scale: {name: scheduled, values: [128, 1024], boundaries: [100], schedule: linear}
skipped_steps: hold
stop_after_skips: 20
""",
]
TREES = [yaml.safe_load(text) for text in GOOD]
_TEXT = [
    *("{", "}", "[", "]", ":", ": ", ",", "- ", "? ", "|", ">", "'", '"', "\\", "#", "\n"),
    *("&a ", "*a", "*a ", "<<: ", "!!python/name:os.system ", "!x ", "%YAML 1.1\n", "---\n", "..."),
    *(
        "!!python/object/apply:os.system ",
        "!<tag:yaml.org,2002:python/module:antigravity> ",
        "%TAG ! tag:yaml.org,2002:\n",
    ),
    *("null", "true", "~", ".nan", "-.inf", "1e999", "9" * 500, "0x", "0o9", "-", "+.e1"),
    *("\u2028", "\ufeff", "\u202e", "漢字", "\U0001f600", "\\ud800", "\t", "\r", "\x85"),
    *hostile_values.KEYS,
    *hostile_values.DANGEROUS,
]
TOKENS = [token.encode("utf-8") for token in _TEXT] + [
    *(b"\x00", b"\xff", b"\xc3", b"\xed\xa0\x80", b"[" * 70, b"{a: " * 70, b"]" * 70, b"\x1b[31m"),
]


def seeds():
    """The good ones, and those of the corpus."""
    found = list(GOOD)
    for path in sorted(glob.glob(os.path.join(CORPUS, "*"))):
        with open(path, "rb") as stream:
            data = stream.read()
        if len(data) < 4096:  # longer ones are tried as they are, and are too slow to be tried in many forms
            found.append(data)
    return found


def generated(rng, known):
    """A document: what it is called, and its bytes. ``known`` are seeds."""
    name = rng.choice(["doc.yaml", "doc.json", "doc.txt"])
    roll = rng.randrange(10)
    if roll < 5:
        return name, with_tokens(rng, rng.choice(known))
    if roll < 8:
        document = hostile_values.mutated(rng, rng.choice(TREES))
    else:
        document = {"optimizer": hostile_values.tree(rng), "loss_scale": hostile_values.tree(rng)}
    return name, hostile_values.as_json(rng, document).encode("utf-8", "surrogatepass")


def with_tokens(rng, data):
    """A few bytes changed, cut, doubled, or replaced by something nasty."""
    data = bytearray(data)
    for _ in range(rng.randint(0, 6)):
        at = rng.randint(0, len(data))
        until = min(len(data), at + rng.randint(0, 12))
        kind = rng.randrange(4)
        if kind == 0:
            data[at:until] = rng.choice(TOKENS)
        elif kind == 1:
            data[at:at] = rng.choice(TOKENS)
        elif kind == 2:
            del data[at:until]
        else:
            data[at:at] = data[at:until] * rng.randint(1, 3)
    return bytes(data)


# Files that include one another

SECRET_NAME, SECRET = "SCALEKEEPER_SECRET", "hunter2-correct-horse"
OUTSIDE = "outside.yaml"  # a symbolic link that leads out of the folder
FILES = ("train.yaml", "base.yaml", "sub/mid.json", "other.yml", "sub/gr\u00f6\u00dfe.yaml", "plain.txt")
INCLUDES = [
    *("base.yaml", "sub/mid.json", "other.yml", "../base.yaml", "../other.yml", "./base.yaml"),
    *("train.yaml", "../train.yaml", OUTSIDE, "../" + OUTSIDE, "../../base.yaml", "sub/../../base.yaml"),
    *("/etc/passwd", "/dev/zero", "/proc/self/environ", "~/x", "C:\\x", "http://localhost/x", "${env:HOME}"),
    *(".", "..", "", "/", "sub", "absent.yaml", "a\x00b", "x" * 300, "\udcff", "//base.yaml", "base.yaml ", "\u202e"),
    *("base.yaml/../other.yml", "sub/../base.yaml"),
]
REFERENCES = [
    *("${optimizer}", "${optimizer.name}", "${optimizer.learning_rate}", "${loss_scale}", "${loss_scale.minimum}"),
    *("${watch}", "${watch[0]}", "${watch[999999999]}", "${$schema}", "${include}", "${skipped_steps}", "${x.y.z}"),
    *("${env:SCALEKEEPER_SECRET}", "${env:HOME}", "${env:}", "${env:\u0410}", "${env:PATH}", "${ENV:HOME}"),
    *("${", "${}", "$${optimizer}", "${${optimizer}}", "a ${optimizer}", "${optimizer", "${.}"),
    "${a" + ".a" * 100 + "}",
]
_PATHS = [
    *("optimizer", "optimizer.name", "optimizer.learning_rate", "optimizer.momentum", "loss_scale", "loss_scale.name"),
    *("optimizer.learning_rate.schedule", "optimizer.learning_rate.values[0]", "optimizer.learning_rate.boundaries"),
    *("loss_scale.minimum", "loss_scale.increment_period", "loss_scale.values[1]", "stop_after_skips"),
    *("skipped_steps", "watch", "watch[0]", "include", "$schema", "x", "x.y.z", "optimiser.name", "[0]", "", "."),
    "a" + ".a" * 100,
]
_VALUES = [
    *("adam", "sgd", "dynamic", "dynamic/pytorch", "fixed", "1e-3", "0.5", "128", "null", "true", "hold", "''", "-1"),
    *("{name: dynamic, minimum: 2}", "[1, 2, 3]", "{}", "[]", "{a: &a [1], b: *a}", "a: b", "- a", "{a: 1, a: 2}", "["),
]


def composition(rng, known):
    """Files by name, of which the first is the document, and overrides."""
    names = [FILES[0], *rng.sample(FILES[1:], rng.randint(1, len(FILES) - 1))]
    files = {name: _file(rng, known, [each for each in names if each != name]) for name in names}
    overrides = [_override(rng) for _ in range(rng.choice([0, 0, 0, 1, 1, 3]))]
    return files, overrides


def _file(rng, known, others):
    roll = rng.randrange(10)
    if roll == 0:
        return with_tokens(rng, rng.choice(known))
    document = hostile_values.mutated(rng, rng.choice(TREES)) if roll < 4 else json.loads(json.dumps(rng.choice(TREES)))
    if not isinstance(document, dict):
        document = {"optimizer": document}
    for _ in range(rng.choice([0, 0, 0, 1, 3])):
        part = document
        while rng.random() < 0.7 and any(isinstance(each, dict) for each in part.values()):
            part = rng.choice([each for each in part.values() if isinstance(each, dict)])
        part[rng.choice([*part, *hostile_values.KEYS])] = rng.choice(REFERENCES)
    if rng.random() < 0.5:
        included = [
            rng.choice(INCLUDES) if rng.random() < 0.1 else rng.choice(others)
            for _ in range(rng.choice([1, 1, 1, 2, 3]))
        ]
        document["include"] = included[0] if len(included) == 1 and rng.random() < 0.7 else included
    data = hostile_values.as_json(rng, document).encode("utf-8", "surrogatepass")
    return with_tokens(rng, data) if rng.random() < 0.1 else data


def _override(rng):
    path = rng.choice(_PATHS[:15] * 3 + _PATHS)
    if rng.random() < 0.15:
        text = "~" + path
    else:
        text = path + "=" + rng.choice([*_VALUES * 3, *REFERENCES, *hostile_values.DANGEROUS, *_TEXT])
    if rng.random() < 0.1:
        text = with_tokens(rng, text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogateescape")
    return text
