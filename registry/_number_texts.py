"""Texts that are meant as numbers or booleans, such as ``2**15`` and ``yes``, and how to write these in a document."""

from typing import Any

import re

_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_GROUPED = re.compile(r"[-+]?[0-9]{1,3}(?:([ _,'])[0-9]{3})(?:\1[0-9]{3})*")
_OPERATION = re.compile(rf"({_NUMBER.pattern}) ?(\*\*|\^|\*|/) ?({_NUMBER.pattern})")
_BOOLEANS = {"yes": "true", "on": "true", "true": "true", "no": "false", "off": "false", "false": "false"}


def as_number(text: str) -> str:
    """Return how to write the number that a text is meant as; empty if it is not meant as one."""
    text = text.strip()[:40]
    if _NUMBER.fullmatch(text):
        return text
    if _GROUPED.fullmatch(text):
        return re.sub("[ _,']", "", text)
    operation = _OPERATION.fullmatch(text)
    if operation is None:
        return ""
    one, sign, other = float(operation[1]), operation[2], float(operation[3])
    try:
        value: Any = one * other if sign == "*" else one / other if sign == "/" else one**other
    except (OverflowError, ZeroDivisionError):
        return ""
    if not isinstance(value, float):  # a root of a negative number
        return ""
    return str(int(value)) if value.is_integer() and abs(value) < 2.0**64 else f"{value:.17g}" if value else "0"


def as_boolean(text: str) -> str:
    """Return how to write the boolean that a text is meant as; empty if it is not meant as one."""
    return _BOOLEANS.get(text.strip().lower(), "")
