"""Grow the corpus of documents by coverage: what reaches code that nothing in it reaches is kept.

    pip install atheris
    python tests/hostile/grow_corpus.py NEW tests/hostile/corpus/documents -max_total_time=600

Where, and how long, are libFuzzer's arguments. By hand: what it finds is looked at before it is added.
"""

import random
import sys

import atheris

from scalekeeper_test_support import hostile_documents

with atheris.instrument_imports(include=["scalekeeper"]):
    from scalekeeper.registry import _document_files, _documents, target

TARGET, NOTHING = target("2.15"), _documents.Access()


def checked(data):
    """Anything but a document or a DocumentError ends the run."""
    name = "doc.json" if data[:1] == b"{" else "doc.yaml"
    try:
        _documents.check_text(_document_files.source_of(name, data), TARGET, NOTHING)
    except _documents.DocumentError as error:
        if not str(error):
            raise AssertionError("refused without a word") from error


def mutated(data, most, seed):
    """Half of the time as libFuzzer does it, half of the time with words that mean something here."""
    rng = random.Random(seed)
    if rng.random() < 0.5:
        return atheris.Mutate(data, most)
    return hostile_documents.with_tokens(rng, data)[:most]


if __name__ == "__main__":
    checked(hostile_documents.GOOD[0])
    atheris.Setup(sys.argv, checked, custom_mutator=mutated)
    atheris.Fuzz()
