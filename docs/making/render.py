"""Make docs/reference/, the marked parts of docs/configuration.md and docs/command_line.md, and docs/pictures/.

    python docs/making/render.py

Needs no TensorFlow.
"""

import command_line
import configuration
import pictures
import reference

from scalekeeper_test_support.generated_pages import rewrite


def main() -> None:
    rewrite("configuration.md", configuration.parts_of_page())
    rewrite("command_line.md", command_line.parts_of_page())
    pictures.write()
    reference.write()


if __name__ == "__main__":
    main()
