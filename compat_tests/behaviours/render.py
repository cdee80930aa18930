"""Write docs/behaviours.md from expected.json.

python compat_tests/behaviours/render.py
"""

import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
EXPECTED = os.path.join(HERE, "expected.json")
PAGE = os.path.join(os.path.dirname(os.path.dirname(HERE)), "docs", "behaviours.md")
VERSIONS = ("2.0", "2.1", "2.2", "2.3")

INTRODUCTION = """\
# How loss scaling behaves, version by version

What TensorFlow's own `tf.keras.mixed_precision.experimental.LossScaleOptimizer` does on each version, and what ours
does there. Every cell is measured on the real TensorFlow: `compat_tests/behaviours/measure.py` measures,
`compat_tests/behaviours/expected.json` holds what is expected, and the tests beside them fail when the two differ, for
the better or for the worse. This page is written by `compat_tests/behaviours/render.py`. The name of an exception
stands for what raises it. A number in brackets points at a note below the table.
"""


def page(expected):
    """The page as text."""
    reasons = []
    lines = [INTRODUCTION]
    lines.append("| # | behaviour | {} | ours |".format(" | ".join("TF " + version for version in VERSIONS)))
    lines.append("|---" * (len(VERSIONS) + 3) + "|")
    for row, entries in expected.items():
        own = [cell(entries[version]["own"]) for version in VERSIONS]
        lines.append("| {} |".format(" | ".join([row, entries["behaviour"], *own, ours(entries, reasons)])))
    if reasons:
        lines += ["", "## Where ours is not yet what it should be, or differs for a reason", ""]
        lines += [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
    return "\n".join(lines) + "\n"


def ours(entries, reasons):
    """One cell for all versions: what is the same on some of them is said once."""
    versions = {}
    for version in VERSIONS:
        entry = entries[version]
        versions.setdefault((entry["ours"], entry.get("reason")), []).append(version)
    parts = []
    for (words, reason), those in versions.items():
        if reason is not None and reason not in reasons:
            reasons.append(reason)
        note = "" if reason is None else f" [{reasons.index(reason) + 1}]"
        prefix = "" if len(versions) == 1 else "{}: ".format(", ".join(those))
        parts.append(prefix + cell(words) + note)
    return "<br>".join(parts)


def cell(words):
    return str(words).replace("|", "\\|")


def main():
    with open(EXPECTED, encoding="utf-8") as stream:
        text = page(json.load(stream))
    with open(PAGE, "w", encoding="utf-8", newline="\n") as stream:
        stream.write(text)


if __name__ == "__main__":
    main()
