"""``scalekeeper check``: check the contract of a policy."""

from typing import Any, Tuple

import json
import sys

import click

from .._options import document_options, json_option
from .._quiet import quiet_tensorflow, silenced
from .completion import complete_policies
from .policies import named_policy

_COLORS = {"passed": "green", "failed": "red", "not run": "yellow"}


@click.command("check")
@click.argument("policy", metavar="POLICY", shell_complete=complete_policies)
@click.option("--leave-out", metavar="CHECK", multiple=True, help="Skip this check. May be repeated.")
@json_option
@document_options
def check_command(policy: str, leave_out: Tuple[str, ...], as_json: bool, overrides: Any, access: Any) -> None:
    """Check the contract of a policy, in NumPy and in the installed TensorFlow. Exit code 1 if a check fails.

    POLICY is a name, a mapping such as '{name: patient, start: 8}', an allowed import path, or a YAML or JSON document
    with a loss_scale.
    """
    from ...testing._check_runner import known_checks, report_of

    quiet_tensorflow()
    with silenced():
        label, checked = named_policy(policy, access, overrides)
        report = report_of(checked, known_checks(leave_out))
    report.policy = label
    if as_json:
        click.echo(json.dumps(report.for_json(), indent=2))
    else:
        _print(report)
    if report.failed:
        raise click.exceptions.Exit(1)


def _print(report: Any) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not sys.stdout.isatty():
        click.echo(str(report))
        return
    table = Table("check", "", "why", box=box.SIMPLE_HEAD, pad_edge=False)
    for each in report.outcomes:
        table.add_row(Text(each.check), Text(each.status, style=_COLORS[each.status]), Text(each.message))
    console = Console(highlight=False)
    console.print(Text(report.summary(), style="bold cyan"))
    console.print(table)
