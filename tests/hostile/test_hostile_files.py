"""Files that are broken, or mean harm: one message, or what is in them; in no time, with no memory, without a crash."""

import glob
import json
import os
import subprocess
import sys

import pytest

from scalekeeper_test_support import hostile_files

HERE = os.path.dirname(os.path.abspath(__file__))
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="commands run in one process there")

COUNT = int(os.environ.get("SCALEKEEPER_FILES", "150"))  # 1500 in py313-core
MOST_SECONDS, MOST_MEGABYTES = 2.0, 500
CORPUS = sorted(glob.glob(os.path.join(HERE, "corpus", "files", "*")))
# Runs commands one after the other, each in a process of its own, as the command does it itself.
MANY = """
import json, os, resource, sys, tempfile
import rich.console, rich.table, scalekeeper.cli, scalekeeper.serialization, scalekeeper.serialization.inspection
import scalekeeper.simulation

for arguments in json.load(sys.stdin):
    with tempfile.TemporaryFile() as output:
        process = os.fork()
        if process == 0:
            code = 99
            try:
                for place in (1, 2):
                    os.dup2(output.fileno(), place)
                sys.argv = ["scalekeeper", *arguments]
                scalekeeper.cli.run()
            except SystemExit as error:
                code = error.code or 0
            finally:
                sys.stdout.flush()
                os._exit(code)
        _, status, usage = os.wait4(process, 0)
        output.seek(0)
        said = output.read().decode("utf-8", "replace")
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
    print(json.dumps([code, said[:2000], usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024]), flush=True)
"""


def answers(commands):
    """Exit code, what was said, seconds of computing and megabytes, for each."""
    script = [sys.executable, "-W", "ignore", "-c", MANY]
    process = subprocess.run(script, input=json.dumps(commands).encode(), stdout=subprocess.PIPE, timeout=300)
    found = [json.loads(line) for line in process.stdout.decode().splitlines()]
    assert len(found) == len(commands)
    return found


def require_verdict(command, code, said, seconds, megabytes):
    assert code in (0, 1), (command, code, said)
    assert said.strip(), command
    assert "Traceback" not in said, (command, said)
    assert code == 0 or "Error: " in said, (command, said)
    assert seconds < MOST_SECONDS, (command, seconds)
    assert megabytes < MOST_MEGABYTES, (command, megabytes)


def commands_for(path, folder):
    """Everything that looks into a file of this kind without TensorFlow."""
    if "trace" in os.path.basename(path):
        return [["recommend", path], ["simulate", "dynamic", "--trace", path]]
    new = os.path.join(folder, os.path.basename(path) + (".json" if path.endswith(".json") else ".npz"))
    converting = [] if path.endswith(".keras") else [["convert", path, new, "--to", "2.10", "--allow-loss"]]
    return [["inspect", path], ["inspect", path, "--json"], *converting]


def test_the_corpus(tmp_path):
    """Files that have failed once, each minimal, are read; a file is made with exit code 0, and none otherwise."""
    commands = [command for path in CORPUS for command in commands_for(path, str(tmp_path))]
    assert len(commands) > 80
    for command, (code, said, seconds, megabytes) in zip(commands, answers(commands)):
        require_verdict(command, code, said, seconds, megabytes)
        if command[0] == "convert":
            assert os.path.exists(command[2]) == (code == 0), command


@pytest.mark.parametrize("kind", ["npz", "keras", "trace.npz"])
def test_bombs(tmp_path, kind):
    """Members that unpack to 60 MB of nested lists, or 700 MB of zeros: they are not unpacked, or not kept."""
    members = {
        "npz": ["record.npy", "slots|d1/kernel|m.npy"],
        "keras": ["config.json", "metadata.json", "model.weights.h5"],
        "trace.npz": ["largest.npy", "facts.json"],
    }[kind]
    commands = []
    for name in members:
        for number, bomb in enumerate(hostile_files.BOMBS):
            archive = hostile_files.Zip()
            for member in members:
                archive.add(member, b"{}", **({"method": 8, "packed": bomb, "size": 2**29} if member == name else {}))
            path = tmp_path / f"{members.index(name)}-{number}-{kind}.{kind.split('.')[-1]}"
            path.write_bytes(archive.data())
            commands.append(commands_for(str(path), str(tmp_path))[-1])
    for command, answer in zip(commands, answers(commands)):
        require_verdict(command, *answer)


def test_large_json(tmp_path):
    """A configuration with millions of values, which would take a hundred times its room: refused before it does."""
    path = tmp_path / "large.json"
    path.write_bytes(b'{"class_name": "SGD", "config": {"a": [' + b"[]," * 4_000_000 + b"[]]}}")
    [answer] = answers([["inspect", str(path)]])
    require_verdict("inspect", *answer)
    assert answer[0] == 1


def test_generated_files():
    """Cut, flipped, spliced, and well-formed ones that mean harm: as the long run tries them."""
    script = [sys.executable, "-W", "ignore", os.path.join(HERE, "fuzz.py"), "--files", str(COUNT)]
    process = subprocess.run(script, stdout=subprocess.PIPE)
    answer = json.loads(process.stdout.decode().splitlines()[-1])
    assert (answer["failures"], process.returncode) == ([], 0)
    assert len(answer["rows"]) == len(hostile_files.KINDS)
    assert sum(row["tried"] for row in answer["rows"]) == COUNT
    assert sum(row["imports"] + row["writes"] for row in answer["rows"]) == 0
    for verdict in ("refused", "accepted"):
        assert sum(row[verdict] for row in answer["rows"]) > COUNT * 0.1
