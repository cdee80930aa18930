"""Run the code cells of a notebook in its folder, in order, as one program; print a line before each cell.

python compat_tests/docs/run_notebook.py examples/first_hour.ipynb
"""

import os
import sys
import tempfile

import matplotlib

from scalekeeper_test_support import page_programs
from scalekeeper_test_support.notebooks import code_cells


def main():
    matplotlib.use("agg")
    path = os.path.abspath(sys.argv[1])
    cells = [f'print("cell {number}")\n{text}\n' for number, (text, _) in enumerate(code_cells(path))]
    os.chdir(os.path.dirname(path))
    with tempfile.TemporaryDirectory() as folder:
        page_programs.run_program("\n".join(cells), folder, "notebook")


if __name__ == "__main__":
    main()
