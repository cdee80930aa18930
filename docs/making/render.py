"""Make the marked parts of docs/configuration.md and docs/command_line.md, and the pictures of docs/pictures/.

    python docs/making/render.py

Needs no TensorFlow.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "benchmarks")]
import command_line  # noqa: E402
import configuration  # noqa: E402
import pictures  # noqa: E402
from pages import rewrite  # noqa: E402


def main() -> None:
    rewrite("configuration.md", configuration.parts_of_page())
    rewrite("command_line.md", command_line.parts_of_page())
    pictures.write()


if __name__ == "__main__":
    main()
