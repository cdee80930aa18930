"""Golden files, converted for a plain TensorFlow that reads them without this package, and goes on.

    python compat_tests/golden/converted.py write FOLDER 2.3        converts all of them, with the installed TensorFlow
    python compat_tests/golden/converted.py read FOLDER 2.3         on TensorFlow 2.3, without this package: the grades

State that a conversion has announced as dropped may be missing; everything else must be there.
"""

import argparse
import collections
import json
import os
import sys

from scalekeeper_test_support.golden import archives, matrix
from scalekeeper_test_support.repository import load_script

# name of the target → the flavours of its default and, where it has others, its legacy optimizers; a target between
# two of them has those of the next
TARGETS = {
    "2.0": ("tf20",),
    "2.1": ("tf21",),
    "2.2": ("tf22",),
    "2.3": ("tf23",),
    "2.10": ("tf210",),
    "2.15": ("tf215", "tf215L"),
    "tf_keras": ("tfk", "tfkL"),
    "keras3": ("k3",),
}
FIRST_WITH_KERAS_FILES = 13
WAYS = {"h5": ("load_model",), "keras": ("load_model",), "checkpoint": ("checkpoint", "deferred")}
LEGACY_FLAVOURS = {"tf20", "tf21", "tf22", "tf23", "tf24e", "tf24", "tf210", "tf215L", "tfkL"}
# dropped by design, and not needed: the reader builds the model in code
NEEDLESS = ("the layers of the model", "classes and arguments")


def flavours_of(target):
    """The flavours of any target: 2.7 has those of 2.10, and 2.16-tf_keras those of tf_keras."""
    minor, _, keras = target.partition("-")
    if keras or target in TARGETS:
        return TARGETS[keras or target]
    numbers = {int(name.split(".")[1]): name for name in TARGETS if name.startswith("2.")}
    return TARGETS[numbers[min(number for number in numbers if number > int(minor.split(".")[1]))]]


def has_keras_files(target):
    """Whether the target reads .keras files: from 2.13 on."""
    return target.endswith("keras") or is_keras_3(target) or int(target.split(".")[1]) >= FIRST_WITH_KERAS_FILES


def is_keras_3(target):
    return target.endswith("keras3")


def plan(target, cases=None):
    """Case, format of the source, format of the destination: the richest source for each.

    A checkpoint names no policy, and the one who reads it has to have it. For Keras 3 it is made of those of Keras 3.
    """
    found = []
    for case in all_cases() if cases is None else cases:
        formats = matrix.formats(*case.producer)
        models = [each for each in ("saved_model", "keras", "h5") if each in formats]
        best = max(models, key=lambda each: matrix.holds(case, each))
        destinations = ["h5", *(["keras"] if has_keras_files(target) else [])]
        found += [(case, best, destination) for destination in destinations]
        if (not is_keras_3(target) or case.flavour == "k3") and is_expressible(case, target):
            found.append((case, "checkpoint", "checkpoint"))
    return found


def is_expressible(case, target):
    """Whether the target's own class has such a loss scale."""
    return case.policy in matrix.policies(matrix.OWN, flavours_of(target)[0])


def all_cases():
    return [case for producer in matrix.producers() for case in matrix.cases(producer)]


def path_in(folder, case, file_format):
    return os.path.join(folder, case.cls, case.flavour, case.folder, *matrix.FILES[file_format].split("/"))


def write(folder, target, rows, files=archives.FILES):
    """Convert; beside each file lies what is expected of it, and what was announced as lost."""
    import scalekeeper

    by_producer = collections.defaultdict(list)
    for row in rows:
        by_producer[row[0].producer].append(row)
    for producer, chosen in by_producer.items():
        with archives.unpacked(producer, files) as unpacked:
            for case, source_format, file_format in chosen:
                source = os.path.join(unpacked, case.folder, *matrix.FILES[source_format].split("/"))
                path = path_in(folder, case, file_format)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(os.path.join(unpacked, case.folder, "expected.json"), encoding="utf-8") as stream:
                    note = {"expected": json.load(stream), "source": source_format, "losses": [], "error": None}
                try:
                    report = scalekeeper.convert(source, path, target + "-plain", allow_loss=True)
                    note["losses"] = report.losses
                except scalekeeper.ScalekeeperError as error:
                    note["error"] = str(error).replace(unpacked, "FOLDER")
                with open(path + ".json", "w", encoding="utf-8") as stream:
                    json.dump(note, stream)


