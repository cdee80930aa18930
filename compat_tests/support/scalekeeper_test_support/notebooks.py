"""Code and recorded output of Jupyter notebooks, which are JSON files."""

import json


def code_cells(path):
    """Return pairs of the source and the printed text of each code cell."""
    with open(path, encoding="utf-8") as stream:
        cells = [cell for cell in json.load(stream)["cells"] if cell["cell_type"] == "code"]
    return [("".join(cell["source"]), _printed(cell["outputs"])) for cell in cells]


def _printed(outputs):
    return "".join("".join(each["text"]) for each in outputs if each["output_type"] == "stream")
