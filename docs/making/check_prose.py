"""Check that documentation, comments, docstrings and messages avoid the words and habits that readers stumble over.

    python docs/making/check_prose.py

Prints a line for each finding. Code, in Markdown too, is not checked.
"""

from typing import Iterator, List, NamedTuple, Tuple

import ast
import io
import json
import os
import re
import subprocess
import sys
import tokenize

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
CHECKED = (".py", ".md", ".ipynb", ".ini", ".toml", ".yml", ".yaml", ".cff", ".cfg")
SENTENCE = r"(?:^|(?<=[.:;!] )|(?<=^# ))"  # its beginning
DATA = "checkpoint|configuration|document|file|line|list|matrix|name|record|row|table|trace|variable"


class Rule(NamedTuple):
    """A pattern of words to avoid, and the words to use instead."""

    pattern: str
    instead: str


RULES = [
    Rule(r"\b(?:bad|lost)(?: and good)? steps?\b", "skipped step, or non-finite step"),
    Rule(r"\bbad gradients?\b", "non-finite gradient, overflow"),
    Rule(r"\bthe given ones?\b", "the name of the thing: the inner optimizer, the loss scale"),
    Rule(r"\bdialects?\b", "Keras generation, profile"),
    Rule(r"\bdeclarations?\b", "document, configuration or spec"),
    Rule(r"\baim(?:s|ed)?\b", "target"),
    Rule(r"(?<!\bon )\bthe way\b(?! back| forward)", "how, as, or the name of the method"),
    Rule(r"\bthe like\b", "a complete list, or such as"),
    Rule(
        r"\bvouch|\bfooled\b|\bbelieves\b|\bin circles\b|\bbelongs? here\b", "a plain verb: trust, mislead, use, expect"
    ),
    Rule(r"\bno words (?:for|on)\b", "has no equivalent"),
    Rule(r"\bof ours\b|\bone's own\b", "scalekeeper's, or custom"),
    Rule(r"\bof [A-Z]\w+'s(?=[,.;:)]|$| (?:that|which|and|or|is|are)\b)", "a Python int, a Keras class"),
    Rule(
        r"(?<![Tt]here )\b(?:is|are|was|were) no (?!longer|more|less|later|earlier|different|better|worse)\w+",
        "is not a",
    ),
    # a label or heading may be such a clause
    Rule(
        rf"{SENTENCE}(?:What|Who|Whom|Whoever|Whatever)\b(?=[^?:]*[.!](?:\s|$))|(?<=^# )(?:What|Who)\b(?=[^?:]*$)",
        "a noun as the subject",
    ),
    Rule(
        r"(?:\b(?:by|for|from|of|or|than|to|with)|[,:;]) who(?:m|ever)?\b(?! is\b| are\b)",
        "a noun: the reader, a caller",
    ),
    Rule(r"\bso that\b[^.:;]*\bso that\b", "two sentences"),
    Rule(rf"\b(?:{DATA}) (?:says|asks|knows|tells)\b", "contains, states, lists; an error names"),
    Rule(
        r"\b_?(?:keras_v2|keras_new|keras_experimental|known_to_keras|keeps_state|in_checkpoints|weight_stores|h5_access"
        r"|said_to|compile_words)\b",
        "the name of today",
    ),
]

# the end of a list item, and then the marker of the next one in the same line
JOINED_ITEMS = re.compile(r" -$|(?<=[.:;!?)*])(?: -| \d+\.) (?=\*\*|`|\[|[A-Z])")

# part of a path → the words that it may use, and why
EXCEPTIONS = {
    "CODE_OF_CONDUCT.md": (r"because of who\b", "people, not data"),
    "docs/making/check_prose.py": (r".*", "names the words"),
    "tests/package/test_prose.py": (r".*", "names the words"),
}


def passages(path: str, text: str) -> Iterator[Tuple[int, str]]:
    """Return the prose of a file: pairs of a line number and a text; of a notebook, the number of the cell from 1."""
    if path.endswith(".ipynb"):
        for number, cell in enumerate(json.loads(text)["cells"], 1):
            kind = ".md" if cell["cell_type"] == "markdown" else ".py"
            yield from ((number, passage) for _, passage in passages(kind, "".join(cell["source"])))
    elif path.endswith(".py"):
        yield from python_passages(text)
    elif path.endswith(".md"):
        text = re.sub(r"`[^`\n]*`", "`x`", re.sub(r"(?m)^#+ ", "", without_blocks(text)))
        for match in re.finditer(r"(?:.+\n?)+?(?=\n|[-*|] |\Z)", text):
            yield text.count("\n", 0, match.start()) + 1, match.group()
    else:
        yield from enumerate(text.splitlines(), 1)


def without_blocks(text: str) -> str:
    """Return Markdown with empty lines in place of its fenced blocks."""
    return re.sub(r"(?ms)^( *)```.*?^\1```", lambda match: "\n" * match.group().count("\n"), text)


def joined_items(path: str, text: str) -> Iterator[str]:
    """Return a sentence for each line of Markdown in which a formatter has joined items of a list."""
    for number, line in enumerate(without_blocks(text).splitlines(), 1):
        words = re.sub(r"`[^`]*`", "`x`", line)
        for match in JOINED_ITEMS.finditer("" if line.startswith("|") else words):
            around = words[max(0, match.start() - 30) : match.end() + 40]
            yield f"{path}:{number}: …{around}… Begin a new line with each item of a list."


def python_passages(text: str) -> Iterator[Tuple[int, str]]:
    """Return comments, and string literals of several words; an f-string with its values left out."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    parts = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            parts.update(map(id, node.values))
            values = [each.value if isinstance(each, ast.Constant) else "x" for each in node.values]
            yield node.lineno, "".join(map(str, values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            for match in re.finditer(r"(?s)\S.+?(?=\n\s*\n|\n\s+\w+: |\Z)", node.value):
                if " " in match.group():
                    yield node.lineno + node.value.count("\n", 0, match.start()), match.group()


def findings(path: str, text: str) -> List[str]:
    """Return a sentence for each use of words to avoid."""
    allowed = next((words for part, (words, _) in EXCEPTIONS.items() if path.endswith(part)), None)
    found = list(joined_items(path, text)) if path.endswith(".md") else []
    for line, passage in passages(path, text):
        words = re.sub(r"\s+", " ", passage).strip()
        for rule in RULES:
            for match in re.finditer(rule.pattern, words):
                if allowed is None or not re.search(allowed, words):
                    around = words[max(0, match.start() - 30) : match.end() + 40]
                    found.append(f"{path}:{line}: …{around}… Write instead: {rule.instead}")
    return found


def main() -> None:
    listed = subprocess.check_output(["git", "ls-files"], cwd=ROOT).decode().splitlines()
    found = []
    for path in listed:
        if path.endswith(CHECKED):
            with open(os.path.join(ROOT, path), encoding="utf-8") as stream:
                found += findings(path, stream.read())
    if found:
        sys.exit("\n".join([*found, f"{len(found)} findings"]))


if __name__ == "__main__":
    main()
