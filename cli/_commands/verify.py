"""``scalekeeper verify``: compare two files."""

from typing import Any, Tuple

import json
import sys

import click

from .._options import json_option
from .._quiet import quiet_tensorflow, silenced
from .convert import custom_objects_of

_MOST_DIFFERENCES = 40  # in the text; --json has all of them


@click.command("verify")
@click.argument("first", type=click.Path())
@click.argument("second", type=click.Path())
@click.option(
    "--tolerance",
    metavar="T",
    type=click.FloatRange(min=0),
    default=0.0,
    help="The largest difference of weights and slots that is not reported. Default: none.",
)
@click.option("--no-outputs", is_flag=True, help="Do not build the models, which needs TensorFlow.")
@click.option(
    "--custom",
    metavar="P",
    multiple=True,
    help="A custom layer of the models: package.module:Class. The current folder is on the import path. May be "
    "repeated.",
)
@json_option
def verify_command(
    first: str, second: str, tolerance: float, no_outputs: bool, custom: Tuple[str, ...], as_json: bool
) -> None:
    """Compare two files, or a file and its conversion: H5, .keras, SavedModel, checkpoint, .npz state.

    Configuration, weights, slots, iterations and loss scale, and what the models compute if the installed Keras can
    build both. Exit code 0 if nothing differs, 1 if something does.
    """
    quiet_tensorflow()
    with silenced():
        from ...optimizer import verify

        custom_objects = custom_objects_of(custom)
        found = verify(first, second, tolerance=tolerance, outputs=not no_outputs, custom_objects=custom_objects)
    if as_json:
        click.echo(json.dumps({"equal": found.equal, **found.model_dump(mode="json")}, indent=2))
    else:
        _print(found)
    if not found.equal:
        raise click.exceptions.Exit(1)


def _print(found: Any) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = Console(soft_wrap=not sys.stdout.isatty(), highlight=False)
    console.print(Text(f"{found.first}\n{found.second}", style="bold cyan"))
    console.print(Text("  ").append(found.verdict, "green" if found.equal else "red").append(f" ({found.scope})"))
    if found.differences:
        table = Table("what", "name", "first", "second", "largest difference", box=None, padding=(0, 2), pad_edge=False)
        for each in found.differences[:_MOST_DIFFERENCES]:
            largest = "" if each.largest is None else f"{each.largest:.3g}"
            table.add_row(*map(Text, (each.kind, each.name, each.first, each.second, largest)))
        console.print()
        console.print(Padding(table, (0, 0, 0, 2)))
        more = len(found.differences) - _MOST_DIFFERENCES
        if more > 0:
            console.print(f"  … and {more} more; --json shows all of them")
    for note in found.notes:
        console.print(Text(f"  note: {note}", style="yellow"))
