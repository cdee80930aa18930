"""``scalekeeper doctor``: find where a model breaks in float16."""

from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

import json
import os
import sys

import click

from .._options import json_option, positive
from .._quiet import quiet_tensorflow, silenced
from .convert import custom_objects_of

_STYLES = {"error": "red", "warning": "yellow", "note": "cyan"}
_WIDE = 1000  # characters of a line that does not go to a terminal


def _picture(context: click.Context, parameter: click.Parameter, value: Optional[str]) -> Optional[str]:
    if value is not None and os.path.splitext(value)[1].lower() not in (".png", ".svg"):
        raise click.BadParameter(f"{value!r} must end with .png or .svg")
    return value


@click.command("doctor")
@click.argument("model_file", metavar="MODEL", type=click.Path())
@click.option(
    "--data",
    "data_file",
    metavar="FILE",
    type=click.Path(),
    required=True,
    help="A .npz file with arrays by name: x, y and sample_weight, or the names of the model's inputs and outputs.",
)
@click.option(
    "--loss", metavar="NAME", help="A loss of Keras, such as mse. Default: the one the model is compiled with."
)
@click.option("--batch-size", metavar="N", type=click.IntRange(1), default=32, help="Samples in a batch. Default: 32.")
@click.option("--batches", metavar="N", type=click.IntRange(1), default=4, help="The number of batches. Default: 4.")
@click.option(
    "--loss-scale",
    metavar="S",
    type=float,
    callback=positive,
    help="The loss scale, such as that of a skipped step. Default: that of the file.",
)
@click.option(
    "--plot", metavar="FILE", type=click.Path(), callback=_picture, help="Write a picture: out.png or out.svg."
)
@click.option(
    "--custom",
    metavar="P",
    multiple=True,
    help="A custom layer or model: package.module:Class. The current folder is on the import path. May be repeated.",
)
@json_option
def doctor_command(
    model_file: str,
    data_file: str,
    loss: Optional[str],
    batch_size: int,
    batches: int,
    loss_scale: Optional[float],
    plot: Optional[str],
    custom: Tuple[str, ...],
    as_json: bool,
) -> None:
    """Find where a model breaks in float16: which layer, which operation, and what to do.

    MODEL is an H5 file, a SavedModel or a .keras file. A few training steps run in float32, and as the model is if it
    computes in float16. No file is changed. Exit code 0 if nothing breaks, 1 if there is an error or a warning.
    """
    from ...registry.errors import ArgumentError, ScalekeeperError

    quiet_tensorflow()
    if plot is not None:
        from ...simulation._plot import require_matplotlib

        require_matplotlib()
    arrays = read_arrays(data_file)
    with silenced():
        from ...optimizer import diagnose, load_model
        from ...optimizer.float16_diagnosis import brief

    model = load_model(model_file, custom_objects_of(custom))
    x, y, sample_weight = named_data(model, arrays, data_file)
    try:
        found = diagnose(
            model, x, y, sample_weight, loss=loss, batch_size=batch_size, batches=batches, loss_scale=loss_scale
        )
    except ScalekeeperError:
        raise
    except Exception as error:  # of Keras or TensorFlow, as for arrays of another shape
        hint = "; there are no targets: add an array y" if y is None else ""
        raise ArgumentError(f"{model_file} does not run with {data_file}: {brief(error)}{hint}") from error
    if as_json:
        click.echo(json.dumps(found.for_json(), indent=2, allow_nan=False))
    else:
        _print(model_file, found)
    if plot is not None:
        found.plot(plot)
        click.echo(f"drawn: {click.format_filename(plot)}", err=as_json)
    if not found.is_healthy:
        raise click.exceptions.Exit(1)


def read_arrays(path: str) -> Dict[str, Any]:
    """Return the arrays of a ``.npz`` file by name; nothing in it is run."""
    import zipfile

    import numpy as np

    from ...registry.errors import MissingFileError, UnreadableFileError
    from ...serialization._zip_members import readable

    what = "a .npz file with arrays of numbers by name"
    if not os.path.exists(path):
        raise MissingFileError(f"{path}: there is no such file")
    if not zipfile.is_zipfile(path):
        raise UnreadableFileError(f"{path}: not {what}")
    try:
        with readable(path, what), np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except MemoryError as error:
        raise UnreadableFileError(f"{path}: its arrays do not fit into memory") from error


def named_data(model: Any, arrays: Mapping[str, Any], path: str) -> Tuple[Any, Any, Any]:
    """Return inputs, targets and weights from arrays: named x, y and sample_weight, or after inputs and outputs."""
    from ...registry.errors import ArgumentError

    left = dict(arrays)
    graph = getattr(model, "_functional", None) or model  # of a Sequential model of Keras 3
    inputs = [each.name.split(":")[0] for each in getattr(graph, "inputs", None) or ()]
    inputs = list(getattr(graph, "input_names", None) or inputs)
    outputs = list(getattr(graph, "output_names", None) or ())
    sample_weight = left.pop("sample_weight", None)
    x = left.pop("x", None)
    if x is None:
        x = _all_of(left, inputs)
    y = left.pop("y", None)
    if y is None:
        y = _all_of(left, outputs)
    if x is None or left:
        missing = [
            f"the {what} {name} is missing"
            for what, names in (("input", inputs), ("target", outputs))
            if any(name in left for name in names)
            for name in names
            if name not in left
        ]
        unknown = f"{', '.join(sorted(left))} is none of them" if left else "there is no input among them"
        unknown = ", ".join(missing) or unknown
        raise ArgumentError(
            f"{path}: expected arrays x, y and sample_weight, or inputs {', '.join(inputs) or '(without names)'} and "
            f"targets {', '.join(outputs) or '(without names)'}; {unknown}"
        )
    return x, y, sample_weight


def _all_of(arrays: Dict[str, Any], names: Sequence[str]) -> Any:
    """Take the arrays of these names; None if one is missing."""
    if not names or not all(name in arrays for name in names):
        return None
    found = [arrays.pop(name) for name in names]
    return found[0] if len(found) == 1 else found


def _print(name: str, found: Any) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ...diagnosis._table import COLUMNS, cells, finding_lines, scale_line, summary

    on_terminal = sys.stdout.isatty()
    console = Console(width=None if on_terminal else _WIDE, highlight=False)
    console.print(Text(f"{name}: {summary(found)}", style="bold cyan"))
    for level, text, advice in finding_lines(found):
        console.print(Text.assemble((f"  {level}", _STYLES[level]), f": {text}\n    advice: {advice}"))
    console.print(Text(scale_line(found), style="bold"))
    table = Table(box=box.SIMPLE_HEAD if on_terminal else None, pad_edge=on_terminal, padding=(0, 1))
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if number < 3 else "right", no_wrap=not on_terminal)
    for each in found.layers:
        table.add_row(*map(Text, cells(each)))
    console.print(table)
    for note in found.notes:
        console.print(Text(f"note: {note}", style="yellow"))
