"""Check after a fast run that its environments together ran every test, and print the slowest tests.

    python compat_tests/selection.py FOLDER

``FOLDER`` holds one record for each environment that ran (see ``scalekeeper_test_support.matrix_plugin``). Every
value of every parameter must have passed in one of the environments that share it. If it was skipped there, because
the installed Keras lacks something, its function must have passed in another environment of the fast run. The share of
an environment without a record is not counted: tox names that environment.
"""

import json
import os
import sys

from scalekeeper_test_support import tensorflow_versions

SLOWEST = 20


def read_records(folder):
    """Return environment → record."""
    found = {}
    for name in tensorflow_versions.FAST_NAMES:
        path = os.path.join(folder, name + ".json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as stream:
                found[name] = json.load(stream)
    return found


def uncovered(records):
    """Return the tests that no environment ran: pairs of the environments that share a value, and the value."""
    wanted, results, passed = set(), {}, set()
    for record in records.values():
        for node, (function, targets, shared_by) in record["collected"].items():
            outcome = record["results"].get(node, ("not run",))[0]
            if outcome == "passed":
                passed.add(function)
            for name, value in targets:
                key = (function, name, value)
                if shared_by and all(environment in records for environment in shared_by):
                    wanted.add((tuple(shared_by), key))
                results.setdefault((tuple(shared_by), key), set()).add(outcome)
    return sorted(
        (shared_by, key)
        for shared_by, key in wanted
        if "passed" not in results[shared_by, key] and not ("skipped" in results[shared_by, key] and key[0] in passed)
    )


def slowest(records):
    """Return the slowest tests of all environments: (seconds, environment, test)."""
    rows = [
        (seconds, environment, node)
        for environment, record in records.items()
        for node, (_, seconds) in record["results"].items()
    ]
    return sorted(rows, reverse=True)[:SLOWEST]


def main(folder):
    records = read_records(folder)
    print(f"The slowest {SLOWEST} tests:")
    for seconds, environment, node in slowest(records):
        print(f"{seconds:7.1f} s  {environment:20}  {node}")
    missing = uncovered(records)
    for shared_by, (function, _, value) in missing:
        print(f"not run in {', '.join(shared_by)}: {function}{'[' + value + ']' if value else ''}")
    count = sum(len(record["results"]) for record in records.values())
    names = tensorflow_versions.FAST_NAMES
    print(f"{len(records)} of {len(names)} environments, {count} tests, {len(missing)} left out")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
