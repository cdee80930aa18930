"""Check a built site: nothing is fetched from elsewhere, links and search lead to a place, pictures have texts.

python docs/making/check_site.py build/site
"""

from typing import Iterator

import json
import os
import re
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}
LARGEST_PAGE = 300_000  # bytes
# words in the search field → where they have to lead; a section's title counts most there
SEARCHES = {
    "register a policy": "policies/#register-a-policy",
    "old h5": "files/",
    "NaN": "diagnosing/#after-a-nan",
    "resume": "saving/#resume-a-run-that-was-killed",
}


class References(HTMLParser):
    """The addresses that a page fetches, and those that it links to."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched = []
        self.linked = []
        self.without_text = []
        self.renamed = []

    def handle_starttag(self, tag, attrs):  # type: ignore[no-untyped-def]
        found = dict(attrs)
        if FETCHED.get(tag) in found and found.get("rel") != "canonical":
            self.fetched.append(found[FETCHED[tag]])
        if tag == "img" and not found.get("alt"):
            self.without_text.append(found.get("src"))
        if re.fullmatch("h[1-6]", tag) and re.search(r"_\d+$", found.get("id", "")):
            self.renamed.append(found["id"])  # what MkDocs makes of a heading that is already on the page
        if tag == "a" and "href" in found:
            self.linked.append(found["href"])


def problems(site: str) -> Iterator[str]:
    """Return a sentence for each problem of a site."""
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
    if os.path.getsize(path) > LARGEST_PAGE:
        yield f"{path} has more than {LARGEST_PAGE:,} bytes"
    for address in references.without_text:
        yield f"{path} shows {address} without an alt text"
    for anchor in references.renamed:
        yield f"{path} has another heading with the anchor of #{anchor}, so links to it lead to the first"
    for address in references.fetched:
        if urlsplit(address).netloc:
            yield f"{path} fetches {address}"
    for address in references.fetched + references.linked:
        parts = urlsplit(address)
        if not parts.scheme and not parts.netloc and parts.path:
            start = site if parts.path.startswith("/") else os.path.dirname(path)
            if not os.path.exists(os.path.join(start, unquote(parts.path).lstrip("/"))):
                yield f"{path} refers to {address}, which is not there"


def problems_of_search(site: str) -> Iterator[str]:
    with open(os.path.join(site, "search", "search_index.json"), encoding="utf-8") as stream:
        sections = {each["location"]: f"{each['title']} {each['text']}" for each in json.load(stream)["docs"]}
    for words, location in SEARCHES.items():
        missing = [word for word in words.split() if word.lower() not in sections.get(location, "").lower()]
        if missing:
            yield f"the search index has no {' '.join(missing)} at {location}, where {words!r} has to lead"


def main() -> None:
    found = [*problems(sys.argv[1]), *problems_of_search(sys.argv[1])]
    if found:
        raise SystemExit("\n".join(found))


if __name__ == "__main__":
    main()
