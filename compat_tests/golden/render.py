"""Make docs/compatibility.md and docs/compatibility.html from the results of reading all golden files.

    python compat_tests/golden/render.py

Needs no TensorFlow.
"""

import collections
import itertools
import json
import os

from scalekeeper_test_support.golden import gaps, matrix, results

HERE = os.path.dirname(os.path.abspath(__file__))
DOCS = os.path.join(HERE, "..", "..", "docs")
PAGE = os.path.join(DOCS, "compatibility.md")
INTERACTIVE = os.path.join(DOCS, "compatibility.html")
TEMPLATE = os.path.join(HERE, "page.html")
WORDS = {"config": "configuration", "h5": "HDF5", "saved_model": "SavedModel", "keras": "`.keras`", "npz": "`.npz`"}

ABOUT = {"flavour": "written on", "consumer": "read on", "way": "method"}
UNBROKEN = "\N{NO-BREAK SPACE}"
PLAIN = ("checkpoint", "deferred")  # ways that TensorFlow itself goes
INTRODUCTION = """# Compatibility: which versions read which files

Look up here whether a file that one version wrote can be read on another, and by which method. [The interactive
page](compatibility.html) shows every combination, with filters and reasons.

The tables count cells: one file, read by one version, with one method. In a cell at L4, training continues as if it had
never been interrupted; [How it is measured](#how-it-is-measured) defines the other grades.
"""
DEFINITIONS = """## How it is measured

Every consumer reads every file of every producer with every available method, and the result is graded: a cell of the
tables. `compat_tests/golden/render.py` makes this page from the results.

- A *producer* is a class, TensorFlow's or scalekeeper's, on one TensorFlow with one generation of optimizers. All
  {producers} producers train a small model with up to four policies (fixed, dynamic, dynamic with multiplier 4, one
  with two more state variables) and three optimizers (SGD with momentum, Adam, RMSprop), and write all files they can.
- A *consumer* is a class on one TensorFlow with one generation of optimizers.
- Grades: {grades}.
- Methods: `load_model`; `restore` into a model built in code (scalekeeper only); `from_config`; `set_weights`; a plain
  `tf.train.Checkpoint`, restored after the variables of the optimizer exist (`checkpoint`) and before (`deferred`).

TensorFlow's files are incomplete: its HDF5 files hold no loss-scale state, for instance. The tables therefore count
whether **everything in the file** is restored. Training depends on the loss scale, so L4 means that loss scale, counter
and policy are correct and not merely present.
"""


def all_rows():
    """Every row, and consumer → versions."""
    rows, versions = [], {}
    for consumer in matrix.CONSUMERS:
        found, more = results.read(consumer)
        if more:
            versions[consumer] = found
            rows += more
    return rows, versions


def page(rows, known_gaps):
    """The Markdown page as text."""
    lines = [INTRODUCTION, "## In short", "", *_overall(rows), ""]
    for cls, title in ((matrix.OWN, "Files of TensorFlow's class"), (matrix.OURS, "Files of scalekeeper")):
        these = [row for row in rows if row["class"] == cls]
        if not these:
            continue
        lines += [
            f"## {title}",
            "",
            "Percentage of the cells that restore everything in the file: scalekeeper / TensorFlow's class. `-`: not",
            "available. The columns are the versions that read.",
            "",
            *_by_method(these),
            "",
        ]
    lines += ["## How training continues", "", *_at_l4(rows), ""]
    lines += ["## Without scalekeeper", "", *_without_us(rows), ""]
    grades = "; ".join(f"**L{grade}** {words}" for grade, words in matrix.GRADES.items())
    lines.append(DEFINITIONS.format(producers=len(matrix.producers()), grades=grades))
    if known_gaps:
        lines += ["## Known gaps", "", "State that scalekeeper is known not to restore, and why.", ""]
        lines += [f"- {_about(line)}: L{line['grade']}. {line['reason']}" for line in known_gaps]
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def _overall(rows):
    lines = [
        "A plain `tf.train.Checkpoint` matches objects by their path in a tree. The path differs between Keras",
        "generations: scalekeeper then raises an error with the advice to call `restore`, which reads the same file.",
        "",
        "| class that wrote | class that reads | method | cells | everything in the file is restored | L4 |",
        "|---|---|---|--:|--:|--:|",
    ]
    for writer, reader, is_plain in itertools.product(
        (matrix.OWN, matrix.OURS), (matrix.OURS, matrix.OWN), (False, True)
    ):
        key = (writer, reader, is_plain)
        these = [row for row in rows if (row["class"], row["consumer_class"], row["way"] in PLAIN) == key]
        if these:
            full = sum(row["grade"] == row["holds"] for row in these)
            best = sum(row["grade"] == 4 for row in these)
            words = [_class(writer), _class(reader), "a plain checkpoint" if is_plain else "all other methods"]
            figures = [f"{len(these):,}", _percent(full, len(these)), _percent(best, len(these))]
            lines.append("| " + " | ".join([*words, *figures]) + " |")
    return lines


