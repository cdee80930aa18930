"""Convert all files of a folder: one that fails does not stop the rest."""

from typing import Any, Callable, Iterator, List, NamedTuple, Optional

import os

from ...registry.errors import ConversionError, ScalekeeperError
from ..conversion import ENDINGS, Conversion, convert
from ..formats.config_json import config_in
from ..formats.detection import format_of

_ENDING_OF = {"h5": ".h5", "keras": ".keras", "npz": ".npz", "config": ".json", "checkpoint": "", "saved_model": ""}


class Outcome(NamedTuple):
    """What became of one file: a conversion, or an error."""

    source: str
    destination: str
    conversion: Optional[Conversion]
    error: Optional[str]


def convert_folder(
    source: Any,
    destination: Any,
    to: Optional[str] = None,
    *,
    format: Optional[str] = None,
    progress: Optional[Callable[[List[str]], Any]] = None,
    **options: Any,
) -> List[Outcome]:
    """Convert every file, SavedModel and checkpoint under a folder to the same place under another.

    Without ``format`` each keeps its own. ``progress`` is given the list of paths, and gives back what to loop over;
    the other options are those of :func:`convert`.
    """
    source, destination = os.fspath(source), os.fspath(destination)
    if not os.path.isdir(source):
        raise ConversionError(f"{source}: not a folder; a single file is converted without --recursive")
    found = list(files_in(source))
    if not found:
        raise ConversionError(f"{source}: nothing that can be converted is in it")
    outcomes = []
    for path in progress(found) if progress is not None else found:
        target = destination
        try:
            wanted = format or format_of(path)
            name = os.path.relpath(path, source)
            target = os.path.join(destination, _renamed(name, wanted))
            outcomes.append(Outcome(path, target, convert(path, target, to, format=wanted, **options), None))
        except (ScalekeeperError, OSError) as error:
            outcomes.append(Outcome(path, target, None, str(error)))
    return outcomes


def files_in(folder: str) -> Iterator[str]:
    """What can be converted, by names: SavedModels, prefixes of checkpoints, files with the endings that we know."""
    for parent, folders, names in os.walk(folder):
        folders.sort()
        if "saved_model.pb" in names:
            folders.clear()
            yield parent
            continue
        for name in sorted(names):
            path, ending = os.path.join(parent, name), os.path.splitext(name)[1].lower()
            if ending == ".index":
                yield path[: -len(".index")]
            elif ending in ENDINGS and (ending != ".json" or config_in(path) is not None):
                yield path


def _renamed(name: str, wanted: str) -> str:
    stem, ending = os.path.splitext(name)
    if ending.lower() not in ENDINGS:
        stem = name
    if ENDINGS.get(ending.lower()) == wanted:
        return name
    return stem + _ENDING_OF[wanted]
