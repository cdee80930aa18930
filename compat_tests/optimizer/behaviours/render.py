"""Write docs/behaviours.md from expected.json and members.json.

python compat_tests/optimizer/behaviours/render.py
"""

import json
import os

from scalekeeper_test_support.repository import repository_path

HERE = os.path.dirname(os.path.abspath(__file__))
EXPECTED = os.path.join(HERE, "expected.json")
MEMBERS = os.path.join(HERE, "members.json")
PAGE = repository_path("docs", "behaviours.md")
# in this order, neighbours have most in common
VERSIONS = ("2.0", "2.1", "2.2", "2.3", "2.4", "2.10", "2.15 legacy", "2.15", "2.21 tf_keras", "2.21 Keras 3")

INTRODUCTION = """\
# How loss scaling behaves, version by version

This page compares TensorFlow's `LossScaleOptimizer` with scalekeeper's on each version. All results are measured on the
real TensorFlow by `measure.py` of `compat_tests/optimizer/behaviours`. `expected.json` there holds the expected
results, and tests fail if the two differ, for better or worse. `render.py` generates this page.

"2.15 legacy" is TensorFlow 2.15 with the optimizers of `tf.keras.optimizers.legacy`. All other columns use the default
optimizers, which belong to a new generation from 2.11 on. TensorFlow 2.21 is measured with both of its Keras versions.
Keras saves and loads the models with its class; scalekeeper uses its `save_model` and `load_model`.

## At a glance

`=`: scalekeeper behaves like TensorFlow's class. `≠`: scalekeeper behaves differently or does more. An asterisk marks
where scalekeeper does not yet, or cannot, behave as it should; the reason is below the details.
"""

MEMBERS_INTRODUCTION = """\
## Every member

A row for each public attribute and method of TensorFlow's classes. `=`: scalekeeper's class has it, with the same type
and value, or the same types and values of results, and the same class of error for a wrong argument; an error may be a
subclass. Otherwise the cell names what is not the same, and the reason follows; with `exception`, one of the two raises
an error that the other does not raise. An empty cell: TensorFlow's class has no such member.
"""


def page(expected, members):
    """The page as text."""
    lines = [INTRODUCTION, "| | behaviour | {} |".format(" | ".join(VERSIONS)), "|---" * (len(VERSIONS) + 2) + "|"]
    for row, entries in expected.items():
        marks = [mark(entries[version]) for version in VERSIONS]
        lines.append("| {} |".format(" | ".join([f"[{row}](#{row.lower()})", entries["behaviour"], *marks])))
    for row, entries in expected.items():
        lines += ["", f"## {row}", "", f"**{entries['behaviour'][0].upper()}{entries['behaviour'][1:]}**", ""]
        lines += details(entries)
    return "\n".join([*lines, "", *member_tables(members)]) + "\n"


def member_tables(members):
    """A table for each class: what of a member is not the same, by version; and the reasons."""
    lines = [MEMBERS_INTRODUCTION.rstrip("\n")]
    versions = members["versions"]
    for cls in next(iter(versions.values())):
        reasons = members["reasons"]["LossScaleOptimizer" if cls == "LossScaleOptimizer" else "policies"]
        names = sorted({name for each in versions.values() for name in each[cls]})
        lines += [
            "",
            f"### `{cls}`",
            "",
            "| member | {} |".format(" | ".join(VERSIONS)),
            "|---" * (len(VERSIONS) + 1) + "|",
        ]
        different = []
        for name in names:
            cells = [versions[version][cls].get(name, "") for version in VERSIONS]
            lines.append("| {} |".format(" | ".join([f"`{name}`", *cells])))
            different += [name] if set(cells) - {"=", ""} else []
        if different:
            lines += ["", *(f"- `{name}`: {reasons[name]}" for name in different)]
    return lines


def mark(entry):
    return ("=" if entry["own"] == entry["ours"] else "≠") + ("\\*" if "reason" in entry else "")


def details(entries):
    """A table with a line for each thing that was seen, and the versions on which it was; below it, the reasons."""
    seen = {}
    for subject in ("own", "ours"):
        for version in VERSIONS:
            seen.setdefault(entries[version][subject], {"own": [], "ours": []})[subject].append(version)
    lines = ["| result | TensorFlow's class | scalekeeper |", "|---|---|---|"]
    for words, versions in seen.items():
        lines.append("| {} | {} | {} |".format(cell(words), those(versions["own"]), those(versions["ours"])))
    reasons = {}
    for version in VERSIONS:
        if "reason" in entries[version]:
            reasons.setdefault(entries[version]["reason"], []).append(version)
    if reasons:
        lines += ["", *(f"- scalekeeper, {those(versions)}: {reason}" for reason, versions in reasons.items())]
    return lines


def those(versions):
    """The versions in words: neighbours are a range."""
    if len(versions) == len(VERSIONS):
        return "everywhere"
    runs = []
    for version in versions:
        if runs and VERSIONS.index(version) == VERSIONS.index(runs[-1][-1]) + 1:
            runs[-1].append(version)
        else:
            runs.append([version])
    return ", ".join(", ".join(run) if len(run) < 3 else f"{run[0]} to {run[-1]}" for run in runs)


def cell(words):
    return str(words).replace("|", "\\|")


def main():
    with open(EXPECTED, encoding="utf-8") as stream:
        expected = json.load(stream)
    with open(MEMBERS, encoding="utf-8") as stream:
        text = page(expected, json.load(stream))
    with open(PAGE, "w", encoding="utf-8", newline="\n") as stream:
        stream.write(text)


if __name__ == "__main__":
    main()
