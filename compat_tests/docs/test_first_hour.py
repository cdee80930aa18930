"""The notebook of the first hour does what it shows."""

import json
import os
import re

import pytest

from scalekeeper_test_support import script_runner
from scalekeeper_test_support.notebooks import code_cells
from scalekeeper_test_support.repository import repository_path

NOTEBOOK = repository_path("examples", "first_hour.ipynb")


def without_decimals(text):
    """Return the lines of a text without the digits of numbers, which differ between processors."""
    return re.sub(r"\d+\.\d+", "#", text).splitlines()


@pytest.mark.slow("py313-tf221-keras3")
def test_the_notebook_prints_what_it_shows():
    """Its assertions hold, its text is the recorded one, and float16 learns with a loss scale only."""
    printed = script_runner.run(repository_path("compat_tests", "docs", "run_notebook.py"), NOTEBOOK)
    cells = [text.partition("\n")[2] for text in printed.split("cell ")[1:]]
    assert list(map(without_decimals, cells)) == [without_decimals(text) for _, text in code_cells(NOTEBOOK)]
    errors = dict(re.findall(r"^(.+?) +mean squared error ([\d.]+)$", printed, re.MULTILINE))
    assert float(errors["float16, no loss scale"]) > 10 * float(errors["float32"])
    assert float(errors["float16, dynamic"]) < 1.5 * float(errors["float32"])


def test_the_notebook_was_run():
    """All code cells have numbers in order, and the file is small, with one picture."""
    assert os.path.getsize(NOTEBOOK) < 100_000
    with open(NOTEBOOK, encoding="utf-8") as stream:
        cells = [cell for cell in json.load(stream)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    assert sum("image/png" in output.get("data", {}) for cell in cells for output in cell["outputs"]) == 1
