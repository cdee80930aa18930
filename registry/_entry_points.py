"""Plugins that other installed packages announce."""

from typing import Any, Dict, List, NamedTuple

from ._compat import metadata
from .errors import not_loaded, shown


class Announcement(NamedTuple):
    """One entry point, and the distribution that has it."""

    name: str
    distribution: str
    entry_point: Any

    def load(self, kind: str) -> Any:
        """Import it. Whatever goes wrong is this plugin's error and nobody else's."""
        try:
            return self.entry_point.load()
        except (Exception, SystemExit) as error:
            raise not_loaded(f"{kind} {shown(self.name)} of package {self.distribution}", error) from error


def announced(group: str) -> Dict[str, List[Announcement]]:
    """All entry points of a group, by name; a name has several where several packages claim it."""
    found: Dict[str, List[Announcement]] = {}
    seen = set()
    for distribution in metadata.distributions():
        for entry_point in distribution.entry_points:
            if entry_point.group != group:
                continue
            name = distribution.metadata["Name"] or "?"
            # one distribution can be on sys.path twice, for example as a wheel and as a checkout
            if (name, entry_point.name, entry_point.value) not in seen:
                seen.add((name, entry_point.name, entry_point.value))
                origin = f"{name} {distribution.version}"
                found.setdefault(entry_point.name, []).append(Announcement(entry_point.name, origin, entry_point))
    return found
