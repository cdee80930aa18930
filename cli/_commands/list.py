"""``scalekeeper list``: list the policies, or describe some of them."""

from typing import Any, List, Tuple

import json
import re
import sys

import click

from .._options import json_option
from .completion import complete_policies

_REQUIRED = "(required)"


@click.command("list")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_policies)
@json_option
def list_command(names: Tuple[str, ...], as_json: bool) -> None:
    """List the policies and what each is for. With NAME: its parameters, their defaults and what they do."""
    rows = _rows(names)
    if as_json:
        click.echo(json.dumps([_as_json(row) for row in rows], indent=2, default=str))
    elif not names and not sys.stdout.isatty():
        for row in rows:
            click.echo("\t".join((_names(row), row.error or _purpose(row), row.origin)))
    elif not names:
        _print_purposes(rows)
    else:
        for row in rows:
            _print_policy(row)


def _rows(names: Tuple[str, ...]) -> List[Any]:
    """Return the listing, or the rows of some names and aliases in their order."""
    from ...registry._plugins import loss_scales

    rows = loss_scales.listing()
    if not names:
        return rows
    found = {name: row for row in rows for name in (*_aliases(row), row.name)}
    for name in names:
        if name not in found:
            loss_scales.plugin(name)  # raises the error for a name that is not known
    return [found[name] for name in names]


def _as_json(row: Any) -> Any:
    return {
        "name": row.name,
        "aliases": _aliases(row),
        "parameters": row.plugin.defaults() if row.plugin else {},
        "origin": row.origin,
        "error": row.error,
    }


def _aliases(row: Any) -> List[str]:
    return list(row.plugin.aliases) if row.plugin else []


def _names(row: Any) -> str:
    return ", ".join([row.name, *_aliases(row)])


def _purpose(row: Any) -> str:
    """Return the first sentence of the description, without its period."""
    return re.split(r"\.(?:\s|$)", row.plugin.description, maxsplit=1)[0]


def _print_purposes(rows: List[Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    presets = [row for row in rows if row.plugin and row.plugin.preset is not None]
    width = max(len(_names(row)) for row in rows)
    for title, part in (
        ("Policies", [row for row in rows if row not in presets]),
        ("Presets: policies with the defaults of another library", presets),
    ):
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        for row in part:
            origin = "" if row.origin == "built in" else f" ({row.origin})"
            table.add_row(Text("  " + _names(row).ljust(width)), Text((row.error or _purpose(row)) + origin))
        console.print(Text(title, style="bold"))
        console.print(table)
        console.print()
    console.print("scalekeeper list NAME describes the parameters of a policy.")


def _print_policy(row: Any) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 1000)
    console.print(Text(f"{_names(row)} ({row.origin})", style="bold"))
    console.print(Text(row.error or row.plugin.description))
    if row.plugin is not None and row.plugin.parameters.model_fields:
        table = Table("parameter", "default", "what it is", box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name, default in row.plugin.defaults().items():
            shown = default if default == _REQUIRED else json.dumps(default, default=str)
            description = row.plugin.parameters.model_fields[name].description or ""
            table.add_row(Text(name), Text(shown), Text(description))
        console.print()
        console.print(table)
    console.print()
