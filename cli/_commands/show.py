"""``scalekeeper show``: show every effective argument of a document, and differences between documents or targets."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import json
import sys

import click

from .._options import document_options, json_option, read_target, target_option
from .completion import complete_targets
from .validate import print_problems, source_named


class _View(NamedTuple):
    """A document for a target, as it is shown."""

    name: str
    target: Any
    entries: Sequence[Any]

    @property
    def title(self) -> str:
        return f"{click.format_filename(self.name)}, for {self.target}"


@click.command("show")
@click.argument("file", metavar="FILE", type=click.Path())
@target_option
@document_options
@click.option("--yaml", "as_yaml", is_flag=True, help="Print a document that states every argument.")
@json_option
@click.option(
    "--diff",
    "other",
    metavar="FILE",
    type=click.Path(),
    help="Show what differs from this document, to which --set does not apply. Exit code 1 if anything does.",
)
@click.option(
    "--diff-target",
    "other_target",
    metavar="V",
    callback=read_target,
    shell_complete=complete_targets,
    help="Show what differs on this target: of the same document, or of that of --diff. Exit code 1 if anything does.",
)
def show_command(
    file: str,
    target: Any,
    overrides: Any,
    access: Any,
    as_yaml: bool,
    as_json: bool,
    other: Optional[str],
    other_target: Any,
) -> None:
    """Show every effective argument of a document: its value, and the file, override, preset or default it comes from.

    "-" reads standard input. --yaml prints a valid document for the target, which builds the same optimizer.
    """
    is_diff = other is not None or other_target is not None
    if as_yaml and (as_json or is_diff):
        raise click.UsageError("--yaml cannot be combined with --json, --diff or --diff-target")
    if other == file == "-":
        raise click.UsageError("standard input can be read once")
    source = source_named_or_exit(file)
    first = _view(file, source, target, access, overrides)
    if not is_diff:
        _print_view(first, access, as_yaml, as_json)
        return
    if other is None:
        second = _view(file, source, other_target, access, overrides)
    else:
        second = _view(other, source_named_or_exit(other), other_target or target, access, ())
    if _print_differences(first, second, as_json):
        raise click.exceptions.Exit(1)


def source_named_or_exit(name: str) -> Any:
    """Return the text of a file, or print why it can't be read and exit."""
    from ...registry import DocumentError

    try:
        return source_named(name)
    except DocumentError as error:
        print_problems(error)
        raise click.exceptions.Exit(1) from None


def _view(name: str, source: Any, target: Any, access: Any, overrides: Any) -> _View:
    from ...registry import DocumentError, _documents, _resolved_view

    try:
        nodes = _documents.resolved(source, access, overrides)
        document = _documents.check_nodes(nodes, target, access, source.name)
    except DocumentError as error:
        print_problems(error)
        raise click.exceptions.Exit(1) from None
    return _View(name, target, _resolved_view.entries(document, nodes, access))


def _print_view(view: _View, access: Any, as_yaml: bool, as_json: bool) -> None:
    from ...registry import _resolved_view
    from ...registry.errors import dotted

    if as_json:
        found = {"file": view.name, "target": view.target.name, "arguments": [_for_json(each) for each in view.entries]}
        click.echo(json.dumps(found, indent=2))
    elif as_yaml:
        document, left_out = _resolved_view.document_of(view.entries, view.target, access)
        click.echo("\n".join([f"# for {view.target}", *_resolved_view.yaml_lines(document, view.entries, left_out)]))
    else:
        rows = [[dotted(each.path), _value(each), each.origin.text] for each in view.entries]
        _print_table(view.title, ["argument", "value", "from"], rows)


def _print_differences(first: _View, second: _View, as_json: bool) -> bool:
    """Print what differs, and return whether anything does."""
    from ...registry._resolved_view import differences
    from ...registry.errors import dotted

    found = differences(first.entries, second.entries)
    if as_json:
        report: Dict[str, Any] = {"equal": not found}
        for name, view in (("first", first), ("second", second)):
            report[name] = {"file": view.name, "target": view.target.name}
        report["differences"] = [
            {"path": each.path, "first": _for_json(each.first), "second": _for_json(each.second)} for each in found
        ]
        click.echo(json.dumps(report, indent=2))
    elif not found:
        click.echo(f"{first.title}\n{second.title}\nno difference")
    else:
        table = []
        for each in found:
            origins = [entry.origin.text if entry is not None else "-" for entry in (each.first, each.second)]
            table.append([dotted(each.path), _value(each.first), _value(each.second), " | ".join(origins)])
        _print_table(f"{first.title}\n{second.title}", ["argument", "first", "second", "from"], table)
    return bool(found)


def _value(entry: Any) -> str:
    from ...registry._resolved_view import yaml_text

    return "-" if entry is None else yaml_text(entry.value)


def _for_json(entry: Any) -> Optional[Dict[str, Any]]:
    if entry is None:
        return None
    value = entry.value
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):  # the default of a policy may be any object
        value = str(value)
    origin = entry.origin
    return {
        "path": list(entry.path),
        "value": value,
        "from": origin.kind,
        "origin": origin.text,
        "line": origin.line,
        "column": origin.column,
        "replaced": list(origin.replaced),
    }


def _print_table(title: str, columns: List[str], rows: List[List[str]]) -> None:
    """Print a table: of rich on a terminal, else with aligned columns, which needs no import."""
    if sys.stdout.isatty():
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
        for row in rows:
            table.add_row(*map(Text, row))
        console = Console(highlight=False)
        console.print(Text(title, style="bold cyan"))
        console.print(table)
        return
    widths = [max(len(row[at]) for row in [columns, *rows]) for at in range(len(columns) - 1)]
    click.echo(title)
    for row in [columns, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths)]
        click.echo("  ".join([*cells, row[-1]]).encode("utf-8", "replace").decode("utf-8"))
