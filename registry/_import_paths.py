"""Import paths (``package.module:Class``) in a spec, which the caller must allow."""

from typing import Any, Iterable, Tuple

import importlib
import re

from .errors import ArgumentError, InvalidSpecError, Problem, not_loaded, shown

# Only ASCII: similar-looking letters must not bypass the allow-list.
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_IMPORT_PATH = re.compile(rf"({_NAME}(?:\.{_NAME})*):({_NAME})")
_PACKAGE_PATTERN = re.compile(rf"({_NAME}(?:\.{_NAME})*)\.\*")


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
                raise ArgumentError(
                    f"{shown(pattern)} can't be allowed: "
                    "give an exact 'package.module:Class', or 'package.*' for everything in one package"
                )

    def covers(self, path: str) -> bool:
        """Return whether ``package.module:Class`` is allowed."""
        return path in self.patterns or self._package_covers(path.split(":")[0])

    def _package_covers(self, module: str) -> bool:
        packages = (match.group(1) for match in map(_PACKAGE_PATTERN.fullmatch, self.patterns) if match)
        return any(module == package or module.startswith(package + ".") for package in packages)

    def load(self, path: str, kind: str) -> Any:
        """Import the object of a path, or raise an error that explains how to allow it."""
        match = _IMPORT_PATH.fullmatch(path)
        if match is None:
            message = f"{shown(path)} is not an import path: write 'package.module:Class'"
            raise InvalidSpecError([Problem((), message, "import_path")])
        if not self.covers(path):
            message = (
                f"importing {shown(path)} is not allowed. To allow it, pass allow=[{path!r}] or, on the command line, "
                f"--allow {path}; or register the class under a name"
            )
            raise InvalidSpecError([Problem((), message, "import_refused")])
        module_name, attribute = match.groups()
        try:
            found = getattr(importlib.import_module(module_name), attribute)
        except (Exception, SystemExit) as error:
            raise not_loaded(f"{kind} {shown(path)}", error) from error
        home = getattr(found, "__module__", "")
        if path not in self.patterns and not self._package_covers(home):
            message = (
                f"{shown(path)} comes from {shown(home)}, which is not allowed: allow that exact name if you mean it"
            )
            raise InvalidSpecError([Problem((), message, "import_refused")])
        return found
