"""Files of traces: ``.csv`` for people and spreadsheets, ``.npz`` for small files.

A ``.csv`` file has a line with the column names and one line for each step. An optional first line that begins with
``#`` has facts about the trace in JSON; only the column ``largest`` is required. An ``.npz`` file has one array per
column, and ``facts.json``.
"""

from typing import IO, Any, Dict, Iterator, List, Mapping, Optional, Union

import array
import json
import os
import zipfile

import numpy as np

from ..registry._argument_checks import path_of, unexpected
from ..registry._compat import metadata
from ..registry.errors import ArgumentError, InvalidSpecError, MissingFileError, UnreadableFileError, shown, unknown
from ._traces import COLUMNS, FLOAT16_LARGEST, MOST_STEPS, Trace

FORMAT = "scalekeeper trace"
VERSION = 1
Path = Union[str, "os.PathLike[str]"]
_STEP = "step"  # a column for people, which is ignored
_LONGEST_LINE = 1000
_LONGEST_FACTS = 64 * 1024
_ROWS_AT_A_TIME = 100_000
_format: Any = np.lib.format


def read_trace(path: Path) -> Trace:
    """Read a trace from a ``.csv`` or ``.npz`` file.

    Args:
        path: The file. Its first bytes decide the format.

    Returns:
        The trace.

    Raises:
        UnreadableFileError: The file is truncated, corrupt, too large, or not a trace.
        MissingFileError: There is no such file.
        OSError: The file can't be opened.

    Example:
        >>> import scalekeeper
        >>> len(scalekeeper.read_trace("examples/small_float16.npz"))
        20000
    """
    name = path_of(path, "read_trace(path)")
    try:
        with open(name, "rb") as stream:
            is_zip = stream.read(2) == b"PK"
        return _read_npz(name) if is_zip else _read_csv(name)
    except InvalidSpecError as error:
        raise UnreadableFileError(f"{name}: {error}") from None
    except FileNotFoundError:
        raise MissingFileError(f"{name}: no such file; a trace is a .csv or .npz file of TraceRecorder") from None
    except IsADirectoryError:
        raise UnreadableFileError(f"{name}: a folder; a trace is a .csv or .npz file") from None
    except ValueError as error:
        if isinstance(error, UnreadableFileError):
            raise
        raise UnreadableFileError(f"{name!r} can't be read: {error}") from None  # a NUL in the name


def write_trace(trace: Trace, path: Path) -> None:
    """Write a trace to a ``.csv`` or ``.npz`` file, atomically.

    Args:
        trace: The trace.
        path: The file. Its extension decides the format.

    Raises:
        ArgumentError: The extension is neither ``.csv`` nor ``.npz``.

    Example:
        >>> import scalekeeper
        >>> scalekeeper.write_trace(scalekeeper.Trace([0.5, 2.0]), "run.csv")
        >>> scalekeeper.read_trace("run.csv").largest.tolist()
        [0.5, 2.0]
    """
    from ..serialization import _atomic  # imported here, because it imports h5py

    if not isinstance(trace, Trace):
        raise unexpected("write_trace(trace, path)", "a Trace", trace)
    name = path_of(path, "write_trace(trace, path)")
    write = {".csv": _write_csv, ".npz": _write_npz}.get(os.path.splitext(name)[1].lower())
    if write is None:
        raise ArgumentError(f"{name!r} must end with .csv or .npz")
    with _atomic.replacing(name) as temporary:
        write(trace, temporary)


def _facts_of(trace: Trace) -> str:
    written_by = {"scalekeeper": metadata.version("scalekeeper")}
    facts = {"format": FORMAT, "version": VERSION, "limit": trace.limit, "written_by": written_by, **trace.facts}
    return json.dumps(facts)


def _checked_facts(text: str, where: str) -> Dict[str, Any]:
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableFileError(f"{where}: not a trace: what stands there is not JSON: {error}") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise UnreadableFileError(f'{where}: the facts do not say "format": "{FORMAT}", but {shown(facts)}')
    if facts.get("version") != VERSION:
        message = f"version {shown(facts.get('version'))} of the format is not known, {VERSION} is"
        raise UnreadableFileError(f"{where}: {message}: a newer scalekeeper may read it")
    limit = facts.get("limit", FLOAT16_LARGEST)
    if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 < limit < 1e300:
        raise UnreadableFileError(f"{where}: the limit {shown(limit)} must be a finite number above 0")
    return facts


def _trace(columns: Mapping[str, Any], facts: Mapping[str, Any]) -> Trace:
    kept = {name: value for name, value in facts.items() if name not in ("format", "version", "limit")}
    limit = float(facts.get("limit", FLOAT16_LARGEST))
    scale = columns.get("scale", 1.0)
    return Trace(columns["largest"], scale, columns.get("zero_share"), limit=limit, facts=kept)


# CSV


def _write_csv(trace: Trace, path: str) -> None:
    names = [name for name in COLUMNS if getattr(trace, name) is not None]
    row = "%d," + ",".join(["%.9g"] * len(names)) + "\n"  # 9 digits are enough for every float32
    with open(path, "w", encoding="utf-8", newline="") as stream:
        stream.write(f"# {_facts_of(trace)}\n{','.join([_STEP, *names])}\n")
        for start in range(0, len(trace), _ROWS_AT_A_TIME):
            parts = [getattr(trace, name)[start : start + _ROWS_AT_A_TIME].tolist() for name in names]
            steps = range(start, start + len(parts[0]))
            stream.write("".join([row % values for values in zip(steps, *parts)]))


