"""Plugins of other installed packages, by entry points."""

from typing import Any, Dict, List, NamedTuple

from ._compat import metadata
from .errors import not_loaded, shown


class Announcement(NamedTuple):
    """An entry point and its distribution."""

    name: str
    distribution: str
    entry_point: Any

    def load(self, kind: str) -> Any:
        """Import the plugin; raise a :class:`PluginLoadError` for any error."""
        try:
            return self.entry_point.load()
        except (Exception, SystemExit) as error:
            raise not_loaded(f"{kind} {shown(self.name)} of package {self.distribution}", error) from error


def announced(group: str) -> Dict[str, List[Announcement]]:
    """Return the entry points of a group by name; several packages may use one name."""
    found: Dict[str, List[Announcement]] = {}
    seen = set()
    for distribution in metadata.distributions():
        for entry_point in distribution.entry_points:
            if entry_point.group != group:
                continue
            name = distribution.metadata["Name"] or "?"
            # a distribution can be on sys.path twice, for example as a wheel and as a checkout
            if (name, entry_point.name, entry_point.value) not in seen:
                seen.add((name, entry_point.name, entry_point.value))
                origin = f"{name} {distribution.version}"
                found.setdefault(entry_point.name, []).append(Announcement(entry_point.name, origin, entry_point))
    return found
