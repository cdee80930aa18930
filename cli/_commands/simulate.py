"""``scalekeeper simulate``: simulate policies without TensorFlow."""

from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import contextlib
import csv
import functools
import json
import os
import sys

import click

from .._options import document_options, json_option, limit_option, positive
from .completion import complete_policies
from .policies import Named, named_policy
from .sweep import (
    DEFAULT_POLICY,
    parsed_axes,
    print_sweep,
    simulated_sweep,
    sweep_policies,
    value_text,
)

_DEFAULT_MODEL = "drifting"
_LONG = 200_000  # steps: fewer need no progress bar
_WIDE = 1000  # characters of a line that does not go to a terminal


def _picture(context: click.Context, parameter: click.Parameter, value: Optional[str]) -> Optional[str]:
    if value is not None and os.path.splitext(value)[1].lower() not in (".png", ".svg", ".html"):
        raise click.BadParameter(f"{value!r} must end with .png, .svg or .html")
    return value


def _axes(context: click.Context, parameter: click.Parameter, value: Tuple[str, ...]) -> Any:
    from ...registry.errors import DocumentError, InvalidSpecError

    try:
        return parsed_axes(value)
    except (DocumentError, InvalidSpecError) as error:
        raise click.BadParameter(str(error)) from None


def _require_plot_of_sweep(plot: str, axes: Any) -> None:
    from ...simulation._sweep_plot import ENDINGS, MOST_AXES

    if not plot.lower().endswith(ENDINGS):
        raise click.UsageError(f"the plot of a sweep must end with {' or '.join(ENDINGS)}")
    if len(axes) > MOST_AXES:
        raise click.UsageError(f"a plot of a sweep has one or two parameters, not {len(axes)}")


@click.command("simulate")
@click.argument("policy", metavar="[POLICY]", required=False, shell_complete=complete_policies)
@click.option("--trace", "trace_file", metavar="FILE", type=click.Path(), help="A recorded trace: .csv or .npz.")
@click.option(
    "--overflow-above", metavar="X", type=float, callback=positive, help="Steps that overflow at any scale above X."
)
@click.option(
    "--model",
    metavar="NAME[:key=value,…]",
    help="Synthetic gradients: lognormal, decaying, spikes or drifting, with parameters such as median, spread and "
    f"seed. Default: {_DEFAULT_MODEL}.",
)
@click.option(
    "--steps", metavar="N", type=click.IntRange(1), help="The number of steps. Default: all of the trace, or 100000."
)
@click.option(
    "--compare",
    metavar="POLICY",
    multiple=True,
    shell_complete=complete_policies,
    help="Another policy on the same steps. May be repeated.",
)
@click.option(
    "--sweep",
    "axes",
    metavar="KEY=V,V,…",
    multiple=True,
    callback=_axes,
    help="Simulate every combination of values, such as loss_scale.increment_period=100,500,2000, and show the best. "
    "May be repeated.",
)
@click.option(
    "--plot",
    metavar="FILE",
    type=click.Path(),
    callback=_picture,
    help="Write a plot: out.png, out.svg or out.html; of a sweep a heat map or curves, not as .html.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV: a row for each policy.")
@json_option
@limit_option
@document_options
def simulate_command(
    policy: Optional[str],
    trace_file: Optional[str],
    overflow_above: Optional[float],
    model: Optional[str],
    steps: Optional[int],
    compare: Tuple[str, ...],
    axes: Any,
    plot: Optional[str],
    as_csv: bool,
    as_json: bool,
    limit: Optional[float],
    overrides: Any,
    access: Any,
) -> None:
    """Run policies over recorded or synthetic gradients, and show how many steps each would skip.

    POLICY is a name, a number, a mapping such as '{name: dynamic, increment_period: 500}', or a YAML or JSON document
    with a loss_scale. With --sweep, it may be left out: it is dynamic then.
    """
    if policy is None and not axes:
        raise click.UsageError("Missing argument 'POLICY'.")
    if axes and compare:
        raise click.UsageError("--sweep and --compare exclude each other")
    if axes and plot is not None:
        _require_plot_of_sweep(plot, axes)
    if sum(source is not None for source in (trace_file, overflow_above, model)) > 1:
        raise click.UsageError("--trace, --overflow-above and --model exclude each other")
    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other")
    if plot is not None:
        from ...simulation._plot import require_matplotlib

        require_matplotlib()
    if axes:
        found_policies = sweep_policies(policy or DEFAULT_POLICY, access, overrides, axes)
        title, trace = _trace(trace_file, overflow_above, model, steps, limit)
        sweep = simulated_sweep(axes, found_policies, trace, limit, progress_bar)
        print_sweep(title, sweep, as_csv, as_json)
        if plot is not None:
            from ...simulation._sweep_plot import plot_sweep

            plot_sweep(sweep, plot, title, value_text)
            click.echo(f"drawn: {click.format_filename(plot)}", err=as_csv or as_json)
        return
    assert policy is not None
    policies = [named_policy(policy, access, overrides), *(named_policy(text, access) for text in compare)]
    title, trace = _trace(trace_file, overflow_above, model, steps, limit)
    found = _simulated(policies, trace, limit)
    if as_csv:
        _print_csv(found)
    elif as_json:
        click.echo(json.dumps(_for_json(title, trace, found), indent=2))
    else:
        _print(title, found)
    if plot is not None:
        from ...simulation._plot import plot as draw

        draw(found, plot, title)
        click.echo(f"drawn: {click.format_filename(plot)}", err=as_csv or as_json)


