"""The prose check of ``python -m tox -e lint`` finds the words and habits that it looks for."""

import pytest

from scalekeeper_test_support.repository import load_script

CHECK = load_script("docs/making/check_prose.py")

# instead of → write, and both in a sentence
SENTENCES = [
    ("A bad step changes nothing.", "A skipped step changes nothing."),
    ("One replica has a bad gradient.", "One replica has a non-finite gradient."),
    ("It wraps the given one.", "It wraps the inner optimizer."),
    ("The dialect of Keras 3.", "The profile of Keras 3."),
    ("The declarations of a model.", "The documents of a model."),
    ("A version to aim at.", "A target version."),
    ("That is the way it is saved.", "The gradients on the way back are saved."),
    ("Layers and the like.", "Layers and optimizers."),
    ("A file that nobody vouches for.", "An untrusted file."),
    ("'7' does not belong here", "expected an integer, got '7'"),
    ("Keras 3 has no words for it.", "Keras 3 has no equivalent."),
    ("An error of ours.", "An error of scalekeeper."),
    ("A policy of one's own.", "A custom policy."),
    ("It adds a number of Python's.", "It adds the result of Python's function."),
    ("2 is no optimizer of Keras", "There is no optimizer, and it is no longer used."),
    ("What the file holds is restored.", "What does the file hold?"),
    ("Whom a file is for.", "The target of a file."),
    (
        "It depends on who reads the file and by whom it is written.",
        "It depends on the reader; people who read it know.",
    ),
    ("It is saved so that it is kept so that it can be read.", "It is saved so that it can be read."),
    ("As the file says.", "As the file states."),
    ("See keras_new for more.", "See keras2_new_optimizers for more."),
]


def findings(text, path="x.md"):
    return CHECK.findings(path, text)


@pytest.mark.parametrize(("instead_of", "write"), SENTENCES)
def test_words_to_avoid_are_found(instead_of, write):
    """Each sentence with words to avoid has a finding, and the better one has none."""
    assert findings(instead_of)
    assert findings(write) == []


def test_every_rule_finds_something():
    """Each pattern matches one of the sentences."""
    used = {rule.pattern for rule in CHECK.RULES for text, _ in SENTENCES if CHECK.re.search(rule.pattern, text)}
    assert used == {rule.pattern for rule in CHECK.RULES}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("a = 1\n\nb = 2  # a bad step\n", [3]),
        ('def f():\n    """Return.\n\n    Args:\n        x: What it does.\n    """\n', [5]),
        ('x = 1\nraise E(\n    f"{x} is no "\n    f"step {x}"\n)\n', [3]),
        ("bad_step = 1\nx = 'What'\n", []),
    ],
)
def test_comments_docstrings_and_messages_are_checked(source, lines):
    """Findings in Python name the line; names and strings of one word are not prose."""
    assert [int(each.split(":")[1]) for each in findings(source, "x.py")] == lines


def test_code_in_markdown_is_not_checked():
    """Fenced blocks and code spans may use any words; the lines after them keep their numbers."""
    (found,) = findings("# Title\n\n```python\n# a bad step\n```\n\n`a bad step`, and a\nbad gradient\n")
    assert found.startswith("x.md:7: ")
    (found,) = findings("`a long code span before it`\n\nText.\n\nA bad step.\n")
    assert found.startswith("x.md:5: ")


@pytest.mark.parametrize(
    "text",
    [
        "- One ends. - **Two** begins.\n",
        "- One ends. -\n  **Two** begins.\n",
        "- See [one](x.md). - `two` begins.\n",
        "- One ends. - Two\n  begins.\n",
        "1. One ends. 2. Two begins.\n",
    ],
)
def test_joined_items_of_a_list_are_found(text):
    """A list item that begins in the middle of a line has one finding, which names the line and the remedy."""
    (found,) = findings("# Title\n\n" + text)
    assert found.startswith("x.md:3: ")
    assert found.endswith(" Begin a new line with each item of a list.")


@pytest.mark.parametrize(
    "text",
    [
        "- One ends.\n- **Two** begins.\n    - `three` is inside.\n",
        "1. One ends.\n2. Two begins.\n",
        "| One. | - | Two |\n|---|---|---|\n| 1 - A. - B |",
        "```text\nOne. - Two\n```\n\n- a\n\n    ```text\n    One. - Two\n    ```\n",
        "`One. - Two` is code, and 2.5 - x is a difference.\n",
    ],
)
def test_lists_tables_and_code_have_no_joined_items(text):
    """Items on lines of their own, also nested ones, tables and code have no finding."""
    assert findings(text) == []


def test_notebooks_are_checked():
    """Findings in a notebook name the cell; its Markdown and the comments of its code are prose."""
    sources = [("markdown", ["# Title\n", "A bad step."]), ("code", ["bad_step = 1\n"]), ("code", ["# a bad step\n"])]
    cells = [{"cell_type": kind, "source": source} for kind, source in sources]
    found = findings(CHECK.json.dumps({"cells": cells}), "x.ipynb")
    assert [each.split(":")[1] for each in found] == ["1", "3"]


def test_every_exception_has_a_reason_and_a_file():
    """An exception whose file is gone has to go."""
    for part, (_, reason) in CHECK.EXCEPTIONS.items():
        assert reason
        assert CHECK.os.path.exists(CHECK.os.path.join(CHECK.ROOT, part))
