"""JSON from files that nobody vouches for."""

from typing import Any, List

import json
import re

LONGEST = 16 * 2**20  # characters: the largest models have a tenth
_MOST = 1_000_000  # values: each takes many times the room of its text
_DEEPEST = 200  # levels: a model in a model in a model has four for each
_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")


def parsed(text: str) -> Any:
    """The value of a JSON text. ValueError for what is none, is too large or too deep, or has text that is none.

    Half of a surrogate pair is no character: what holds one can't be printed, nor written.
    """
    if len(text) > LONGEST or sum(map(text.count, ",[{")) > _MOST:
        raise ValueError("more than any model has")
    try:
        text.encode("utf-8")
        value = json.loads(text)
        _require_shallow(value)
        if _HALF_CHARACTER.search(text):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise ValueError(f"nested deeper than {_DEEPEST} levels") from None
    return value


def _require_shallow(value: Any) -> None:
    level: List[Any] = [value]
    for _ in range(_DEEPEST):
        inside = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, (dict, list))]
        level = [child for children in inside for child in children]
        if not level:
            return
    raise ValueError(f"nested deeper than {_DEEPEST} levels")
