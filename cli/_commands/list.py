"""``scalekeeper list``: list the registered policies."""

from typing import Any, Dict, List

import json
import sys

import click

from .._options import json_option


@click.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """List the registered loss scales: names, parameters with their defaults, and origin."""
    rows = _rows()
    if as_json:
        click.echo(json.dumps(rows, indent=2, default=str))
    elif sys.stdout.isatty():
        _print_table(rows)
    else:
        for row in rows:
            click.echo("\t".join((_names(row), row["error"] or _parameters(row, ", "), row["origin"])))


def _rows() -> List[Dict[str, Any]]:
    from ...registry._plugins import loss_scales

    return [
        {
            "name": row.name,
            "aliases": list(row.plugin.aliases) if row.plugin else [],
            "parameters": row.plugin.defaults() if row.plugin else {},
            "origin": row.origin,
            "error": row.error,
        }
        for row in loss_scales.listing()
    ]


def _names(row: Dict[str, Any]) -> str:
    return ", ".join([row["name"], *row["aliases"]])


def _parameters(row: Dict[str, Any], separator: str) -> str:
    shown = (
        "{}={}".format(name, default if default == "(required)" else json.dumps(default, default=str))
        for name, default in row["parameters"].items()
    )
    return separator.join(shown)


def _print_table(rows: List[Dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("name", "parameters and defaults", "origin")
    for row in rows:
        middle = Text(row["error"], style="red") if row["error"] else Text(_parameters(row, "\n"))
        table.add_row(Text(_names(row), style="bold"), middle, Text(row["origin"]))
    Console().print(table)
