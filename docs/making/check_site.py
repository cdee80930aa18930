"""Check that a built site fetches nothing from elsewhere, and that all it refers to is there.

python docs/making/check_site.py build/site
"""

from typing import Iterator

import os
import re
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}


class References(HTMLParser):
    """The addresses that a page fetches, and those that it links to."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched = []
        self.linked = []

    def handle_starttag(self, tag, attrs):  # type: ignore[no-untyped-def]
        found = dict(attrs)
        if FETCHED.get(tag) in found and found.get("rel") != "canonical":
            self.fetched.append(found[FETCHED[tag]])
        if tag == "a" and "href" in found:
            self.linked.append(found["href"])


def problems(site: str) -> Iterator[str]:
    """Sentences on what is wrong."""
    for folder, _, names in os.walk(site):
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(".html"):
                yield from problems_of_page(path, site)
            elif name.endswith((".css", ".svg")):
                with open(path, encoding="utf-8") as stream:
                    for address in re.findall(r"(?:url\(|@import |href=)[\"']?((?:https?:)?//[^\"')]+)", stream.read()):
                        yield f"{path} fetches {address}"


def problems_of_page(path: str, site: str) -> Iterator[str]:
    references = References()
    with open(path, encoding="utf-8") as stream:
        references.feed(stream.read())
    for address in references.fetched:
        if urlsplit(address).netloc:
            yield f"{path} fetches {address}"
    for address in references.fetched + references.linked:
        parts = urlsplit(address)
        if not parts.scheme and not parts.netloc and parts.path:
            start = site if parts.path.startswith("/") else os.path.dirname(path)
            if not os.path.exists(os.path.join(start, unquote(parts.path).lstrip("/"))):
                yield f"{path} refers to {address}, which is not there"


def main() -> None:
    found = list(problems(sys.argv[1]))
    if found:
        raise SystemExit("\n".join(found))


if __name__ == "__main__":
    main()
