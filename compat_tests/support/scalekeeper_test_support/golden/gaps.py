"""What is known not to come back: lines of data, each with its reason. Everything else has to be all that a file holds.

Needs no TensorFlow. A line of ``gaps.json`` names what it is about by the keys of a row of results, each with one value
or a list of them; ``grade`` is what is reached instead. A cell that reaches more, or less, fails.
"""

import json

from scalekeeper_test_support.golden import matrix
from scalekeeper_test_support.repository import repository_path

GAPS = repository_path("compat_tests", "golden", "gaps.json")
# the same for TensorFlow's own class and the files that scalekeeper wrote
LOCK_INS = repository_path("compat_tests", "golden", "lock_ins.json")
KEYS = ("class", "flavour", "policy", "optimizer", "format", "way", "consumer")


def lines(path=GAPS):
    with open(path, encoding="utf-8") as stream:
        return json.load(stream)


def matches(line, cell):
    values = dict(zip(KEYS, (*cell.case, cell.format, cell.way, cell.consumer)))
    return all(value in _list(line[key]) for key, value in values.items() if key in line)


def _list(value):
    return value if isinstance(value, list) else [value]


def expected_grade(cell, known):
    """The grade that our class has to reach in a cell: what the file holds, or what the first line about it says."""
    for line in known:
        if matches(line, cell):
            return line["grade"]
    return matrix.holds(cell.case, cell.format)
