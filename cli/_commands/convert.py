"""``scalekeeper convert``: convert files to another format or TensorFlow."""

from typing import Any, Dict, List, Optional, Sequence, Tuple

import json
import os
import sys

import click

from .._options import FormatChoice, json_option
from .._quiet import quiet_tensorflow, silenced
from .completion import complete_targets

_WIDE = 1000  # characters of a line that does not go to a terminal


@click.command("convert")
@click.argument("source", type=click.Path())
@click.argument("destination", type=click.Path())
@click.option(
    "--to",
    metavar="V",
    shell_complete=complete_targets,
    help="The target TensorFlow: 2.0 to 2.21, 2.16-tf_keras …, tf_keras, keras3. With -plain after it "
    "(2.10-plain), or plain alone for the installed one: for Keras without scalekeeper. Default: the installed one.",
)
@click.option(
    "--format",
    "file_format",
    type=FormatChoice("name"),
    help="The format of the destination, where its name does not end with .h5, .keras, .npz, .json or .ckpt.",
)
@click.option("--allow-loss", is_flag=True, help="Convert even if something is dropped; without it, that is an error.")
@click.option("--force", is_flag=True, help="Replace an existing destination.")
@click.option("--dry-run", is_flag=True, help="Print what would be converted and dropped, and write nothing.")
@click.option("--no-probe", is_flag=True, help="Do not compare what the models compute with the probe of the source.")
@click.option("--recursive", is_flag=True, help="Convert all files of a folder to the same paths in another.")
@click.option(
    "--custom",
    metavar="P",
    multiple=True,
    help="A custom layer of the model: package.module:Class. The current folder is on the import path. May be "
    "repeated.",
)
@json_option
def convert_command(
    source: str,
    destination: str,
    to: Optional[str],
    file_format: Optional[str],
    allow_loss: bool,
    force: bool,
    dry_run: bool,
    no_probe: bool,
    recursive: bool,
    custom: Tuple[str, ...],
    as_json: bool,
) -> None:
    """Convert a file to another format or for another TensorFlow: H5, .keras, SavedModel, checkpoint, .npz state.

    A conversion that drops something is an error without --allow-loss. The source is not changed; the destination is
    written atomically. Exit code 1 if a file can't be converted.
    """
    quiet_tensorflow()
    options: Dict[str, Any] = {
        "format": file_format,
        "allow_loss": allow_loss,
        "force": force,
        "dry_run": dry_run,
        "probe": not no_probe,
        "custom_objects": custom_objects_of(custom),
    }
    if recursive:
        _convert_all(source, destination, to, options, as_json)
        return
    with silenced():
        from ...optimizer import convert

        done = convert(source, destination, to, **options)
    if as_json:
        click.echo(json.dumps(done.model_dump(mode="json"), indent=2))
        return
    _print_one(done)


def _print_one(done: Any) -> None:
    verb = "converted" if done.written else "would be converted"
    click.echo(f"{done.source} ({done.source_format}): {verb} for {done.target}")
    click.echo(f"  to: {done.destination} ({done.destination_format})")
    for title, lines in (("lost" if done.written else "would be lost", done.losses), ("note", done.notes)):
        for line in lines:
            click.echo(f"  {title}: {line}")


def _convert_all(source: str, destination: str, to: Optional[str], options: Dict[str, Any], as_json: bool) -> None:
    from rich.console import Console
    from rich.progress import track

    with silenced() as stream:
        from ...optimizer import convert_folder

        console = Console(file=stream)

        def progress(paths: List[str]) -> Any:
            return track(paths, description="converting", console=console, disable=not console.is_terminal)

        outcomes = convert_folder(source, destination, to, progress=progress, **options)
    if as_json:
        click.echo(json.dumps([_as_json(outcome) for outcome in outcomes], indent=2))
    else:
        _print_all(source, destination, outcomes)
    if any(outcome.error is not None for outcome in outcomes):
        raise click.exceptions.Exit(1)


def _as_json(outcome: Any) -> Dict[str, Any]:
    conversion = None if outcome.conversion is None else outcome.conversion.model_dump(mode="json")
    return {**outcome._asdict(), "conversion": conversion}


def _print_all(source: str, destination: str, outcomes: Sequence[Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("source", "format", "destination", "result", box=None, pad_edge=False, padding=(0, 2))
    for outcome in outcomes:
        done, name = outcome.conversion, os.path.relpath(outcome.source, source)
        if done is None:
            table.add_row(Text(name), "", "", Text("failed: " + " ".join(outcome.error.split()), style="red"))
            continue
        formats = f"{done.source_format} → {done.destination_format}"
        word = "converted" if done.written else "would be converted"
        result = Text(word, style="green") if not done.losses else Text(f"{word}, {len(done.losses)} lost", "yellow")
        table.add_row(Text(name), formats, Text(os.path.relpath(done.destination, destination)), result)
    Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False).print(table)
    failed = sum(outcome.error is not None for outcome in outcomes)
    click.echo(f"{len(outcomes) - failed} of {len(outcomes)} converted" + (f", {failed} failed" if failed else ""))


def custom_objects_of(paths: Tuple[str, ...]) -> Dict[str, Any]:
    """Return the classes of import paths by name."""
    from ...registry._import_paths import AllowList

    if not paths:
        return {}
    sys.path.append("")  # last, so that a file there replaces no other module
    try:
        allowed = AllowList(paths)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return {path.split(":")[1]: allowed.load(path, "class") for path in paths if ":" in path}
