"""Make the tables of docs/models.md from compat_tests/corpus/results/.

    python compat_tests/corpus/render.py

Needs no TensorFlow.
"""

from typing import Any, Dict, List, Mapping

import json
import os

from scalekeeper_test_support.generated_pages import rewrite
from scalekeeper_test_support.repository import repository_path

PAGE = "models.md"
RESULTS = repository_path("compat_tests", "corpus", "results")
TITLES = {
    "tf20": "2.0",
    "tf23": "2.3",
    "tf27": "2.7",
    "tf210": "2.10",
    "tf213": "2.13",
    "tf215": "2.15",
    "tfkeras": "2.21 tf_keras",
    "keras3": "2.21 Keras 3",
}


def results() -> Dict[str, Any]:
    """Consumer → producer → reader → counts."""
    found = {}
    for name in TITLES:
        path = os.path.join(RESULTS, f"{name}.json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as stream:
                found[name] = json.load(stream)
    return found


def parts_of_page(found: Mapping[str, Any]) -> Dict[str, str]:
    """Part → its table."""
    return {"scalekeeper": table(found, "scalekeeper"), "keras": table(found, "keras")}


def table(found: Mapping[str, Any], reader: str) -> str:
    """Return the share of right models: a row for each producer, a column for each consumer."""
    lines = [row(["written on", *(f"read on {title}" for title in TITLES.values())]), "|---" * (len(TITLES) + 1) + "|"]
    for producer, title in TITLES.items():
        counts = [found.get(consumer, {}).get(producer, {}).get(reader) for consumer in TITLES]
        lines.append(row([title, *(cell(each) if each else "not measured" for each in counts)]))
    return "\n".join(lines)


def cell(counts: Mapping[str, Any]) -> str:
    """Return how many models are right, and how many are wrong in silence."""
    numbers = {grade: count for grade, count in counts.items() if isinstance(count, int)}
    bad = sum(numbers.get(grade, 0) for grade in ("wrong", "random"))
    share = f"{numbers.get('right', 0) + numbers.get('warned', 0)} of {sum(numbers.values())}"
    return share + (f", {bad} wrong" if bad else "")


def row(cells: List[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    rewrite(PAGE, parts_of_page(results()))
