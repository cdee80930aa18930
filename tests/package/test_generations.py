"""Only profiles and adapters, and a short list of other files, ask for a Keras generation or a TensorFlow version."""

import os
import re

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROOMS = ("api", "registry", "lossscales", "serialization", "diagnosis", "optimizer", "simulation", "testing", "cli")
PROFILES_AND_ADAPTERS = ("serialization/keras/", "optimizer/_keras/")

QUESTION = re.compile(
    r"""
    \bis_keras_3\b | \b_is_keras_3\b | \bis_legacy\b             # a flag for a generation
    | \b_?FIRST_(?:WITH|VERSION)\w*                               # a version from which something holds
    | \b(?:LEGACY|NEW|KERAS_2|KERAS_3|KERAS_2_NEW|TF_KERAS)\b      # a family or a Keras package
    | \bversion(?!_info)\w*\s*(?:<|>|==|!=)(?!\s*\(1,\ 0\))       # versions compared; NumPy has a format 1.0
    | __version__\w*\s*(?:<|>|==|!=|\.split|\.startswith)
    | \.split\("\."\)\[0\]\s*(?:not\s+in|in|==|<|>)
    """,
    re.VERBOSE,
)

# at most four files
ALLOWED = {
    "registry/_targets.py": "names the targets, of which two Keras generations share a TensorFlow",
    "cli/_commands/completion.py": "completes the names of targets",
    "serialization/_keras_introspection.py": "reads what the installed Keras offers",
}


def code(path):
    """Return the lines of a file without comments and docstrings."""
    with open(path, encoding="utf-8") as stream:
        text = re.sub(r'"""[\s\S]*?"""', "", stream.read())
    return [re.sub(r"#.*", "", line) for line in text.splitlines()]


def asking_files():
    """Map files outside profiles and adapters to their first line that asks for a generation or version."""
    found = {}
    for room in ROOMS:
        for folder, _, names in os.walk(os.path.join(ROOT, room)):
            for name in names:
                path = os.path.relpath(os.path.join(folder, name), ROOT).replace(os.sep, "/")
                if not name.endswith(".py") or path.startswith(PROFILES_AND_ADAPTERS):
                    continue
                asking = [line.strip() for line in code(os.path.join(ROOT, path)) if QUESTION.search(line)]
                if asking:
                    found[path] = asking[0]
    return found


def test_only_the_listed_files_ask():
    """A new one would have to know a generation's differences, which belong into its profile."""
    unexpected = {path: line for path, line in asking_files().items() if path not in ALLOWED}
    assert unexpected == {}


def test_the_list_is_short_and_current():
    """At most four files may ask, and those listed do."""
    assert len(ALLOWED) <= 4
    assert set(ALLOWED) <= set(asking_files())


@pytest.mark.parametrize(
    "line",
    [
        "if is_keras_3(keras):",
        "if target.version >= FIRST_WITH_MODULES:",
        "if tf.__version__.startswith('2.3'):",
        "if family == LEGACY:",
        "return target.version < (2, 4)",
        'is_new = (writer.keras or "").split(".")[0] not in ("", "1")',
    ],
)
def test_the_search_finds_a_question(line):
    """Every way to ask that the package has had."""
    assert QUESTION.search(line)


@pytest.mark.parametrize(
    "line",
    ["profile.has_slots", 'versions = {"keras": tf.__version__}', "version = _version(file)", "if version != (1, 0):"],
)
def test_the_search_finds_nothing_else(line):
    """A capability, or a version that is written down."""
    assert not QUESTION.search(line)
