"""Which arguments the layers of a TensorFlow take that need not be installed."""

from typing import Any, Callable, Collection, Dict, List, Optional

import functools
import json
import pkgutil

from ...registry._targets import Target


def accepted_on(target: Target) -> Callable[[str], Optional[Collection[str]]]:
    """Class name → the names of its arguments on the target; None where it has no such layer.

    The table, ``layers.json``, was made on real installations by ``compat_tests/signatures/record_layers.py``.
    """
    table = _table()
    bit = 1 << table["targets"].index(target.name)

    def accepted(class_name: str) -> Optional[List[str]]:
        arguments = table["layers"].get(class_name, {})
        found = [name for name, targets in arguments.items() if targets & bit]
        return found or None  # the class itself is an argument without a name

    return accepted


@functools.lru_cache(maxsize=None)
def _table() -> Dict[str, Any]:
    data = pkgutil.get_data(__package__, "layer_signatures.json")
    assert data is not None
    table: Dict[str, Any] = json.loads(data.decode("utf-8"))
    return table
