"""Run the tests that need no TensorFlow with the libraries that are installed, and keep which they were.

    python -m tox -e py37-lowest-supply       # the lower end of every range
    python -m tox -e py313-core-supply        # the upper end

Each fills its own column of the table in docs/reliability.md.
"""

from typing import Any, Dict, Iterator

import json
import os
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree

from scalekeeper_test_support.dependencies import declared, installed
from scalekeeper_test_support.reliability_results import WITHOUT_TENSORFLOW, record, recorded
from scalekeeper_test_support.repository import ROOT, repository_path

SECTION = "supply"
LOWEST, NEWEST = "lowest tested", "newest tested"
TESTS = "tests passed"


def tests_passed() -> int:
    """How many tests pass; one that fails ends this."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.xml")
        command = ["pytest", "-q", "-n", "2", "--dist", "loadfile", f"--junitxml={path}", "tests"]
        subprocess.run(command, cwd=ROOT, check=True)
        suite = ElementTree.parse(path).getroot().find("testsuite")
    return int(suite.get("tests")) - int(suite.get("skipped"))


def end() -> str:
    """Which end of the ranges this environment is; tests/supply/test_bounds.py holds it to its name."""
    ends = {"py37-lowest-supply": LOWEST, "py313-core-supply": NEWEST}
    return ends[os.environ["SCALEKEEPER_ENVIRONMENT"]]


def rows(column: str, passed: int) -> Iterator[Dict[str, Any]]:
    """A row for each dependency that is installed here or at the other end, and one for the tests."""
    other = LOWEST if column == NEWEST else NEWEST
    before = [each["sections"].get(SECTION, []) for each in recorded() if each["name"] == WITHOUT_TENSORFLOW]
    there = {row["dependency"]: row[other] for row in (before[0] if before else [])}
    for name, requirement in declared().items():
        found = {column: str(installed(name) or ""), other: there.get(requirement.name, "")}
        if any(found.values()):
            clauses = sorted(map(str, requirement.specifier), reverse=True)
            yield _row(requirement.name, f"`{', '.join(clauses)}`", found)
    yield _row(TESTS, "", {column: passed, other: there.get(TESTS, "")})


def _row(name: str, allowed: str, found: Dict[str, Any]) -> Dict[str, Any]:
    return {"dependency": name, "allowed": allowed, LOWEST: found[LOWEST], NEWEST: found[NEWEST]}


def advisories() -> Iterator[Dict[str, Any]]:
    """Return what is known of each package, and what we say to it."""
    with open(repository_path("tests", "supply", "advisories.json"), encoding="utf-8") as stream:
        known = json.load(stream)["advisories"]
    for package in sorted({advisory["package"] for advisory in known}):
        answers = [advisory["answer"] for advisory in known if advisory["package"] == package]
        yield {
            "package": package,
            "known": len(answers),
            "not in an allowed version": answers.count("raised"),
            "in what is never used": answers.count("unreached"),
            "harmless": answers.count("harmless"),
            "open": answers.count("open"),
        }


if __name__ == "__main__":
    record(SECTION, list(rows(end(), tests_passed())), needs_tensorflow=False)
    record("advisories", list(advisories()), needs_tensorflow=False)
