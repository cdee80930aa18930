"""The results of reading all golden files, in files small enough to keep: rows in memory, a tree on disk.

Needs no TensorFlow. A row is a mapping with the keys of ROW. On disk, a grade stands in its place among the optimizers;
where it is not all that the file holds, a reason stands beside it, by its number.
"""

import json
import os

from scalekeeper_test_support.golden import matrix
from scalekeeper_test_support.repository import repository_path

RESULTS = repository_path("compat_tests", "golden", "results")
ROW = (
    "class",
    "flavour",
    "policy",
    "optimizer",
    "format",
    "way",
    "consumer_class",
    "consumer",
    "grade",
    "holds",
    "reason",
)


def row_of(cell, grade, reason):
    """One result; a reason is there if the grade is not all that the file holds."""
    case = cell.case
    values = (*case, cell.format, cell.way, cell.consumer_cls, cell.consumer)
    return dict(zip(ROW, (*values, grade, matrix.holds(case, cell.format), reason)))


def cell_of(row):
    case = matrix.Case(row["class"], row["flavour"], row["policy"], row["optimizer"])
    return matrix.Cell(case, row["format"], row["way"], row["consumer_class"], row["consumer"])


def write(consumer, versions, rows, folder=RESULTS):
    """Write all rows of one consumer, of both classes."""
    found = {cell_of(row): row for row in rows}
    reasons = sorted({row["reason"] for row in rows if row["reason"]})
    numbers = {reason: number for number, reason in enumerate(reasons)}
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, consumer + ".json"), "w", encoding="utf-8", newline="\n") as stream:
        stream.write("{\n")
        for name, value in versions.items():
            stream.write(f" {json.dumps(name)}: {json.dumps(value)},\n")
        stream.write(' "reasons": [\n' + ",\n".join("  " + json.dumps(reason) for reason in reasons) + "\n ],\n")
        lines = []
        for key, cells in _groups(consumer):
            grades = [short(found[cell], numbers) if cell in found else None for cell in cells]
            if any(grade is not None for grade in grades):
                lines.append(f"  {json.dumps(key)}: {json.dumps(grades, separators=(',', ':'))}")
        stream.write(' "grades": {\n' + ",\n".join(lines) + "\n }\n}\n")


def short(row, numbers):
    """A row's grade, and the number of its reason if it has one."""
    return [row["grade"], numbers[row["reason"]]] if row["reason"] else row["grade"]


def _groups(consumer):
    """A line's name, and its cells: all policies and optimizers of a producer, a format, a way and a reading class."""
    groups = {}
    for cls in (matrix.OURS, matrix.OWN):
        for cell in matrix.cells(cls, consumer):
            key = f"{cls} {cell.case.producer.name} {cell.format} {cell.way}"
            groups.setdefault(key, []).append(cell)
    return groups.items()


def read(consumer, folder=RESULTS):
    """The versions and the rows of one consumer; nothing if there are no results yet."""
    path = os.path.join(folder, consumer + ".json")
    if not os.path.exists(path):
        return {}, []
    with open(path, encoding="utf-8") as stream:
        document = json.load(stream)
    rows = []
    for key, cells in _groups(consumer):
        for cell, kept in zip(cells, document["grades"].get(key, ())):
            if kept is not None:
                grade, number = kept if isinstance(kept, list) else (kept, None)
                rows.append(row_of(cell, grade, None if number is None else document["reasons"][number]))
    versions = {name: document[name] for name in document if name not in ("reasons", "grades")}
    return versions, rows
