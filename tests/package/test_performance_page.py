"""docs/performance.md shows what was recorded, and nothing else."""

import importlib.util
import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def renderer():
    path = os.path.join(ROOT, "benchmarks", "render.py")
    spec = importlib.util.spec_from_file_location("render", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_made_from_the_results():
    """`python benchmarks/render.py` would not change the page."""
    render = renderer()
    with open(render.PAGE, encoding="utf-8") as stream:
        text = stream.read()
    assert render.page(text, render.results()) == text


def test_each_version_of_the_matrix_was_measured():
    """A figure that is missing would not be seen."""
    found = {each["name"]: each for each in renderer().results()}
    assert list(found) == ["2.0", "2.1", "2.2", "2.3", "2.10", "2.15", "2.21 Keras 3", "2.21 tf_keras"]
    for name, each in found.items():
        assert {row["scale"] for row in each["step"]} >= {"dynamic"}
        assert ("fit" in each) == (name not in ("2.0", "2.1", "2.2", "2.3"))
