"""Record what ran on each TensorFlow, and make the table of docs/versions.md from it.

    python compat_tests/versions.py FOLDER …

Each folder holds records of environments: ``.tox/fast_run`` after ``python -m tox -m versions``, ``.tox/every`` after
``python -m tox -m every``. Rows of environments without a new record stay as they are in
``compat_tests/versions.json``. Needs no TensorFlow.
"""

import json
import os
import re
import sys

from scalekeeper_test_support.generated_pages import rewrite
from scalekeeper_test_support.repository import repository_path
from scalekeeper_test_support.tensorflow_versions import ENVIRONMENTS, environment

PAGE = "versions.md"
RESULTS = repository_path("compat_tests", "versions.json")
REASONS = repository_path("compat_tests", "known_failures.json")
INSTALLS = repository_path("compat_tests", "installs.json")
# column → what the identifiers of its tests match
COLUMNS = {
    "optimizer": r"^compat_tests/(optimizer/test_|testing/|cli/|registry/|test_)",
    "equal to TensorFlow's class": r"test_(differential|equal_to_tensorflow|behaviours)\.py",
    "replicas": r"/strategies/|replica",
    "XLA": r"test_(xla|jit_compile)\.py",
    "H5": r"(^compat_tests/(golden|scenarios|serialization)|^tests/serialization).*(?<![a-z])h5(?![a-z])",
    "SavedModel": r"^compat_tests/(golden|scenarios|serialization).*saved_model",
    "checkpoint": r"^compat_tests/(golden|scenarios|serialization).*(checkpoint|deferred)",
    ".keras": r"^compat_tests/(golden|scenarios|serialization).*[-.\[]keras(?!3)",
    "npz": r"^compat_tests/(golden|scenarios|serialization).*npz",
    "all": "",
}


def summary(record, kind):
    """Return column → [passed, failed] of one record, the failed tests, its date, and which of the two runs it was."""
    counts = {column: [0, 0] for column in COLUMNS}
    for node, (outcome, _) in record["results"].items():
        for column, pattern in COLUMNS.items():
            if outcome in ("passed", "failed") and re.search(pattern, node):
                counts[column][outcome == "failed"] += 1
    failed = sorted(node for node, (outcome, _) in record["results"].items() if outcome == "failed")
    return {"date": record["date"], "run": kind, "counts": counts, "failed": failed}


def read_results():
    """Return environment → its last summary."""
    if not os.path.exists(RESULTS):
        return {}
    with open(RESULTS, encoding="utf-8") as stream:
        return json.load(stream)


def read_installs():
    """Return TensorFlow → how many commands of pip install scalekeeper beside it."""
    with open(INSTALLS, encoding="utf-8") as stream:
        rows = [row for row in json.load(stream) if row["command"].startswith('pip install "tensorflow')]
    return {
        row["tensorflow"]: row["command"].count("pip install")
        for row in rows
        if not row["failed"] and "tf_keras" not in row["command"]
    }


def parts_of_page(results, installs):
    """Return the tables of passed and of failed tests, and the environments that have not run."""
    lines = ["| environment | TensorFlow | " + " | ".join(COLUMNS) + " | failed | pip commands | run |"]
    lines.append("|---|---" + "|--:" * (len(COLUMNS) + 2) + "|---|")
    for each in ENVIRONMENTS:
        row = results.get(each.name)
        if row:
            passed = [str(row["counts"][column][0] or "–") for column in COLUMNS]
            failed = f"[{len(row['failed'])}](#tests-that-failed)" if row["failed"] else "–"
            commands = str(installs.get(each.tensorflow, "not run"))
            cells = [f"`{each.name}`", each.tensorflow, *passed, failed, commands, f"{row['run']}, {row['date']}"]
            lines.append("| " + " | ".join(cells) + " |")
    left_out = [f"`{each.name}`" for each in ENVIRONMENTS if each.name not in results]
    not_run = f"{len(left_out)} of {len(ENVIRONMENTS)} environments have not run: {', '.join(left_out)}."
    return {
        "versions": "\n".join(lines),
        "not run": not_run if left_out else "All environments have run.",
        "failures": "\n".join(failures(results)),
    }


def failures(results):
    """Return a table of the tests that failed: a row for each reason, with its tests and environments."""
    with open(REASONS, encoding="utf-8") as stream:
        reasons = json.load(stream)
    tests, environments = {}, {}  # reason → test → its cases; reason → environments
    for each in ENVIRONMENTS:
        for node in results.get(each.name, {}).get("failed", ()):
            found = [
                line["reason"] for line in reasons if re.search(line["environment"], each.name) and line["test"] in node
            ]
            reason = found[0] if found else "**not known**"
            tests.setdefault(reason, {}).setdefault(node.split("/")[-1].partition("[")[0], set()).add(node)
            environments.setdefault(reason, {})[f"`{each.name}`"] = None
    lines = ["| reason | tests | environments |", "|---|---|---|"]
    for reason, cases in tests.items():
        names = [f"`{name}`" + (f" ({len(nodes)} cases)" if len(nodes) > 1 else "") for name, nodes in cases.items()]
        lines.append(f"| {reason} | {'<br>'.join(names)} | {'<br>'.join(environments[reason])} |")
    return lines


def main(folders):
    results = read_results()
    for folder in folders:
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), encoding="utf-8") as stream:
                kind = "all tests" if name.endswith("-every.json") else "fast"
                results[environment(name[: -len(".json")]).name] = summary(json.load(stream), kind)
    with open(RESULTS, "w", encoding="utf-8") as stream:
        json.dump({each.name: results[each.name] for each in ENVIRONMENTS if each.name in results}, stream, indent=1)
        stream.write("\n")
    rewrite(PAGE, parts_of_page(results, read_installs()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
