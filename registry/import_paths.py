"""Import paths (``package.module:Class``) in a specification: only what the caller allowed is ever imported."""

from typing import Any, Iterable, Tuple

import importlib
import re

from .errors import InvalidSpecError, PluginLoadError, Problem, shown

# ASCII on purpose: a letter that only looks like another one must not get past an allow-list.
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_IMPORT_PATH = re.compile(r"({0}(?:\.{0})*):({0})".format(_NAME))
_PACKAGE_PATTERN = re.compile(r"({0}(?:\.{0})*)\.\*".format(_NAME))


class AllowList:
    """Exact names (``package.module:Class``) and whole packages (``package.*``) that may be imported."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        if isinstance(patterns, str):
            patterns = (patterns,)
        self.patterns: Tuple[str, ...] = tuple(patterns)
        for pattern in self.patterns:
            if not isinstance(pattern, str) or not (
                _IMPORT_PATH.fullmatch(pattern) or _PACKAGE_PATTERN.fullmatch(pattern)
            ):
                raise ValueError(
                    "{} can't be allowed: give an exact 'package.module:Class', or 'package.*' for everything in one "
                    "package".format(shown(pattern))
                )

    def covers(self, path: str) -> bool:
        """Whether ``package.module:Class`` is allowed."""
        return path in self.patterns or self._package_covers(path.split(":")[0])

    def _package_covers(self, module: str) -> bool:
        packages = (match.group(1) for match in map(_PACKAGE_PATTERN.fullmatch, self.patterns) if match)
        return any(module == package or module.startswith(package + ".") for package in packages)

    def load(self, path: str, kind: str) -> Any:
        """Import what ``path`` names, or say how to allow it. Nothing is imported before the list was asked."""
        match = _IMPORT_PATH.fullmatch(path)
        if match is None:
            message = "{} is not an import path: write 'package.module:Class'".format(shown(path))
            raise InvalidSpecError([Problem((), message, "import_path")])
        if not self.covers(path):
            message = (
                "importing {} is not allowed. To allow it, pass allow=[{!r}] or, on the command line, --allow {}; "
                "or register the class under a name".format(shown(path), path, path)
            )
            raise InvalidSpecError([Problem((), message, "import_refused")])
        module_name, attribute = match.groups()
        try:
            found = getattr(importlib.import_module(module_name), attribute)
        except (Exception, SystemExit) as error:
            raise PluginLoadError(
                "{} {} could not be loaded: {}: {}".format(kind, shown(path), type(error).__name__, error)
            ) from error
        home = getattr(found, "__module__", "")
        if path not in self.patterns and not self._package_covers(home):
            message = "{} comes from {}, which is not allowed: allow that exact name if you mean it".format(
                shown(path), shown(home)
            )
            raise InvalidSpecError([Problem((), message, "import_refused")])
        return found
