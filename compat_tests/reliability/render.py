"""Make the tables of docs/reliability.md from compat_tests/reliability/results/.

    python compat_tests/reliability/render.py

Needs no TensorFlow. Each part ``<!-- section -->`` of the page becomes a table of that section's rows.
"""

from typing import Any, Dict, List, Mapping

from scalekeeper_test_support.generated_pages import rewrite
from scalekeeper_test_support.reliability_results import WITHOUT_TENSORFLOW, recorded

PAGE = "reliability.md"


def parts_of_page(found: List[Dict[str, Any]]) -> Dict[str, str]:
    """Section → its table."""
    sections = dict.fromkeys(section for each in found for section in each["sections"])
    return {section: table(found, section) for section in sections}


def table(found: List[Dict[str, Any]], section: str) -> str:
    """All rows of a section, behind the name of the TensorFlow that they were measured on."""
    rows = [(each["name"], row) for each in found for row in each["sections"].get(section, [])]
    first = {} if all(name == WITHOUT_TENSORFLOW for name, _ in rows) else {"TensorFlow": ""}
    columns = list(dict.fromkeys(column for _, row in rows for column in {**first, **row}))
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for name, row in rows:
        cells: Mapping[str, Any] = {**dict.fromkeys(first, name), **row}
        lines.append("| " + " | ".join(shown(cells.get(column, "")) for column in columns) + " |")
    return "\n".join(lines)


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    rewrite(PAGE, parts_of_page(recorded()))
