"""validate against thousands of generated documents: every outcome is 0 or 1, with a message, in no time."""

import json
import os
import random
import time

import pytest
from click.testing import CliRunner

from scalekeeper.cli import main

COUNT = int(os.environ.get("SCALEKEEPER_FUZZ", "2000"))
SLOWEST = 2.0

SEEDS = [
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
]
TOKENS = [
    *(
        token.encode("utf-8")
        for token in ["{", "}", "[", "]", ":", ": ", ",", "- ", "? ", "|", ">", "'", '"', "\\", "#", "\n"]
    ),
    *(
        token.encode("utf-8")
        for token in ["&a ", "*a", "*a ", "<<: ", "!!python/name:os.system ", "!x ", "%YAML 1.1\n", "---\n", "..."]
    ),
    *(
        token.encode("utf-8")
        for token in ["null", "true", "~", ".nan", "-.inf", "1e999", "9" * 500, "0x", "0o9", "-", "+.e1"]
    ),
    *(
        token.encode("utf-8")
        for token in ["optimizer", "loss_scale", "name", "schedule", "learning_rate", "os:system", "..:x"]
    ),
    *(
        token.encode("utf-8")
        for token in ["\u2028", "\ufeff", "\u202e", "漢字", "\U0001f600", "\\ud800", "\t", "\r", "\x85"]
    ),
    *(b"\x00", b"\xff", b"\xc3", b"\xed\xa0\x80", b"[" * 70, b"{a: " * 70, b"]" * 70, b"\x1b[31m"),
]


def mutated(rng):
    """A seed with a few bytes changed, cut, doubled, or replaced by something nasty."""
    data = bytearray(rng.choice(SEEDS))
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


def structured(rng, depth=0):
    """A value of any shape, with keys and values that mean something here."""
    roll = rng.randrange(8 if depth < 4 else 5)
    if roll < 5:
        return rng.choice(
            [
                None,
                True,
                False,
                0,
                1,
                -1,
                0.5,
                128,
                1e39,
                10**30,
                float("nan"),
                float("inf"),
                "",
                "adam",
                "sgd",
                "dynamic",
            ]
            + ["fixed", "128", "exponential_decay", "os:system", "legacy.adam", "\u202e", "x" * 300, "1e-3"]
        )
    if roll == 5:
        return [structured(rng, depth + 1) for _ in range(rng.randrange(4))]
    keys = [
        "optimizer",
        "loss_scale",
        "name",
        "schedule",
        "learning_rate",
        "momentum",
        "multiplier",
        "$schema",
        "<<",
        "x",
        "",
    ]
    return {rng.choice(keys): structured(rng, depth + 1) for _ in range(rng.randrange(5))}


def generated(rng):
    if rng.random() < 0.5:
        return mutated(rng)
    document = {"optimizer": structured(rng), "loss_scale": structured(rng)} if rng.random() < 0.8 else structured(rng)
    return json.dumps(document, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def test_every_outcome_is_a_verdict_with_a_message(tmp_path, monkeypatch):
    """0 or 1, something to read, no exception, none slower than 2 s; and both verdicts really occur."""
    monkeypatch.chdir(tmp_path)
    rng = random.Random(20261116)
    outcomes = {0: 0, 1: 0}
    for number in range(COUNT):
        name = rng.choice(["doc.yaml", "doc.json", "doc.txt"])
        data = generated(rng)
        with open(name, "wb") as stream:
            stream.write(data)
        options = rng.choice([[], ["--json"], ["--target", "2.0"], ["--target", "tf_keras"]])
        began = time.perf_counter()
        result = CliRunner().invoke(main, ["validate", name, *options])
        took = time.perf_counter() - began
        assert result.exception is None or isinstance(result.exception, SystemExit), (number, data, result.exc_info)
        assert result.exit_code in (0, 1), (number, data, result.output)
        assert result.output.strip(), (number, data)
        assert "Traceback" not in result.output, (number, data)
        assert took < SLOWEST, (number, data, took)
        outcomes[result.exit_code] += 1
    assert sum(outcomes.values()) == COUNT
    assert min(outcomes.values()) > COUNT * 0.02, outcomes


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n",
        bytes(range(256)),
        b"\x89PNG\r\n\x1a\n",
        b"PK\x03\x04",
        b"\x80\x04\x95K",
        b"optimizer: &a {name: *a}",
        b"a: &a [" + b"*a," * 1000 + b"]",
        b"[" * 100_000,
        b"- " * 50_000,
        b"optimizer: " + b"a" * 900_000,
        b"# " + b"a" * 1_048_570,
        b" " * 1_048_576,
        b"k: v\n" * 5_000,
        "\u2028".encode() * 1000 + b"optimizer: [",
        b'{"optimizer": "\\ud800"}',
        b'{"\\ud800": 1}',
        b"{" * 30 + b"}" * 30,
    ],
)
@pytest.mark.parametrize("name", ["doc.yaml", "doc.json", "doc"])
def test_special_cases(tmp_path, data, name):
    """Binary files, bombs, giants: exit code 1 and a short message, quickly."""
    path = tmp_path / name
    path.write_bytes(data)
    began = time.perf_counter()
    result = CliRunner().invoke(main, ["validate", str(path)])
    assert isinstance(result.exception, SystemExit)
    assert (result.exit_code, "Traceback" in result.output) == (1, False)
    assert 0 < len(result.output) < 5_000
    assert time.perf_counter() - began < SLOWEST
