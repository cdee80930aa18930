"""Make the tables of docs/reliability.md from compat_tests/reliability/results/.

    python compat_tests/reliability/render.py

Needs no TensorFlow. Each part ``<!-- section -->`` of the page becomes a table of that section's rows.
"""

from typing import Any, Dict, List, Mapping

from scalekeeper_test_support.generated_pages import rewrite
from scalekeeper_test_support.reliability_results import WITHOUT_TENSORFLOW, recorded

PAGE = "reliability.md"
# recorded name of a column or text of a cell → how the page shows it
LABELS = {
    "ours": "scalekeeper",
    "TensorFlow's own": "TensorFlow",
    "TensorFlow's own class": "TensorFlow's class",
    "expected, and ours": "expected, and scalekeeper's result",
    "non-finite steps at the floor": "non-finite steps at the floor",
    "memory at their end, to that after a tenth": "memory at the end / after a tenth",
    "trials of TensorFlow's own class": "trials of TensorFlow's class",
    "as expected there": "as expected with TensorFlow's class",
    "nothing moved": "nothing changed",
    "steps with replicas that differ": "steps with different replicas",
    "of them the chief": "chiefs killed",
    "ended as the uninterrupted one": "equal to the uninterrupted one",
    "bytes a step": "bytes per step",
    "differ from the simulation": "steps that differ from the simulation",
    "differ from the same alone": "differ from the thread alone",
    "tried": "tested",
    "refused": "rejected",
    "in what is never used": "in unused code",
}


def parts_of_page(found: List[Dict[str, Any]]) -> Dict[str, str]:
    """Section → its table."""
    sections = dict.fromkeys(section for each in found for section in each["sections"])
    return {section: table(found, section) for section in sections}


def table(found: List[Dict[str, Any]], section: str) -> str:
    """All rows of a section, behind the name of the TensorFlow that they were measured on."""
    rows = [(each["name"], row) for each in found for row in each["sections"].get(section, [])]
    first = {} if all(name == WITHOUT_TENSORFLOW for name, _ in rows) else {"TensorFlow": ""}
    columns = list(dict.fromkeys(column for _, row in rows for column in {**first, **row}))
    lines = ["| " + " | ".join(shown(column) for column in columns) + " |", "|---" * len(columns) + "|"]
    for name, row in rows:
        cells: Mapping[str, Any] = {**dict.fromkeys(first, name), **row}
        lines.append("| " + " | ".join(shown(cells.get(column, "")) for column in columns) + " |")
    return "\n".join(lines)


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else LABELS.get(value, str(value))


if __name__ == "__main__":
    rewrite(PAGE, parts_of_page(recorded()))
