"""The code blocks of a page, found by Sybil, with the notes before them.

A note is an HTML comment on the line before a block: ``<!-- file: train.yaml -->``.
"""

import os
import re

from sybil import Document, Region
from sybil.parsers.markdown import SkipParser
from sybil.parsers.markdown.lexers import DirectiveInHTMLCommentLexer, RawFencedCodeBlockLexer

from scalekeeper_test_support.repository import ROOT

NOTES = ("file", "exit", "before", "target", "environment", "skip", "invisible-code-block")
_COMMENTS = re.compile(r"(?:^[ \t]*<!--(?:(?!-->).)*-->[ \t]*\n)+\Z", re.DOTALL | re.MULTILINE)
_NOTE = re.compile(r"<!---? *([\w-]+): *(.*?) *-->", re.DOTALL)


class BlockError(AssertionError):
    """A block does not do what it shows."""


def all_pages():
    """Return the paths of the README and all pages of the documentation.

    The examples of docs/reference/ are those of docstrings, which run one by one (``reference_examples``).
    """
    found = ["README.md"]
    for folder, _, names in os.walk(os.path.join(ROOT, "docs")):
        if os.path.basename(folder) == "reference":
            continue
        found += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names if name.endswith(".md")]
    return sorted(name.replace(os.sep, "/") for name in found)


def parsed_page(path, evaluators):
    """Return a Sybil document with one evaluator for each language; ``parsed`` of each example is a ``Block``.

    Also return the evaluator of skips, which identifies their examples.
    """
    skips = SkipParser()
    return Document.parse(path, Parser(evaluators), skips), skips.skipper


def blocks(path):
    """Return all blocks of a page in order, including hidden ones."""
    document, _ = parsed_page(path, None)
    return [example.parsed for example in document if isinstance(example.parsed, Block)]


def skips(path):
    """Return the conditions of all skips of a page."""
    document, skipper = parsed_page(path, None)
    return [condition(example) for example in document if example.region.evaluator is skipper]


def condition(example):
    """Return the expression of ``skip: next if(EXPRESSION, reason="…")``; any other skip is an error."""
    action, arguments = example.parsed
    match = re.fullmatch(r'if\((.*), reason=".+"\)', arguments or "")
    if action != "next" or match is None:
        raise BlockError(f'{example.path}:{example.line}: a skip is <!--- skip: next if(EXPRESSION, reason="…") -->')
    return match.group(1)


class Block:
    """A block: its text and language, the notes before it, and the number of lines above it."""

    def __init__(self, language, text, notes, lines_above):
        self.language = language
        self.text = text
        self.notes = notes
        self.lines_above = lines_above


class Parser:
    """Find fenced blocks of every language and hidden Python."""

    def __init__(self, evaluators):
        self.evaluators = evaluators
        self.fences = RawFencedCodeBlockLexer(re.compile(r"(?P<language>[^\n]*)\n"))
        self.hidden = DirectiveInHTMLCommentLexer("invisible-code-block", arguments=r"\w+")

    def __call__(self, document):
        for lexed in self.fences(document):
            yield self.region(document, lexed, lexed.lexemes["language"].strip())
        for lexed in self.hidden(document):
            yield self.region(document, lexed, lexed.lexemes["arguments"].strip())

    def region(self, document, lexed, language):
        line = document.text.count("\n", 0, lexed.start) + 1
        where = f"{document.path}:{line}"
        block = Block(language, str(lexed.lexemes["source"]), notes_before(document.text[: lexed.start], where), line)
        if self.evaluators is not None and language not in self.evaluators:
            languages = ", ".join(sorted(self.evaluators))
            raise BlockError(f"{where}: a block in {language or 'no language'}; known are {languages}")
        return Region(lexed.start, lexed.end, block, (self.evaluators or {}).get(language))


def notes_before(text, where):
    """Return name → value of the notes in the comments at the end of the text."""
    found = _COMMENTS.search(text)
    notes = dict(_NOTE.findall(found.group())) if found else {}
    for name in notes:
        if name not in NOTES:
            raise BlockError(f"{where}: a note called {name}; known are {', '.join(NOTES)}")
    return notes
