"""Hooks of MkDocs: pages that tell how to do something come first in search.

The search field also finds titles that begin with one of its words, so "register a policy" finds "Architecture".
"""

from typing import Any

BOOSTS = {"Use": 1, "Start": 0.2}  # section of mkdocs.yml → factor of the rank of its pages
OTHERS = 0.01


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Set the rank of a page by its section."""
    section = page.ancestors[-1].title if page.ancestors else None
    page.meta["search"] = {"boost": BOOSTS.get(section, OTHERS)}
    return markdown