def _by_method(rows):
    shares = collections.defaultdict(lambda: [0, 0])
    for row in rows:
        share = shares[row["format"], row["way"], row["consumer"], row["consumer_class"]]
        share[0] += row["grade"] == row["holds"]
        share[1] += 1
    consumers = [each for each in matrix.CONSUMERS if any(key[2] == each for key in shares)]
    lines = [
        "| file and method | " + " | ".join(matrix.FLAVOURS[each] for each in consumers) + " |",
        "|---" + "|--:" * len(consumers) + "|",
    ]
    for file_format, way in ((file_format, way) for file_format, ways in matrix.WAYS.items() for way in ways):
        entries = []
        for consumer in consumers:
            both = [shares.get((file_format, way, consumer, reader)) for reader in (matrix.OURS, matrix.OWN)]
            figures = ["-" if share is None else _percent(*share)[: -len(" %")] for share in both]
            entries.append(f"{UNBROKEN}/{UNBROKEN}".join(figures))
        if any(entry != f"-{UNBROKEN}/{UNBROKEN}-" for entry in entries):
            lines.append(f"| {WORDS.get(file_format, file_format)} `{way}` | " + " | ".join(entries) + " |")
    return lines


def _at_l4(rows):
    """Of the files that hold everything: in how many cells training goes on as if never interrupted."""
    lines = ["Share of the cells at L4, of those with a file that holds the whole training state:", ""]
    lines += ["| format | written by | read by scalekeeper | read by TensorFlow |", "|---|---|--:|--:|"]
    for file_format in matrix.FILES:
        for writer in (matrix.OWN, matrix.OURS):
            entries = []
            for reader in (matrix.OURS, matrix.OWN):
                these = [
                    row["grade"] == 4
                    for row in rows
                    if (row["format"], row["class"], row["consumer_class"], row["holds"])
                    == (file_format, writer, reader, 4)
                ]
                entries.append(f"{_percent(sum(these), len(these))} of {len(these):,}" if these else "-")
            if entries != ["-", "-"]:
                words = [WORDS.get(file_format, file_format), _class(writer), *entries]
                lines.append("| " + " | ".join(words) + " |")
    return lines


def locked_in(rows):
    """Cells in which TensorFlow's own class reads less of our file than of its own; and how many were compared.

    Of policies that its class can express on every version. Elsewhere there is nothing to compare with.
    """
    grades = {
        (row["class"], row["flavour"], row["policy"], row["optimizer"], row["format"], row["way"], row["consumer"]): row
        for row in rows
        if row["consumer_class"] == matrix.OWN and row["policy"] in ("fixed", "dynamic")
    }
    pairs = [
        (row, grades[(matrix.OWN, *key[1:])])
        for key, row in grades.items()
        if key[0] == matrix.OURS and (matrix.OWN, *key[1:]) in grades
    ]
    return [ours for ours, own in pairs if ours["grade"] < own["grade"]], len(pairs)


