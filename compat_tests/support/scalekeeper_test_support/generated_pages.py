"""Pages of docs/ with marked parts that scripts make: between ``<!-- name -->`` and ``<!-- end -->``."""

from typing import Mapping

import os
import re

from scalekeeper_test_support.repository import repository_path

DOCS = repository_path("docs")


def with_parts(text: str, parts: Mapping[str, str], page: str) -> str:
    """The text with each of these parts made anew."""
    for name, content in parts.items():
        pattern = re.compile(f"(<!-- {name} -->\n).*?(\n?<!-- end -->)", re.DOTALL)
        text, count = pattern.subn(lambda match, content=content: f"{match.group(1)}{content}\n<!-- end -->", text)
        if count != 1:
            raise SystemExit(f"docs/{page} has {count} parts called {name}, and should have one")
    return text


def rewrite(page: str, parts: Mapping[str, str]) -> None:
    """Make these parts of a page anew."""
    path = os.path.join(DOCS, page)
    with open(path, encoding="utf-8") as stream:
        text = with_parts(stream.read(), parts, page)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)
