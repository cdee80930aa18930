"""The argument names of the layers of every target TensorFlow."""

from typing import Any, Callable, Collection, Dict, List, Optional

import functools
import json
import pkgutil

from ...registry._targets import Target


def layer_arguments(target: Target) -> Callable[[str], Optional[Collection[str]]]:
    """Return a function that maps a layer's class to its argument names on a target; None if it has no such layer.

    ``compat_tests/signatures/record_layers.py`` records the table, ``layer_signatures.json``, on real installations.
    """
    table = _table()
    bit = 1 << table["targets"].index(target.name)

    def accepted(class_name: str) -> Optional[List[str]]:
        arguments = table["layers"].get(class_name, {})
        found = [name for name, targets in arguments.items() if targets & bit]
        return found or None  # the class itself is recorded as an argument without a name

    return accepted


@functools.lru_cache(maxsize=None)
def _table() -> Dict[str, Any]:
    data = pkgutil.get_data(__package__, "layer_signatures.json")
    assert data is not None
    table: Dict[str, Any] = json.loads(data.decode("utf-8"))
    return table
