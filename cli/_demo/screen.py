"""What a person sees of a demo: with bars on a terminal, as plain lines elsewhere."""

from typing import Any, Dict, Iterator, List, Optional, Sequence

import contextlib
import os
import sys

import click

from ...simulation._summary_table import scale_text
from . import folder_layout
from .demo_run import Watch

_LINES = 8  # of progress, where there is no bar
_EVERY = 5  # steps, after which a bar is drawn anew
_WIDE = 1000  # characters: what goes to a file or a program is not cut
_MOST_NAMES = 3
_COLUMNS = ("format", "files", "size", "loaded with", "scale", "off by", "equal")
_ALL_OF_IT = "weights, slots, iterations, loss scale, skipped steps, and the loss of each step"


def for_title(label: str, versions: Dict[str, str]) -> str:
    """What a picture is of."""
    return f"scalekeeper demo: {label}, on {_said(versions)}"


def _said(versions: Dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


class Screen:
    """Speaks on standard output, unless it is to be quiet."""

    def __init__(self, is_quiet: bool) -> None:
        from rich.console import Console

        self.on_terminal = sys.stdout.isatty()
        self.console = Console(width=None if self.on_terminal else _WIDE, highlight=False, quiet=is_quiet)

    def line(self, text: str = "", style: str = "") -> None:
        from rich.text import Text

        self.console.print(Text(text, style=style))

    def begin(self, versions: Dict[str, str], label: str, document: Optional[str], folder: str) -> None:
        self.line(f"scalekeeper demo on {_said(versions)}", "bold cyan")
        origin = "the bundled document" if document is None else click.format_filename(document)
        self.line(f"{label}, as {origin} says")
        self.line(f"a small mixed_float16 model; files go to {click.format_filename(folder)}")
        self.line()

    @contextlib.contextmanager
    def watching(self, request: Any) -> Iterator[Watch]:
        """A watch on the run."""
        if not self.on_terminal or self.console.quiet:
            yield _Lines(self, request)
            return
        from rich.progress import BarColumn, Progress, TextColumn

        columns = [
            TextColumn("{task.description}"),
            BarColumn(None),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[told]}"),
        ]
        with Progress(*columns, console=self.console, expand=True) as bar:
            yield _Bars(bar, request)

    def interrupted(self, folder: str) -> None:
        self.line(f"Stopped; what was written so far is in {click.format_filename(folder)}", "yellow")

    def end(self, request: Any, outcome: Any, drawn: str) -> None:
        """The table, what is wrong, the verdict, and what to try next."""
        self.line()
        self.console.print(_table(outcome, self.on_terminal))
        for each in outcome.continuations:
            for line in _complaints(each):
                self.line(line, "red")
        self.line()
        scale, skipped = scale_text(float(outcome.record["scale"])), int(outcome.record["steps/skipped"])
        self.line(f"The uninterrupted run has skipped {skipped} steps, and ends at a scale of {scale}.")
        equal = sum(each.is_equal for each in outcome.continuations)
        verdict = f"{equal} of {len(outcome.continuations)} continuations equal it to the bit"
        if outcome.is_equal:
            self.line(f"{verdict}: {_ALL_OF_IT}.", "bold green")
        else:
            self.line(f"{verdict}.", "bold red")
        self.line(f"The picture: {click.format_filename(drawn)}")
        self.line()
        self.line("Try next:", "bold")
        document = os.path.join(request.folder, request.document)
        first = outcome.continuations[0].files[0]
        self.line(f"  scalekeeper inspect {os.path.join(folder_layout.saved_in(request.folder), first)}")
        self.line(f"  scalekeeper demo {document}    (change it first)")
        self.line("  scalekeeper list    (the policies that it may name)")


class _Lines(Watch):
    """Progress as a few lines."""

    def __init__(self, screen: Screen, request: Any) -> None:
        self._screen, self._request = screen, request

    def stepped(self, step: Any) -> None:
        if step.number % max(1, self._request.steps // _LINES) == 0:
            self._screen.line(f"step {step.number} of {self._request.steps}: {_told(step)}")

    def saving(self, titles: List[str]) -> None:
        self._screen.line(f"saving after step {self._request.half}: {', '.join(titles)}")

    def continuing(self, count: int) -> None:
        self._screen.line(f"going on in {count} new processes")

    def continued(self, continuation: Any) -> None:
        outcome = "failed" if continuation.comparison is None else f"{continuation.seconds:.1f} s"
        self._screen.line(f"{continuation.title}: {outcome}")


class _Bars(Watch):
    """Progress as one bar for the run, and one for the processes after it."""

    def __init__(self, bar: Any, request: Any) -> None:
        self._bar, self._request = bar, request
        self._run = bar.add_task("training", total=request.steps, told="")
        self._processes: Any = None

    def stepped(self, step: Any) -> None:
        if step.number % _EVERY == 0 or step.number == self._request.steps:
            self._bar.update(self._run, completed=step.number, told=_told(step, is_aligned=True))

    def saving(self, titles: List[str]) -> None:
        self._bar.update(self._run, completed=self._request.half, told=f"saving in {len(titles)} formats")
        self._bar.refresh()

    def continuing(self, count: int) -> None:
        self._processes = self._bar.add_task("going on", total=count, told="in new processes")

    def continued(self, continuation: Any) -> None:
        self._bar.update(self._processes, advance=1, told=f"in new processes: {continuation.title}")


def _told(step: Any, is_aligned: bool = False) -> str:
    loss, scale, skipped = f"{step.loss:.4f}", scale_text(step.scale), str(step.skipped)
    if is_aligned:  # or else the bar would change its length at each step
        loss, scale, skipped = f"{loss:<7}", f"{scale:<8}", f"{skipped:<3}"
    return f"scale {scale}{'' if is_aligned else ','} loss {loss}{'' if is_aligned else ','} skipped {skipped}"


def _table(outcome: Any, on_terminal: bool) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in _COLUMNS:
        is_number = name in ("size", "scale", "off by")
        table.add_column(name, justify="right" if is_number else "left", no_wrap=not on_terminal or is_number)
    for each in outcome.continuations:
        size = "-" if each.size is None else f"{each.size / 1000:.0f} kB"
        equal = Text("equal", "green") if each.is_equal else Text("no" if each.comparison else "failed", "red")
        files = ", ".join(each.files)
        table.add_row(each.title, Text(files), size, each.loaded_with, scale_text(each.scale), _off_by(each), equal)
    return table


def _off_by(continuation: Any) -> str:
    if continuation.comparison is None:
        return "-"
    largest = continuation.comparison.largest
    return "?" if largest is None else "0" if largest == 0 else f"{largest:.1e}"


def _complaints(continuation: Any) -> Iterator[str]:
    for place, line in enumerate(continuation.said):
        yield f"{continuation.title}: {line}" if place == 0 else f"    {line}"
    if continuation.comparison is not None and continuation.comparison.different:
        yield f"{continuation.title} differs in {_listed(continuation.comparison.different)}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
