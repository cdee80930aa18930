"""Which TensorFlow a document is meant for, and what the constructors there accept.

The tables under ``signatures/`` were made on real installations by ``compat_tests/signatures/record.py``; none of this
needs TensorFlow.
"""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import functools
import json
import os
import pkgutil
import re
import sys

from ._compat import metadata
from .errors import UnknownTargetError, shown

KERAS_3, TF_KERAS = "keras3", "tf_keras"
_FIRST_WITH_KERAS_3 = (2, 16)
_DISTRIBUTIONS = (
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-gpu",
    "tensorflow-intel",
    "tensorflow-macos",
    "tf-nightly",
)
_NAMES = (
    *(f"2.{minor}" for minor in range(16)),
    *(f"2.{minor}-{keras}" for minor in range(16, 22) for keras in (TF_KERAS, KERAS_3)),
)
_SPELLING = re.compile(r"([0-9]+\.[0-9]+)(?:\.[0-9]+)*(?:-(keras3|tf_keras))?|(keras3|tf_keras)")


class Target(NamedTuple):
    """A TensorFlow and its Keras. ``name`` is ``2.0`` … ``2.15``, then ``2.16-keras3``, ``2.16-tf_keras``, …"""

    name: str

    @property
    def version(self) -> Tuple[int, ...]:
        return tuple(int(part) for part in self.name.split("-")[0].split("."))

    @property
    def table(self) -> Dict[str, Any]:
        """``tensorflow``, ``keras`` (versions), ``optimizers``, ``schedules``."""
        return _table(self.name)

    def __str__(self) -> str:
        keras = "tf_keras" if self.name.endswith(TF_KERAS) else "Keras"
        return "TensorFlow {}, {} {}".format(self.table["tensorflow"], keras, self.table["keras"])


@functools.lru_cache(maxsize=None)
def entries_by_class(kind: str) -> Dict[str, List[Any]]:
    """Return class → its entries in the tables of all targets, oldest first; ``kind`` is optimizers or schedules."""
    found: Dict[str, List[Any]] = {}
    for each in known_targets():
        for entry in each.table[kind].values():
            found.setdefault(entry["class"].rpartition(".")[2], []).append(entry)
    return found


def known_targets() -> List[Target]:
    """Every target, oldest first."""
    return [Target(name) for name in _NAMES]


def target(given: Optional[str] = None) -> Target:
    """The target of this name.

    ``2.0`` … ``2.21``, with ``-tf_keras`` or ``-keras3`` from 2.16 on, or one of these alone for the newest. Without a
    name: the installed TensorFlow, or else the newest.

    >>> from scalekeeper.registry import target
    >>> target("2.21").name, target("2.3.4").name, target("tf_keras").name
    ('2.21-keras3', '2.3', '2.21-tf_keras')
    """
    if given is None:
        return _installed() or Target(_NAMES[-1])
    match = _SPELLING.fullmatch(given) if isinstance(given, str) else None
    if match is not None:
        minor, keras, keras_alone = match.groups()
        if keras_alone:
            return [each for each in known_targets() if each.name.endswith(keras_alone)][-1]
        for name in ([] if keras else [minor]) + [minor + "-" + (keras or KERAS_3)]:
            if name in _NAMES:
                return Target(name)
    raise UnknownTargetError(
        f"unknown target {shown(given)}; valid: 2.0 to 2.21, 2.16-tf_keras to 2.21-tf_keras, tf_keras, keras3"
    )


def ranges(is_wanted: Callable[[Target], bool]) -> List[str]:
    """The targets that are wanted, as ``2.0 to 2.10``. Keras 2 and tf_keras are one line, Keras 3 another."""
    found: List[List[str]] = []
    for line in ([name for name in _NAMES if KERAS_3 not in name], [name for name in _NAMES if KERAS_3 in name]):
        continues = False
        for name in line:
            if is_wanted(Target(name)):
                found = found[:-1] + [found[-1] + [name]] if continues else found + [[name]]
                continues = True
            else:
                continues = False
    return [run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in found]


def _installed() -> Optional[Target]:
    """The target of the installed TensorFlow, found without importing it."""
    version = getattr(sys.modules.get("tensorflow"), "__version__", None) or _installed_version()
    if version is None:
        return None
    number = ".".join(version.split(".")[:2])
    legacy = os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true")
    try:
        is_new = tuple(map(int, number.split("."))) >= _FIRST_WITH_KERAS_3
        return target(number + "-" + TF_KERAS if is_new and legacy else number)
    except ValueError:
        return None  # newer than the tables


def _installed_version() -> Optional[str]:
    for distribution in _DISTRIBUTIONS:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            pass
    return None


@functools.lru_cache(maxsize=None)
def _table(name: str) -> Dict[str, Any]:
    data = pkgutil.get_data(__package__, f"_signatures/{name}.json")
    assert data is not None
    table: Dict[str, Any] = json.loads(data.decode("utf-8"))
    return table