def read(folder, target, rows, only_ways=None):
    """Read with the installed TensorFlow's own class: rows of results."""
    consume = load_script("compat_tests/golden/consume.py")

    found = []
    for case, source_format, file_format in rows:
        path = path_in(folder, case, file_format)
        with open(path + ".json", encoding="utf-8") as stream:
            note = json.load(stream)
        losses = [loss for loss in note["losses"] if not loss.startswith(NEEDLESS)]
        for way in WAYS[file_format]:
            flavours = flavours_of(target)
            flavour = flavours[-1] if case.flavour in LEGACY_FLAVOURS else flavours[0]
            cell = matrix.Cell(case, file_format, way, matrix.OWN, flavour)
            grade, reason = (0, "refused: " + note["error"]) if note["error"] else _graded(consume, cell, path, note)
            found.append(
                {
                    "producer": case.producer.name,
                    "case": case.folder,
                    "source": source_format,
                    "format": file_format,
                    "way": way,
                    "grade": grade,
                    "losses": losses,
                    "reason": reason,
                }
            )
    return found


def _graded(consume, cell, path, note):
    with consume.quiet():
        return consume.graded(cell, path, note["expected"])


def is_announced(row):
    """Whether a conversion kept its word: what is not announced as lost is there."""
    return row["grade"] == 4 or bool(row["losses"]) or (row["reason"] or "").startswith("refused: ")


def summary(rows):
    """Shares by format and way, and reasons."""
    lines = []
    by_way = collections.defaultdict(list)
    for row in rows:
        by_way[row["format"], row["way"]].append(row)
    for key, group in sorted(by_way.items()):
        whole = sum(row["grade"] == 4 for row in group)
        kept = [row for row in group if not row["losses"] and not (row["reason"] or "").startswith("refused")]
        lines.append(
            f"{' '.join(key):24} {whole:4} of {len(group)} go on to the ground truth; without announced losses: "
            f"{sum(row['grade'] == 4 for row in kept)} of {len(kept)}"
        )
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("action", choices=["write", "read"])
    parser.add_argument("folder")
    parser.add_argument("target")
    parser.add_argument("--show", type=int, default=3)
    parser.add_argument("--part", metavar="NAME", help="read what this file in the folder lists, and print JSON")
    arguments = parser.parse_args()
    rows = plan(arguments.target)
    if arguments.action == "write":
        write(arguments.folder, arguments.target, rows)
        return
    assert "scalekeeper" not in sys.modules
    sys.modules["scalekeeper"] = None  # whoever imports it now fails
    if arguments.part:
        with open(os.path.join(arguments.folder, arguments.part), encoding="utf-8") as stream:
            names = [line.split("|") for line in stream.read().splitlines()]
        rows = [(matrix.Case(*name[:4]), *name[4:]) for name in names]
        print(json.dumps(read(arguments.folder, arguments.target, rows)))
        return
    found = read(arguments.folder, arguments.target, rows)
    print("\n".join(summary(found)))
    for title, is_meant in (
        ("BROKEN PROMISES", lambda row: not is_announced(row)),
        ("misses", lambda row: row["grade"] < 4),
    ):
        reasons = collections.defaultdict(list)
        for row in found:
            if is_meant(row):
                reasons[row["format"], row["grade"], row["reason"], "; ".join(row["losses"])].append(row)
        print(title)
        for key, group in sorted(reasons.items(), key=lambda item: -len(item[1]))[:40]:
            print(f"  {len(group)} × {key}")
            for row in group[: arguments.show]:
                print("     ", row["producer"], row["case"], row["source"], row["way"])


if __name__ == "__main__":
    main()
