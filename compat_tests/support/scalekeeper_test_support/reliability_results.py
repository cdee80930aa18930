"""Where the figures of docs/reliability.md are kept: one file for each TensorFlow, rows under the name of a section.

A row is a flat mapping, column → value. The rows of a section have the same columns, and are replaced together.
"""

from typing import Any, Dict, List, Mapping, Sequence

import glob
import json
import os
import platform

from scalekeeper_test_support.repository import repository_path

RESULTS = repository_path("compat_tests", "reliability", "results")
WITHOUT_TENSORFLOW = "none"


def record(section: str, rows: Sequence[Mapping[str, Any]], needs_tensorflow: bool = True) -> None:
    """Keep these rows in place of those that this section had, for the TensorFlow that is installed, or for none."""
    name, machine = WITHOUT_TENSORFLOW, f"Python {platform.python_version()}, {platform.system()}"
    if needs_tensorflow:
        from scalekeeper_test_support import benchmark_results  # imports TensorFlow

        name, machine = benchmark_results.name_of_tensorflow(), benchmark_results.machine()
    path = os.path.join(RESULTS, name.replace(" ", "-") + ".json")
    sections: Dict[str, Any] = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as stream:
            sections = json.load(stream)["sections"]
    content = {"name": name, "machine": machine, "sections": {**sections, section: list(rows)}}
    os.makedirs(RESULTS, exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as stream:
        json.dump(content, stream, indent=1)
        stream.write("\n")
    os.replace(path + ".new", path)


def recorded() -> List[Dict[str, Any]]:
    """What every file holds: the oldest TensorFlow first, and what needs none before it."""
    found = []
    for path in glob.glob(os.path.join(RESULTS, "*.json")):
        with open(path, encoding="utf-8") as stream:
            found.append(json.load(stream))
    return sorted(found, key=_age)


def _age(content: Mapping[str, Any]) -> Any:
    name = content["name"]
    return [] if name == WITHOUT_TENSORFLOW else [int(part) for part in name.split()[0].split(".")], name
