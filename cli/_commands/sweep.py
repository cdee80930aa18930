"""``scalekeeper simulate --sweep``: a policy with every combination of some parameters."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import csv
import json
import sys
import types

import click

from .policies import named_policy

DEFAULT_POLICY = "dynamic"
_PREFIX = "loss_scale."
_WIDE = 1000  # characters of a line that does not go to a terminal


class Axis(NamedTuple):
    """A parameter and its values: an override without a value, and the nodes of the values."""

    name: str
    override: Any
    nodes: Sequence[Any]

    @property
    def values(self) -> Tuple[Any, ...]:
        return tuple(node.plain() for node in self.nodes)


def parsed_axes(texts: Sequence[str]) -> List[Axis]:
    """Return the axes of the options, or raise an error if they are not valid."""
    from ...registry._document_files import error_at
    from ...registry._overrides import path_and_values
    from ...registry.errors import dotted
    from ...simulation._sweep import checked_axes

    found: List[Axis] = []
    for number, text in enumerate(texts, 1):
        override, nodes = path_and_values(text, f"<sweep {number}>")
        path = dotted(override.path)
        if not path.startswith(_PREFIX):
            raise error_at(override.span, _not_a_parameter(path), "override")
        if path[len(_PREFIX) :] in [axis.name for axis in found]:
            raise error_at(override.span, f"{path} is there twice", "override")
        found.append(Axis(path[len(_PREFIX) :], override, nodes))
    if found:
        checked_axes({axis.name: axis.values for axis in found})
    return found


def _not_a_parameter(path: str) -> str:
    from ...registry._documents import KEYS

    message = "only parameters of the loss scale change a simulation"
    if path == "loss_scale":
        return f"{message}: write {path}.name=dynamic,log_max to compare policies, or --compare POLICY"
    if path.partition(".")[0] in KEYS:
        return f"{message}, such as {_PREFIX}increment_period"
    return f"{message}: write {_PREFIX}{path}"


def sweep_policies(policy: str, access: Any, overrides: Any, axes: Sequence[Axis]) -> List[Tuple[Dict[str, Any], Any]]:
    """Return the values and the policy of every combination, each checked like an override."""
    from ...simulation._simulator import simulated_policy
    from ...simulation._sweep import combinations

    found = []
    for nodes in combinations({axis.name: axis.nodes for axis in axes}):
        changes = tuple(axis.override._replace(value=nodes[axis.name]) for axis in axes)
        _, made = named_policy(policy, access, (*overrides, *changes))
        found.append(({name: node.plain() for name, node in nodes.items()}, simulated_policy(made)))
    return found


def simulated_sweep(
    axes: Sequence[Axis], policies: Any, trace: Any, limit: Optional[float], progress_bar: Callable[..., Any]
) -> Any:
    """Simulate all combinations, with a progress bar."""
    from ...simulation._sweep import simulated

    with progress_bar(len(trace) * len(policies)) as progress:
        values = {axis.name: axis.values for axis in axes}
        return simulated(values, policies, trace, limit, lambda done: progress("sweep", 0, done))


def value_text(value: Any) -> str:
    """Return a value of an axis as YAML."""
    from ...registry._resolved_view import yaml_text

    return yaml_text(value)


def print_sweep(title: str, sweep: Any, as_csv: bool, as_json: bool) -> None:
    """Print the results: a table with the best combinations below, CSV or JSON."""
    if as_csv:
        rows = [
            {**{name: value_text(value) for name, value in each.values.items()}, **each.summary}
            for each in sweep.points
        ]
        writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    elif as_json:
        click.echo(json.dumps(_for_json(title, sweep), indent=2))
    else:
        _print_table(title, sweep)


def _for_json(title: str, sweep: Any) -> Dict[str, Any]:
    best = {"steps_lost": sweep.best_by_steps_lost, "mean_scale": sweep.best_by_mean_scale}
    return {
        "trace": title,
        "axes": {name: list(values) for name, values in sweep.axes.items()},
        "points": [{"values": each.values, **each.summary} for each in sweep.points],
        "best": {name: None if point is None else point.values for name, point in best.items()},
    }


def _print_table(title: str, sweep: Any) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ...simulation._summary_table import COLUMNS, cells

    on_terminal = sys.stdout.isatty()
    table = Table(box=box.SIMPLE_HEAD if on_terminal else None, pad_edge=on_terminal, padding=(0, 1))
    for column in (*sweep.axes, *COLUMNS[1:]):
        table.add_column(column, justify="right", no_wrap=not on_terminal)
    bests = (sweep.best_by_steps_lost, sweep.best_by_mean_scale)
    for point in sweep.points:
        values = [value_text(value) for value in point.values.values()]
        figures: Any = types.SimpleNamespace(**point.summary)
        table.add_row(*map(Text, [*values, *cells("", figures)[1:]]), style="bold green" if point in bests else None)
    console = Console(width=None if on_terminal else _WIDE, highlight=False)
    console.print(Text(title, style="bold cyan"))
    console.print(table)
    for name, best in zip(("steps lost", "mean scale"), bests):
        console.print(Text(f"best by {name}: {_described(best)}", style="bold"))
    spoiled = sum(point.summary["first_spoiled"] is not None for point in sweep.points)
    if spoiled:
        note = f"{spoiled:,} of {len(sweep.points):,} apply steps with gradients that are not finite: none is the best"
        console.print(Text(note, style="yellow"))


def _described(point: Any) -> str:
    if point is None:
        return "none, because each applies steps with gradients that are not finite, or has no mean scale"
    values = ", ".join(f"{name}={value_text(value)}" for name, value in point.values.items())
    return f"{values} ({point.steps_lost:,} lost at a mean scale of 2^{point.mean_log2_scale:.2f})"
