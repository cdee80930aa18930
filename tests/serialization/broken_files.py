"""Break a file at random places, and have the command look into each of them, in a process that may crash.

    python broken_files.py FILE WAY TIMES inspect|convert

prints, for each, the exit code, the first line of what the command said, its seconds, and what it has written.
"""

import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time

import rich.console
import rich.table  # noqa: F401

import scalekeeper.conversion
import scalekeeper.serialization.inspecting  # noqa: F401
from scalekeeper.cli import run


def cut_off(data, rng):
    return data[: rng.randrange(len(data))]


def with_flipped_bits(data, rng):
    broken = bytearray(data)
    for _ in range(rng.choice([1, 1, 3, 20])):
        broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
    return bytes(broken)


def ended(arguments, output):
    """The exit code of the command, or the negative number of the signal that it died of."""
    process = os.fork()
    if process == 0:
        code = 99
        try:
            for place in (1, 2):
                os.dup2(output.fileno(), place)
            sys.argv = ["scalekeeper", *arguments]
            run()
        except SystemExit as error:
            code = error.code or 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    _, status = os.waitpid(process, 0)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)


def main():
    path, way, times, command = sys.argv[1:]
    with open(path, "rb") as stream:
        data = stream.read()
    ending = os.path.splitext(path)[1]
    rng = random.Random(7)
    found = []
    folder = tempfile.mkdtemp()
    source, made = os.path.join(folder, "broken" + ending), os.path.join(folder, "made")
    arguments = [command, source]
    if command == "convert":
        destination = os.path.join(made, "new" + (".json" if ending == ".json" else ".npz"))
        arguments += [destination, "--to", "2.10", "--allow-loss"]
    for _ in range(int(times)):
        with open(source, "wb") as stream:
            stream.write({"cut_off": cut_off, "with_flipped_bits": with_flipped_bits}[way](data, rng))
        began = time.perf_counter()
        with tempfile.TemporaryFile() as output:
            code = ended(arguments, output)
            output.seek(0)
            said = output.read().decode("utf-8", "replace")
        written = [name for name in os.listdir(made) if not name.startswith(".")] if os.path.isdir(made) else []
        found.append([code, said[:2000], time.perf_counter() - began, written])
        shutil.rmtree(made, ignore_errors=True)
    shutil.rmtree(folder)
    print(json.dumps({"found": found, "kilobytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss}))


if __name__ == "__main__":
    main()
