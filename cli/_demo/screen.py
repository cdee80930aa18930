"""The output of the demo: progress bars on a terminal, plain lines elsewhere."""

from typing import Any, List, Optional

import os
import sys

import click

from ...simulation._summary_table import scale_text
from .demo_run import Continuation, Outcome, Request
from .training_run import Step

_LINES = 8  # of progress, without bars
_INTERVAL = 5  # steps between two updates of a bar
_WIDE = 1000  # characters of a line that does not go to a terminal
_MOST_NAMES = 3
_NUMBERS = ("size", "scale", "off by")
_COLUMNS = ("format", "files", "size", "loaded with", "scale", "off by", "equal")
_ALL_OF_IT = "weights, slots, iterations, loss scale, skipped steps, and the loss of each step"


class Screen:
    """Writes to standard output, unless it is quiet. A context manager that shows the progress of a run."""

    def __init__(self, request: Request, is_quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._request = request
        self._on_terminal = sys.stdout.isatty()
        self._console = Console(width=None if self._on_terminal else _WIDE, highlight=False, quiet=is_quiet)
        count, note = TextColumn("{task.completed}/{task.total}"), TextColumn("{task.fields[note]}")
        columns = (TextColumn("{task.description}"), BarColumn(None), count, note)
        self._bars = Progress(*columns, console=self._console, expand=True)
        self._has_bars = self._on_terminal and not is_quiet
        self._task: Any = None

    def line(self, text: str = "", style: str = "") -> None:
        from rich.text import Text

        self._console.print(Text(text, style=style))

    def begin(self, versions: str, label: str, document: Optional[str]) -> None:
        self.line(f"scalekeeper demo on {versions}", "bold cyan")
        origin = "the bundled document" if document is None else click.format_filename(document)
        self.line(f"{label}, from {origin}; files go to {click.format_filename(self._request.folder)}\n")
        steps, half = self._request.steps, self._request.half
        self.line("What it does", "bold")
        self.line(
            f"It trains a small mixed_float16 model for {steps} steps and saves it after step {half} in every format.\n"
            "For each format, a new process loads the files and trains to the end, too."
        )
        self.line("What to look at", "bold")
        self.line(
            "The loss scale: it grows until a float16 gradient overflows, and that step is skipped.\n"
            "The table: a resumed run is equal if it ends with the same bits as the run that was not interrupted.\n"
        )

    def __enter__(self) -> "Screen":
        if self._has_bars:
            self._bars.start()
            self._task = self._bars.add_task("training", total=self._request.steps, note="")
        return self

    def __exit__(self, kind: Any, *error: Any) -> None:
        if self._has_bars:
            self._bars.stop()
        if kind is KeyboardInterrupt:
            folder = click.format_filename(self._request.folder)
            self.line(f"Stopped; what was written so far is in {folder}", "yellow")

    def stepped(self, step: Step) -> None:
        loss, scale, total = f"{step.loss:.4f}", scale_text(step.scale), self._request.steps
        if self._has_bars and (step.number % _INTERVAL == 0 or step.number == total):
            note = f"scale {scale:<8} loss {loss:<7} skipped {step.skipped:<3}"  # of one length, as the bar is
            self._bars.update(self._task, completed=step.number, note=note)
        elif not self._has_bars and step.number % max(1, total // _LINES) == 0:
            self.line(f"step {step.number} of {total}: scale {scale}, loss {loss}, skipped {step.skipped}")

    def saving(self, titles: List[str]) -> None:
        if self._has_bars:
            self._bars.update(self._task, completed=self._request.half, note=f"saving in {len(titles)} formats")
            self._bars.refresh()
        else:
            self.line(f"saving after step {self._request.half}: {', '.join(titles)}")

    def continuing(self, count: int) -> None:
        if self._has_bars:
            self._task = self._bars.add_task("resuming", total=count, note="in new processes")
        else:
            self.line(f"resuming in {count} new processes")

    def continued(self, continuation: Continuation) -> None:
        title = continuation.format.title
        if self._has_bars:
            self._bars.update(self._task, advance=1, note=f"in new processes: {title}")
        else:
            self.line(f"{title}: " + ("failed" if continuation.messages else f"{continuation.seconds:.1f} s"))

    def end(self, outcome: Outcome, plot: str) -> None:
        """Print the table, the differences, the result, and what to try next."""
        self.line()
        self._console.print(self._table(outcome))
        for each in outcome.continuations:
            for line in _complaints(each):
                self.line(line, "red")
        self.line()
        scale, skipped = scale_text(float(outcome.record["scale"])), int(outcome.record["steps/skipped"])
        self.line(f"The uninterrupted run skipped {skipped} steps, and ends at a loss scale of {scale}.")
        equal = sum(each.is_equal for each in outcome.continuations)
        verdict = f"{equal} of {len(outcome.continuations)} resumed runs equal it to the bit"
        more, style = (f": {_ALL_OF_IT}", "bold green") if outcome.is_equal else ("", "bold red")
        self.line(f"{verdict}{more}.", style)
        self.line(f"The picture: {click.format_filename(plot)}")
        self.line("In it, the resumed runs are dashes on the broad grey line of the uninterrupted run.")
        self.line()
        self.line("Try next:", "bold")
        first = os.path.join(self._request.saved, outcome.continuations[0].format.files[0])
        document = os.path.join(self._request.folder, self._request.document)
        self.line(f"  scalekeeper inspect {first}\n  scalekeeper demo {document}    (change it first)")
        self.line("  scalekeeper list    (the policies that a document may name)")

    def _table(self, outcome: Outcome) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for name in _COLUMNS:
            number = name in _NUMBERS
            table.add_column(name, justify="right" if number else "left", no_wrap=number or not self._on_terminal)
        for each in outcome.continuations:
            size = "-" if each.size is None else f"{each.size / 1000:.0f} kB"
            equal = Text("equal", "green") if each.is_equal else Text("no" if each.comparison else "failed", "red")
            names = each.format.title, Text(", ".join(each.format.files)), size, each.format.loaded_with
            table.add_row(*names, scale_text(each.scale), _off_by(each), equal)
        return table


def _off_by(continuation: Continuation) -> str:
    if continuation.comparison is None:
        return "-"
    largest = continuation.comparison.largest
    return "?" if largest is None else "0" if largest == 0 else f"{largest:.1e}"


def _complaints(continuation: Continuation) -> List[str]:
    lines = list(continuation.messages)
    if continuation.comparison is not None and continuation.comparison.different:
        different = continuation.comparison.different
        more = f" and {len(different) - _MOST_NAMES} more" if len(different) > _MOST_NAMES else ""
        return [f"{continuation.format.title} differs in {', '.join(different[:_MOST_NAMES])}{more}"]
    return [f"{continuation.format.title}: {lines[0]}", *(f"    {line}" for line in lines[1:])] if lines else []
