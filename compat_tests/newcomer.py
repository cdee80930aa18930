"""Follow the README as a newcomer does: its Python blocks as one program, its commands, and nothing else.

    python compat_tests/newcomer.py FOLDER

The environment py313-install runs it after the commands that it begins with. Needs no package but scalekeeper.
"""

from typing import Dict, List, Tuple

import json
import os
import re
import subprocess
import sys

README = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "README.md")
VIRTUAL_ENVIRONMENT = ["python -m venv .venv", ". .venv/bin/activate"]  # tox does this
INSTALL = ['pip install ".[tensorflow]"', "scalekeeper demo"]  # and runs these before
PROGRAM = "python program.py"
TESTS = "python -m pip install tox && python -m tox -p auto"
_BLOCK = re.compile(r"(?:^<!-- file: (\S+) -->\n)?^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def files_and_commands() -> Tuple[Dict[str, str], List[str]]:
    """Return name → text of the files, and all commands from the virtual environment on."""
    with open(README, encoding="utf-8") as stream:
        found = _BLOCK.findall(stream.read())
    files = {name: text for name, _, text in found if name}
    files["program.py"] = "\n".join(text for _, language, text in found if language == "python")
    shown = [line for _, language, text in found if language == "console" for line in text.splitlines()]
    if shown[:2] != [" && ".join(INSTALL), TESTS]:
        raise SystemExit(f"the README begins with other commands: {shown[:2]}")
    return files, [*VIRTUAL_ENVIRONMENT, *INSTALL, PROGRAM, *shown[2:]]


def main() -> None:
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    files, commands = files_and_commands()
    for name, text in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as stream:
            stream.write(text)
    for command in commands[commands.index(PROGRAM) :]:
        run(command, folder)
    found = json.loads(run("scalekeeper inspect model.keras --json", folder))
    assert found["loss_scale"]["name"] == "HalvingLossScale", found["loss_scale"]
    assert found["iterations"] == 10, found["iterations"]
    assert os.path.getsize(os.path.join(folder, "older.h5")) > 0
    print(f"{len(commands)} commands of the README, from a virtual environment to a model that was trained and loaded")


def run(command: str, folder: str) -> str:
    """Return what a command prints; it has to succeed, without a warning."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    environment = dict(os.environ, PATH=path)
    ended = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, encoding="utf-8")
    if ended.returncode or re.search(r"Warning\b|legacy", ended.stdout + ended.stderr):
        raise SystemExit(f"$ {command}\nended with {ended.returncode}\n{ended.stdout}\n{ended.stderr}")
    return ended.stdout


if __name__ == "__main__":
    main()
