"""Check that all interpreters of the matrix are installed, and say how to install missing ones.

tox fails on a missing interpreter too, but does not say what to do.
"""

import re
import shutil
import subprocess
import sys


def needed(tox_ini):
    """The Python versions in the names of the environments: 3.7, 3.8, …"""
    env_list = re.search(r"^env_list =\n((?:    .*\n)+)", tox_ini, re.MULTILINE).group(1)
    names = {digits for group in re.findall(r"\bpy\{?([\d, ]+)", env_list) for digits in re.findall(r"\d+", group)}
    return sorted(("3." + name[1:] for name in names), key=lambda version: int(version[2:]))


def is_found(version):
    """Whether python3.X is on the path and answers with its own version (pyenv's shims need not)."""
    command = shutil.which("python" + version)
    if command is None:
        return False
    answer = subprocess.run([command, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return answer.stdout.decode().startswith("Python " + version + ".")


def main():
    with open("tox.ini", encoding="utf-8") as stream:
        versions = needed(stream.read())
    missing = [version for version in versions if not is_found(version)]
    if missing:
        return (
            "The matrix needs Python {}, and python{} can't be run.\n"
            "To get what is missing:   pyenv install {}\n"
            "To go on without it:      python -m tox --skip-missing-interpreters true --skip-env interpreters".format(
                ", ".join(versions), ", python".join(missing), " ".join(missing)
            )
        )
    print("found: Python " + ", ".join(versions))
    return 0


if __name__ == "__main__":
    sys.exit(main())
