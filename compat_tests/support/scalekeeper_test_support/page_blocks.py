"""The code blocks of a page: what Sybil finds, with the notes that stand before each.

A note is an HTML comment on the line before a block: ``<!-- file: train.yaml -->``.
"""

import os
import re

from sybil import Document, Region
from sybil.parsers.markdown import SkipParser
from sybil.parsers.markdown.lexers import DirectiveInHTMLCommentLexer, RawFencedCodeBlockLexer

from scalekeeper_test_support.repository import ROOT

NOTES = ("file", "exit", "before", "target", "skip", "invisible-code-block")
_COMMENTS = re.compile(r"(?:^[ \t]*<!--(?:(?!-->).)*-->[ \t]*\n)+\Z", re.DOTALL | re.MULTILINE)
_NOTE = re.compile(r"<!---? *([\w-]+): *(.*?) *-->", re.DOTALL)


class BlockError(AssertionError):
    """A block that does not hold."""


def all_pages():
    """Every page of the documentation and the README, from the checkout's root."""
    found = ["README.md"]
    for folder, _, names in os.walk(os.path.join(ROOT, "docs")):
        found += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names if name.endswith(".md")]
    return sorted(name.replace(os.sep, "/") for name in found)


def parsed_page(path, evaluators):
    """A Sybil document; ``evaluators`` has one for each language, and each example's ``parsed`` is a ``Block``.

    Also gives what evaluates skips, by which their examples are known.
    """
    skips = SkipParser()
    return Document.parse(path, Parser(evaluators), skips), skips.skipper


def blocks(path):
    """All blocks of a page in their order, hidden ones too."""
    document, _ = parsed_page(path, None)
    return [example.parsed for example in document if isinstance(example.parsed, Block)]


def skips(path):
    """The conditions of all skips of a page."""
    document, skipper = parsed_page(path, None)
    return [condition(example) for example in document if example.region.evaluator is skipper]


def condition(example):
    """The expression of ``skip: next if(EXPRESSION, reason="…")``; any other skip is an error."""
    action, arguments = example.parsed
    match = re.fullmatch(r'if\((.*), reason=".+"\)', arguments or "")
    if action != "next" or match is None:
        raise BlockError(f'{example.path}:{example.line}: a skip is <!--- skip: next if(EXPRESSION, reason="…") -->')
    return match.group(1)


class Block:
    """The text of a block, its language, the notes before it, and how many lines of the page are above the text."""

    def __init__(self, language, text, notes, lines_above):
        self.language = language
        self.text = text
        self.notes = notes
        self.lines_above = lines_above


class Parser:
    """Finds fenced blocks of every language, and hidden Python."""

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
    """Name → value of the notes in the comments that end the text."""
    found = _COMMENTS.search(text)
    notes = dict(_NOTE.findall(found.group())) if found else {}
    for name in notes:
        if name not in NOTES:
            raise BlockError(f"{where}: a note called {name}; known are {', '.join(NOTES)}")
    return notes
