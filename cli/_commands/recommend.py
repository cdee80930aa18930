"""``scalekeeper recommend``: recommend a loss scale from a trace."""

from typing import Any, Dict, Optional

import json
import sys

import click

from .._options import json_option, limit_option
from .simulate import progress_bar


@click.command("recommend")
@click.argument("trace_file", metavar="TRACE", type=click.Path())
@limit_option
@json_option
def recommend_command(trace_file: str, limit: Optional[float], as_json: bool) -> None:
    """Recommend a fixed scale and a policy for runs like the recorded one, with reasons and YAML.

    TRACE is a .csv or .npz file of TraceRecorder or TraceWriter.
    """
    from ...simulation import read_trace, recommend

    trace = read_trace(trace_file)
    with progress_bar(len(trace)) as progress:
        found = recommend(trace, limit, progress=progress)
    if as_json:
        click.echo(json.dumps(_for_json(found), indent=2))
        return
    _print(trace_file, len(trace), found)


def _for_json(found: Any) -> Dict[str, Any]:
    return {
        "fixed_scale": found.fixed_scale,
        "fixed_reason": found.fixed_reason,
        "loss_scale": found.loss_scale,
        "policy_reason": found.policy_reason,
        "warnings": list(found.warnings),
        "yaml": found.yaml,
        "candidates": [{"loss_scale": each.loss_scale, **each.simulation.summary()} for each in found.candidates],
    }


def _print(name: str, steps: int, found: Any) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=not sys.stdout.isatty(), highlight=False)
    console.print(Text(f"{name}, {steps:,} steps", style="bold cyan"))
    scale = "none" if found.fixed_scale is None else f"{found.fixed_scale:.0f}"
    console.print(Text.assemble((f"fixed scale: {scale}\n", "bold"), f"  {found.fixed_reason}"))
    console.print(Text.assemble((f"policy: {found.policy}\n", "bold"), f"  {found.policy_reason}"))
    for warning in found.warnings:
        console.print(Text(f"note: {warning}", style="yellow"))
    console.print()
    console.print(Text(found.yaml.rstrip(), style="green"))
