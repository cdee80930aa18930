"""JSON from untrusted files."""

from typing import Any, List

import json
import re

from ._resource_limits import MAX_JSON_DEPTH, MAX_JSON_LENGTH, MAX_JSON_VALUES

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: The text is not JSON, is too large or too deep, or holds half of a surrogate pair, which can be
            neither printed nor written.
    """
    if len(text) > MAX_JSON_LENGTH or sum(map(text.count, ",[{")) > MAX_JSON_VALUES:
        raise ValueError("larger than the configuration of any model")
    try:
        text.encode("utf-8")
        value = json.loads(text)
        _require_shallow(value)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_JSON_DEPTH} levels") from None
    return value


def _require_shallow(value: Any) -> None:
    level: List[Any] = [value]
    for _ in range(MAX_JSON_DEPTH):
        inside = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, (dict, list))]
        level = [child for children in inside for child in children]
        if not level:
            return
    raise ValueError(f"nested deeper than {MAX_JSON_DEPTH} levels")
