"""Hooks of MkDocs: pages for users come first in search.

The search field also finds titles that begin with one of its words, so "register a policy" finds "Architecture".
"""

from typing import Any

LAST = ("Evidence", "Contributors")  # sections of mkdocs.yml


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lower the rank of a page in one of the last sections."""
    if any(each.title in LAST for each in page.ancestors):
        page.meta["search"] = {"boost": 0.01}
    return markdown
