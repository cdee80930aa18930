"""``scalekeeper inspect``: show the content of a file."""

from typing import Any, Iterator, List, Mapping, Sequence, Tuple

import json
import sys

import click

from .._options import json_option
from .._quiet import quiet_tensorflow

_MOST_VARIABLES = 40  # in the text; --json has all of them


@click.command("inspect")
@click.argument("path", type=click.Path())
@json_option
def inspect_command(path: str, as_json: bool) -> None:
    """Show the content of a file: H5, .keras, SavedModel, checkpoint, JSON configuration, .npz state, YAML document.

    The versions that wrote it, the optimizer and its settings, the loss scale and its state, iterations, slots by
    variable, what is missing, and a line of code that loads it. Nothing in the file is executed.
    """
    from ...serialization.inspection import inspect

    quiet_tensorflow()
    found = inspect(path)
    if as_json:
        click.echo(json.dumps(found.model_dump(), indent=2))
        return
    _print(found)


def _print(found: Any) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = Console(soft_wrap=not sys.stdout.isatty(), highlight=False)
    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(found):
        facts.add_row(Text(name, style="bold"), Text(value))
    console.print(Text(found.path, style="bold cyan"))
    console.print(Padding(facts, (0, 0, 0, 2)))
    variables = _variables(found)
    if variables:
        table = Table("variable", "shape", "slots", box=None, padding=(0, 2), pad_edge=False)
        for row in variables[:_MOST_VARIABLES]:
            table.add_row(*map(Text, row))
        console.print()
        console.print(Padding(table, (0, 0, 0, 2)))
        if len(variables) > _MOST_VARIABLES:
            console.print(f"  … and {len(variables) - _MOST_VARIABLES} more; --json shows all of them")
    _print_lines(console, "not in the file", found.missing, "yellow")
    _print_lines(console, "notes", found.notes, "yellow")
    _print_lines(console, "to use it", [found.use], "green")


def _print_lines(console: Any, title: str, lines: Sequence[str], style: str) -> None:
    from rich.text import Text

    if lines:
        console.print()
        console.print(Text(f"  {title}", style="bold"))
        for line in lines:
            console.print(Text(f"    {line}", style=style))


def _facts(found: Any) -> Iterator[Tuple[str, str]]:
    yield "kind", found.kind
    yield (
        "written by",
        ", ".join(f"{name} {version}" for name, version in found.written_by.items()) or "it does not say",
    )
    if found.model is not None:
        yield "model", found.model
    if found.optimizer is not None:
        yield "optimizer", f"{found.optimizer} {_listed(found.settings)}".strip()
    if found.loss_scale is not None:
        scale = found.loss_scale
        yield (
            "loss scale",
            f"{scale.name or 'of a class that the file does not name'} {_listed(scale.parameters)}".strip(),
        )
        yield "its state", _listed(scale.state) or "none"
    if found.iterations is not None:
        yield "iterations", str(found.iterations)
    if found.learning_rate is not None:
        yield "learning rate", f"{found.learning_rate:g}"
    if found.skipped_steps is not None:
        yield (
            "skipped steps",
            {"advance": "count in iterations", "hold": "do not count in iterations"}[found.skipped_steps],
        )
    if found.skips:
        yield "skipped so far", "{total}, the last of them step {last}".format(**found.skips)
    if found.unnamed:
        yield "optimizer's arrays", f"{len(found.unnamed)}, without names, in the order of the variables"


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in values.items() if value is not None)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping) and "class_name" in value:
        config = value.get("config")
        return f"{value['class_name']}({_listed(config) if isinstance(config, Mapping) else _value(config)})"
    return str(value)


def _variables(found: Any) -> List[Tuple[str, str, str]]:
    names = list(dict.fromkeys([*found.variables, *found.slots]))
    return [
        (
            name,
            "×".join(map(str, found.variables.get(name, _shape_of_slots(found.slots.get(name, {}))))) or "number",
            ", ".join(found.slots.get(name, {})),
        )
        for name in names
    ]


def _shape_of_slots(slots: Mapping[str, Sequence[int]]) -> Sequence[int]:
    return next(iter(slots.values()), ())