def _without_us(rows):
    """Return what plain TensorFlow makes of our files."""
    lines = [
        "TensorFlow's class reads files of scalekeeper with a fixed or dynamic loss scale at least as well as its own:",
        "",
    ]
    for words, is_meant in (
        ("on the version that wrote them", lambda row: matrix.is_same_version(row["flavour"], row["consumer"])),
        ("on another version", lambda row: not matrix.is_same_version(row["flavour"], row["consumer"])),
    ):
        worse, compared = locked_in([row for row in rows if is_meant(row)])
        if compared:
            share = _percent(compared - len(worse), compared)
            lines.append(f"- {words}: {compared - len(worse):,} of {compared:,} cells, {share}")
    known = [f"- {_about(line)}: {line['reason']}" for line in gaps.lines(gaps.LOCK_INS)]
    return [*lines, "", "The exceptions:", "", *known]


def _class(cls):
    return "scalekeeper" if cls == matrix.OURS else "TensorFlow"


def _percent(count, total):
    """Never 100 % if anything is missing, never 0 % if anything is there."""
    if count in (0, total):
        return "100 %" if count else "0 %"
    return f"{min(99.9, max(0.1, 100 * count / total)):.{1 if count / total > 0.99 else 0}f} %"


def _about(line):
    parts = []
    for key in gaps.KEYS:
        if key in line:
            values = line[key] if isinstance(line[key], list) else [line[key]]
            named = [matrix.FLAVOURS.get(value, value) for value in values]
            parts.append(f"{ABOUT.get(key, key)} {', '.join(named)}")
    return "; ".join(parts)


def interactive(rows):
    """The HTML page as text: the template with all grades in it."""
    reasons = sorted({row["reason"] for row in rows if row["reason"]})
    numbers = {reason: number for number, reason in enumerate(reasons)}
    found = {results.cell_of(row): row for row in rows}
    consumers = [each for each in matrix.CONSUMERS if any(row["consumer"] == each for row in rows)]
    columns = [(file_format, way) for file_format, ways in matrix.WAYS.items() for way in ways]
    grades = collections.defaultdict(lambda: collections.defaultdict(list))
    for consumer in consumers:
        for cls in (matrix.OURS, matrix.OWN):
            for cell in matrix.cells(cls, consumer):
                row = found.get(cell)
                short = "-" if row is None else results.short(row, numbers)
                column = columns.index((cell.format, cell.way))
                grades[f"{consumer} {cls} {cell.case.producer.name}"][column].append(short)
    # many lines are alike; one without reasons is a string of digits
    lines = {}
    places = {
        key: [_place(lines, by_column.get(column)) for column in range(len(columns))]
        for key, by_column in grades.items()
    }
    data = {
        "flavours": matrix.FLAVOURS,
        "consumers": consumers,
        "producers": [producer.name for producer in matrix.producers()],
        "formats": list(matrix.FILES),
        "ways": sorted({way for ways in matrix.WAYS.values() for way in ways}),
        "columns": columns,
        "all_policies": matrix.POLICIES,
        "optimizers": matrix.OPTIMIZERS,
        "policies": {producer.name: matrix.policies(*producer) for producer in matrix.producers()},
        "holds": {producer.name: _holds(producer) for producer in matrix.producers()},
        "reasons": reasons,
        "lines": [json.loads(line) for line in lines],
        "grades": places,
    }
    # what ends a script element is escaped
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    with open(TEMPLATE, encoding="utf-8") as stream:
        return stream.read().replace("/*DATA*/", text)


def _place(lines, grades):
    """Return the number of a line of grades in ``lines``, where it is added once; -1 for None."""
    if grades is None:
        return -1
    has_reasons = any(isinstance(each, list) for each in grades)
    return lines.setdefault(json.dumps(grades if has_reasons else "".join(map(str, grades))), len(lines))


def _holds(producer):
    first = {case.policy: case for case in matrix.cases(producer)}
    return {
        file_format: [matrix.holds(first[policy], file_format) for policy in matrix.policies(*producer)]
        for file_format in matrix.formats(*producer)
    }


def main():
    rows, _ = all_rows()
    for path, text in ((PAGE, page(rows, gaps.lines())), (INTERACTIVE, interactive(rows))):
        with open(path, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)


if __name__ == "__main__":
    main()