def _trace(
    path: Optional[str], above: Optional[float], model: Optional[str], steps: Optional[int], limit: Optional[float]
) -> Tuple[str, Any]:
    """Return the title of the trace, and the trace."""
    from ...registry.errors import UnreadableFileError
    from ...simulation import overflowing_above, parse_model, read_trace, synthetic
    from ...simulation._synthetic_traces import DEFAULT_STEPS
    from ...simulation._traces import FLOAT16_LARGEST

    if path is not None:
        trace, name = read_trace(path), os.path.basename(path)
        if steps is not None and steps > len(trace):
            raise UnreadableFileError(f"{path}: --steps is {steps}, and the trace has {len(trace)}")
        trace = trace.first(len(trace) if steps is None else steps)
    elif above is not None:
        trace = overflowing_above(above, steps or DEFAULT_STEPS, limit or FLOAT16_LARGEST)
        name = f"overflows above a scale of {above:g}"
    else:
        name, parameters = parse_model(model or _DEFAULT_MODEL)
        trace = synthetic(name, steps or DEFAULT_STEPS, limit or FLOAT16_LARGEST, **parameters)
        name = f"{name}, synthetic" + "".join(f", {key}={value}" for key, value in parameters.items())
    return f"{name}, {len(trace):,} steps", trace


def _simulated(policies: Sequence[Named], trace: Any, limit: Optional[float]) -> List[Named]:
    from ...simulation import simulate

    found = []
    with progress_bar(len(trace) * len(policies)) as progress:
        for number, (label, policy) in enumerate(policies):
            report = functools.partial(progress, label, number * len(trace))
            found.append((label, simulate(policy, trace, limit, progress=report)))
    return found


@contextlib.contextmanager
def progress_bar(total: int) -> Iterator[Any]:
    """Yield a function of a label, the steps before it and its steps that are done, which updates a progress bar."""
    if total < _LONG or not sys.stderr.isatty():
        yield lambda label, before, done: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda label, before, done: bar.update(task, description=escape(label), completed=before + done)


def _print(title: str, found: Sequence[Named]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ...simulation._summary_table import COLUMNS, cells, notes

    on_terminal = sys.stdout.isatty()
    table = Table(box=box.SIMPLE_HEAD if on_terminal else None, pad_edge=on_terminal, padding=(0, 1))
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="right" if number else "left", no_wrap=not on_terminal)
    for named in found:
        table.add_row(*(Text(cell) for cell in cells(*named)))
    console = Console(width=None if on_terminal else _WIDE, highlight=False)
    console.print(Text(title, style="bold cyan"))
    console.print(table)
    for note in notes(found):
        console.print(Text(note, style="yellow"))


def _print_csv(found: Sequence[Named]) -> None:
    rows = [{"policy": label, **simulation.summary()} for label, simulation in found]
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _for_json(title: str, trace: Any, found: Sequence[Named]) -> Dict[str, Any]:
    return {
        "trace": {"name": title, "steps": len(trace), "facts": trace.facts},
        "limit": found[0][1].limit,
        "policies": [
            {
                "policy": label,
                "parameters": simulation.policy._parameters(),
                **simulation.summary(),
                "state": {name: _plain(value) for name, value in simulation.state.items()},
            }
            for label, simulation in found
        ],
    }


def _plain(value: Any) -> Any:
    number = value.item()
    return number if number == number and abs(number) != float("inf") else None
