"""Documents of any kind: every outcome is 0 or 1, with a message, in no time, and nothing else is done."""

import glob
import json
import os
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from scalekeeper.cli import main

HERE = os.path.dirname(os.path.abspath(__file__))
COUNT = int(os.environ.get("SCALEKEEPER_FUZZ", "2000"))
SLOWEST = 2.0


def fuzzed(*options):
    """The rows of a run that found nothing wrong; it says itself what it found."""
    script = [sys.executable, "-W", "ignore", os.path.join(HERE, "fuzz.py"), *options]
    process = subprocess.run(script, stdout=subprocess.PIPE)
    answer = json.loads(process.stdout.decode().splitlines()[-1])
    assert (answer["failures"], process.returncode) == ([], 0)
    return answer["rows"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="documents are tried in a copy of the process")
def test_every_outcome_is_a_verdict_with_a_message():
    """No exception, none slower than 2 s, no import and no write; and both verdicts really occur."""
    rows = fuzzed("--documents", str(COUNT))
    assert sum(row["tried"] for row in rows) == COUNT
    assert sum(row["imports"] + row["writes"] for row in rows) == 0
    for verdict in ("refused", "accepted"):
        assert sum(row[verdict] for row in rows) > COUNT * 0.02


@pytest.mark.skipif(not hasattr(os, "fork"), reason="documents are tried in a copy of the process")
def test_every_outcome_of_composed_documents_is_a_verdict():
    """The same for documents that include others, refer to themselves and the environment, and have overrides."""
    rows = fuzzed("--compositions", str(COUNT))
    assert sum(row["tried"] for row in rows) == COUNT
    assert sum(row["imports"] + row["writes"] for row in rows) == 0
    for verdict in ("refused", "accepted"):
        assert sum(row[verdict] for row in rows) > COUNT * 0.02


@pytest.mark.parametrize("command", [["validate"], ["validate", "--json"], ["inspect"], ["simulate", "--steps", "5"]])
def test_the_corpus(command, tmp_path):
    """Documents that once reached new code are read by the commands that read documents."""
    paths = sorted(glob.glob(os.path.join(HERE, "corpus", "documents", "*")))
    assert len(paths) > 50
    for path in paths:
        for name in ("doc.yaml", "doc.json"):
            with open(path, "rb") as stream:
                (tmp_path / name).write_bytes(stream.read())
            result = CliRunner().invoke(main, [*command, str(tmp_path / name)])
            assert isinstance(result.exception, (SystemExit, type(None))), (path, result.exc_info)
            assert result.exit_code in (0, 1), path
            assert result.output.strip(), path


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
    began = time.process_time()
    result = CliRunner().invoke(main, ["validate", str(path)])
    assert isinstance(result.exception, SystemExit)
    assert (result.exit_code, "Traceback" in result.output) == (1, False)
    assert 0 < len(result.output) < 5_000
    assert time.process_time() - began < SLOWEST
