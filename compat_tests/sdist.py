"""Build the source distribution, unpack it, install what is in it, and run tests there.

    python compat_tests/sdist.py [PYTEST ARGUMENT …]

Installs into the environment that runs it: use ``python -m tox -e py313-sdist``.
"""

import pathlib
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def unpacked_sdist(folder):
    """Return the path of the only folder in a new source distribution, unpacked below ``folder``."""
    built, unpacked = folder / "built", folder / "unpacked"
    subprocess.run([sys.executable, "-m", "build", "--sdist", "--outdir", str(built), str(ROOT)], check=True)
    (archive,) = built.iterdir()
    with tarfile.open(archive) as file:
        file.extractall(unpacked, filter="data")
    (root,) = unpacked.iterdir()
    return root


def main():
    with tempfile.TemporaryDirectory() as folder:
        root = unpacked_sdist(pathlib.Path(folder))
        install = [sys.executable, "-m", "pip", "install", "--force-reinstall", "--no-deps"]
        subprocess.run([*install, ".", "-e", "compat_tests/support"], cwd=root, check=True)
        arguments = sys.argv[1:] or ["tests"]
        return subprocess.run(["pytest", *arguments], cwd=root).returncode


if __name__ == "__main__":
    sys.exit(main())
