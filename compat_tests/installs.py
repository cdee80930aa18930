"""Run the install lines of docs/installing.md, each in a fresh virtual environment, and record the results.

    python compat_tests/installs.py              # all lines: about a minute each
    python compat_tests/installs.py 2.4.4 2.13.1 # the lines of these TensorFlows

A line runs in the root of the checkout, with the pip that its Python brings. It passes if the TensorFlow of its row
can be imported afterwards and ``scalekeeper demo`` succeeds. If the line has two commands, pip has to refuse to install
all in one. Needs the interpreters, a network and, for some lines, uv. Uses the standard library only.
"""

from typing import Any, Dict, List, NamedTuple

import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "installing.md"
RESULTS = ROOT / "compat_tests" / "installs.json"
_ROW = re.compile(r"\| (2\.\d+\.\d+) \| (3\.\d+) \| `([^`]+)` \|")
_THEN, _INSTALL = " && ", "pip install "
_PRINT_VERSIONS = """
import json, sys, tensorflow as tf
package = sys.modules[tf.keras.Model.__module__.split(".")[0]]
print(json.dumps([tf.__version__, getattr(tf.keras, "__version__", None) or package.__version__]))
"""


class Line(NamedTuple):
    """A row of the page."""

    tensorflow: str
    python: str
    command: str

    @property
    def is_one_command(self) -> bool:
        return _THEN not in self.command

    @property
    def in_one_command(self) -> str:
        """The same packages in a single ``pip install``."""
        return self.command.replace(_THEN + _INSTALL, " ")


def lines_of_page() -> List[Line]:
    """Return the rows of docs/installing.md, of all its tables of install lines."""
    return [Line(*found) for found in _ROW.findall(PAGE.read_text(encoding="utf-8"))]


def recorded() -> List[Dict[str, Any]]:
    """Return the recorded results, in the order of the page."""
    results: List[Dict[str, Any]] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return results


def try_line(line: Line) -> Dict[str, Any]:
    """Install in a new virtual environment, run the demo, and return the result; ``failed`` is None if it passed."""
    result: Dict[str, Any] = {**line._asdict(), "date": datetime.date.today().isoformat()}
    with tempfile.TemporaryDirectory() as folder:
        try:
            _install_and_run(line, pathlib.Path(folder), result)
        except subprocess.CalledProcessError as error:
            result["failed"] = "{}: {}".format(error.cmd[-1].strip(), " / ".join(_text(error).splitlines()[-3:]))
    return result


def _install_and_run(line: Line, folder: pathlib.Path, result: Dict[str, Any]) -> None:
    _run(f"python{line.python} -m venv {folder / 'venv'}", {**os.environ, "PYENV_VERSION": line.python})
    variables = {
        **os.environ,
        "VIRTUAL_ENV": str(folder / "venv"),
        "PATH": os.pathsep.join([str(folder / "venv" / "bin"), os.environ["PATH"]]),
        "PIP_PROGRESS_BAR": "off",
        "PIP_NO_COMPILE": "1",  # Python compiles what it imports
        "TF_USE_LEGACY_KERAS": str(int("tf_keras" in line.command)),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    installer = line.command.split()[0]  # pip or uv
    result["installer"] = " ".join(_run(f"{installer} --version", variables).split()[:2])
    if not line.is_one_command:
        result["conflict"] = _conflict(line, variables)
    _run(line.command, variables)
    versions = _run(f"python -W ignore -c '{_PRINT_VERSIONS}'", variables).splitlines()[-1]
    installed, result["keras"] = json.loads(versions)
    _run(f"scalekeeper demo --folder {folder / 'demo'}", variables)
    result["failed"] = None if installed == line.tensorflow else f"installed TensorFlow {installed}"


def _conflict(line: Line, variables: Dict[str, str]) -> str:
    """Return the two requirements that keep pip from installing everything in one command."""
    try:
        _run(line.in_one_command.replace(_INSTALL, _INSTALL + "--dry-run "), variables)
    except subprocess.CalledProcessError as error:
        found = re.search(r"The conflict is caused by:\n(.*?)\n\n", _text(error), re.DOTALL)
        if found is None:
            raise
        return "; ".join(each.strip() for each in found.group(1).splitlines())
    raise SystemExit(f"one command is enough: {line.in_one_command}")


def _run(command: str, variables: Dict[str, str]) -> str:
    shell = ["sh", "-c", command]
    ended = subprocess.run(
        shell, cwd=str(ROOT), env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True
    )
    return ended.stdout.decode("utf-8", "replace")


def _text(error: subprocess.CalledProcessError) -> str:
    text: str = error.output.decode("utf-8", "replace").strip()
    return text


def main(versions: List[str]) -> int:
    lines = lines_of_page()
    results = {(each["python"], each["command"]): each for each in (recorded() if RESULTS.exists() else ())}
    chosen = [line for line in lines if not versions or line.tensorflow in versions]
    for line in chosen:
        result = results[line.python, line.command] = try_line(line)
        print("{}: {}".format(" ".join(line), result["failed"] or "passed"), flush=True)
        kept = [results[each[1:]] for each in lines if each[1:] in results]
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return 0 if chosen and all(results[line[1:]]["failed"] is None for line in chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