def _read_csv(path: str) -> Trace:
    try:
        with open(path, encoding="utf-8-sig", newline=None) as stream:
            return _trace_of_lines(path, stream)
    except UnicodeDecodeError:
        raise UnreadableFileError(f"{path}: neither text nor an .npz file: a trace is one of them") from None


def _trace_of_lines(path: str, stream: IO[str]) -> Trace:
    facts: Dict[str, Any] = {}
    number, line = 1, stream.readline(_LONGEST_FACTS)
    if line.startswith("#"):
        facts = _checked_facts(line[1:], f"{path}:1")
        number, line = 2, stream.readline(_LONGEST_LINE)
    names = _column_names(line, f"{path}:{number}")
    kept = [(index, name) for index, name in enumerate(names) if name != _STEP]
    columns: Dict[str, array.array[float]] = {name: array.array("d") for _, name in kept}
    filled = [(index, columns[name].append) for index, name in kept]
    for row, cells in enumerate(_rows(path, stream, number + 1, len(names))):
        if row >= MOST_STEPS:
            raise UnreadableFileError(f"{path}: more than {MOST_STEPS} steps, which is the most a trace may have")
        try:
            for index, append in filled:
                append(float(cells[index]))
        except ValueError:
            raise UnreadableFileError(f"{path}:{number + 1 + row}: {shown(cells[index])} is not a number") from None
    try:
        return _trace({name: np.frombuffer(values, np.float64) for name, values in columns.items()}, facts)
    except InvalidSpecError as error:
        name, row_index = (tuple(error.problems[0].path) + (0,))[:2]
        where = f"{path}:{number + 1 + int(row_index)}"
        raise UnreadableFileError(f"{where}: {name}: {error.problems[0].message}") from None


def _column_names(line: str, where: str) -> List[str]:
    names = _cells(line)
    valid = ", ".join([_STEP, *COLUMNS])
    if "largest" not in names:
        raise UnreadableFileError(
            f"{where}: not a trace: its columns are to be named here, 'largest' among them ({valid}, separated by "
            f"commas), not {shown(line.strip())}"
        )
    for name in names:
        if name not in (_STEP, *COLUMNS):
            raise UnreadableFileError(f"{where}: {unknown('column', name, [_STEP, *COLUMNS])}")
        if names.count(name) > 1:
            raise UnreadableFileError(f"{where}: the column {name!r} is there twice")
    return names


def _rows(path: str, stream: IO[str], first: int, count: int) -> Iterator[List[str]]:
    blank: Optional[int] = None
    for number, line in enumerate(iter(lambda: stream.readline(_LONGEST_LINE), ""), first):
        if len(line) >= _LONGEST_LINE:
            raise UnreadableFileError(f"{path}:{number}: longer than {_LONGEST_LINE} characters, so it is not a step")
        if not line.strip():
            blank = blank or number
            continue
        if blank is not None:
            raise UnreadableFileError(f"{path}:{blank}: an empty line between steps")
        cells = _cells(line)
        if len(cells) != count:
            raise UnreadableFileError(
                f"{path}:{number}: {len(cells)} values for {count} columns: {shown(line.strip())}"
            )
        yield cells


def _cells(line: str) -> List[str]:
    return [cell.strip().strip('"') for cell in line.split(",")]


# NPZ


def _write_npz(trace: Trace, path: str) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("facts.json", _facts_of(trace))
        for name in COLUMNS:
            values = getattr(trace, name)
            if values is not None:
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, values.astype("<f4"), (1, 0), allow_pickle=False)


def _read_npz(path: str) -> Trace:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
            facts: Dict[str, Any] = {}
            if "facts.json" in members:
                text = _bytes_of(archive, "facts.json", _LONGEST_FACTS).decode("utf-8")
                facts = _checked_facts(text, f"{path}: facts.json")
            columns = {name: _array(archive, name, path) for name in COLUMNS if f"{name}.npy" in members}
    except UnreadableFileError:
        raise
    except Exception as error:  # zipfile has many, and seeks where no file is
        raise UnreadableFileError(f"{path}: cut off, or not an .npz file: {error}") from None
    if "largest" not in columns:
        raise UnreadableFileError(f"{path}: not a trace: there is no array 'largest' in it")
    return _trace(columns, facts)


def _bytes_of(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    with archive.open(name) as member:
        data = member.read(most + 1)  # the archive may declare any size
    if len(data) > most:
        raise ValueError(f"{name} has more than {most} bytes")
    return data


def _array(archive: zipfile.ZipFile, name: str, path: str) -> "np.ndarray[Any, Any]":
    """Read one array. The header is checked before memory is allocated, because it may declare any size."""
    with archive.open(f"{name}.npy") as member:
        try:
            version, (shape, _, dtype) = _format.read_magic(member), _format.read_array_header_1_0(member)
            is_valid = version == (1, 0) and len(shape) == 1 and shape[0] >= 0 and dtype.kind in "fiu"
        except Exception:  # the parser of the header has many
            is_valid = False
        if not is_valid:
            raise UnreadableFileError(f"{path}: {name}: not a one-dimensional array of numbers in the .npy format 1.0")
        (steps,) = shape
        if steps > MOST_STEPS:
            raise UnreadableFileError(f"{path}: {name}: {steps} steps are more than a trace may have ({MOST_STEPS})")
        data = member.read(steps * dtype.itemsize + 1)
    if len(data) != steps * dtype.itemsize:
        raise UnreadableFileError(f"{path}: {name}: the header declares {steps} values, and the data has another size")
    return np.frombuffer(data, dtype)
