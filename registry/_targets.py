"""Target TensorFlow versions, and what the constructors of their optimizers accept.

``compat_tests/signatures/record.py`` recorded the tables in ``_signatures/`` on real installations. Reading them needs
no TensorFlow.
"""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import functools
import json
import os
import pkgutil
import re
import sys
import warnings

from ._compat import metadata
from .errors import UnknownTargetError, UntestedVersionWarning, shown

KERAS_3, TF_KERAS = "keras3", "tf_keras"
_FIRST_WITH_KERAS_3 = (2, 16)
_LAST_TESTED = (2, 21)
_DISTRIBUTIONS = (
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-gpu",
    "tensorflow-intel",
    "tensorflow-macos",
    "tf-nightly",
    "tf-nightly-cpu",
)
_NAMES = (
    *(f"2.{minor}" for minor in range(_FIRST_WITH_KERAS_3[1])),
    *(
        f"2.{minor}-{keras}"
        for minor in range(_FIRST_WITH_KERAS_3[1], _LAST_TESTED[1] + 1)
        for keras in (TF_KERAS, KERAS_3)
    ),
)
_SPELLING = re.compile(r"([0-9]+\.[0-9]+)(?:\.[0-9]+)*(?:-(keras3|tf_keras))?|(keras3|tf_keras)")


class Target(NamedTuple):
    """A TensorFlow and its Keras.

    Attributes:
        name: ``2.0`` … ``2.15``, then ``2.16-keras3``, ``2.16-tf_keras``, …

    Example:
        >>> from scalekeeper.registry import target
        >>> found = target("2.16")
        >>> found.name, found.version, str(found)
        ('2.16-keras3', (2, 16), 'TensorFlow 2.16.2, Keras 3...')
    """

    name: str

    @property
    def version(self) -> Tuple[int, ...]:
        """The major and minor version of TensorFlow."""
        return tuple(int(part) for part in self.name.split("-")[0].split("."))

    @property
    def versions(self) -> Tuple[Tuple[int, ...], str]:
        """The version of TensorFlow, as numbers, and that of Keras."""
        return self.version, self.table["keras"]

    @property
    def table(self) -> Dict[str, Any]:
        """The versions (``tensorflow``, ``keras``) and the signatures (``optimizers``, ``schedules``)."""
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
    """Return all targets, the oldest first.

    Returns:
        The targets.

    Example:
        >>> from scalekeeper.registry import known_targets
        >>> known_targets()[0].name, known_targets()[-1].name
        ('2.0', '2.21-keras3')
    """
    return [Target(name) for name in _NAMES]


def target(given: Optional[str] = None) -> Target:
    """Return the target of a name.

    Args:
        given: ``2.0`` … ``2.21``, from 2.16 on with ``-tf_keras`` or ``-keras3`` (the default); or ``tf_keras`` or
            ``keras3`` for the newest. Default: the installed TensorFlow, or else the newest.

    Returns:
        The target.

    Raises:
        UnknownTargetError: There is no such target.

    Example:
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
    if isinstance(given, float):
        raise UnknownTargetError(f"a target is text, got the number {given!r}: write '{given}' in quotes")
    raise UnknownTargetError(
        f"unknown target {shown(given)}; valid: 2.0 to 2.21, 2.16-tf_keras to 2.21-tf_keras, tf_keras, keras3"
    )


def ranges(is_wanted: Callable[[Target], bool]) -> List[str]:
    """Return the targets for which a function is true, as ranges: ``2.0 to 2.10``. Keras 3 has its own ranges."""
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
    """Return the target of the installed TensorFlow without importing it."""
    version = getattr(sys.modules.get("tensorflow"), "__version__", None) or _installed_version()
    legacy = os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true")
    return None if version is None else _target_of_version(version, legacy)


def _target_of_version(version: str, legacy: bool) -> Optional[Target]:
    """Return the target of a TensorFlow; None for a version that is not 2.0 or newer.

    A TensorFlow that is newer than all targets is treated as the newest one, and warned of once per process.

    Args:
        version: The value of ``tensorflow.__version__``.
        legacy: Whether its Keras is tf_keras, if it has both.
    """
    found = re.match(r"([0-9]+)\.([0-9]+)", version)
    series = tuple(map(int, found.groups())) if found else ()
    if series > _LAST_TESTED:
        _warn_once(version)
        series = _LAST_TESTED
    name = ".".join(map(str, series))
    if series >= _FIRST_WITH_KERAS_3:
        name += "-" + (TF_KERAS if legacy else KERAS_3)
    return Target(name) if name in _NAMES else None


_warned: List[str] = []


def _warn_once(version: str) -> None:
    if not _warned:
        _warned.append(version)  # first, so that a filter that makes errors of warnings stops a program only once
        tested = "{}.{}".format(*_LAST_TESTED)
        warnings.warn(
            f"scalekeeper is not tested beyond TensorFlow {tested}, and TensorFlow {version} is installed; it is "
            f"treated like {tested}. `scalekeeper demo` checks whether training resumes exactly.",
            UntestedVersionWarning,
            stacklevel=2,
        )


def _installed_version() -> Optional[str]:
    for distribution in _DISTRIBUTIONS:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            pass
    return None


@functools.lru_cache(maxsize=None)
def _table(name: str) -> Dict[str, Any]:
    entry = dict(_signature_file("targets")[name])
    return {**_signature_file(entry.pop("table")), **entry}


@functools.lru_cache(maxsize=None)
def _signature_file(name: str) -> Dict[str, Any]:
    data = pkgutil.get_data(__package__, f"_signatures/{name}.json")
    assert data is not None
    content: Dict[str, Any] = json.loads(data.decode("utf-8"))
    return content
