"""Hooks of MkDocs: pages that tell how to do something come first in search.

The search field also finds titles that begin with one of its words, so "register a policy" finds "Architecture".
"""

from typing import Any

FIRST = ("Start", "Use")  # sections of mkdocs.yml


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lower the rank of a page in another section."""
    if not any(each.title in FIRST for each in page.ancestors):
        page.meta["search"] = {"boost": 0.01}
    return markdown
