"""``scalekeeper demo``: train a model, save it in every format, resume it from each, and compare the results."""

from typing import Any, Dict, Optional, Tuple

import json
import os

import click

from .._options import FormatChoice, document_options, json_option
from .._quiet import quiet_tensorflow, silenced
from .validate import print_problems

_STEPS = 400


def _folder(context: click.Context, parameter: click.Parameter, value: Optional[str]) -> Optional[str]:
    from .._demo import demo_run

    if value is not None and not demo_run.is_free(value):
        raise click.BadParameter(f"{value!r} is not an empty folder: nothing is overwritten, so choose another")
    return value


@click.command("demo")
@click.argument("document", required=False, type=click.Path())
@click.option(
    "--folder",
    metavar="DIR",
    type=click.Path(),
    callback=_folder,
    help="Where to write the files: a new or empty folder. Default: scalekeeper-demo, with a number if that exists.",
)
@click.option(
    "--steps",
    metavar="N",
    type=click.IntRange(2, 100_000),
    default=_STEPS,
    help=f"Training steps; the model is saved after half of them. Default: {_STEPS}.",
)
@click.option(
    "--format",
    "only",
    multiple=True,
    type=FormatChoice("run_name"),
    help="Save in this format. May be repeated. Default: all that the installed TensorFlow has.",
)
@document_options
@json_option
def demo_command(
    document: Optional[str],
    folder: Optional[str],
    steps: int,
    only: Tuple[str, ...],
    overrides: Any,
    access: Any,
    as_json: bool,
) -> None:
    """Train a small mixed_float16 model, save it in every format, resume it in new processes, and compare to the bit.

    DOCUMENT is a YAML or JSON document with an optimizer and a loss scale; without it, a bundled one is used. All files
    and a plot are written to a folder. It runs on the CPU and needs no network. Exit code 1 if a resumed run differs
    from the uninterrupted one.
    """
    from ...simulation._plot import require_matplotlib
    from .._demo import demo_run, plot
    from .._demo.screen import Screen

    quiet_tensorflow()  # in this process and in those that it starts
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # a GPU may add in any order, so its results may differ in the last bit
    text, extension, label = _read(demo_run.BUNDLED if document is None else document, access, overrides)
    with silenced():
        versions = demo_run.versions()
        require_matplotlib()
        folder = folder or demo_run.new_folder()
        request = demo_run.Request(text, extension, folder, steps, access.imports.patterns, only)
        screen, installed = Screen(request, as_json), ", ".join(" ".join(each) for each in versions.items())
        screen.begin(installed, label, document)
        with screen:
            outcome = demo_run.run(request, screen)
        picture = os.path.join(request.folder, "loss_scale.png")
        plot.draw(outcome, request.half, picture, f"scalekeeper demo: {label}, {installed}")
    if as_json:
        click.echo(json.dumps(_for_json(request, label, versions, outcome, picture), indent=2))
    else:
        screen.end(outcome, picture)
    if not outcome.is_equal:
        raise click.exceptions.Exit(1)


def _read(path: str, access: Any, overrides: Any) -> Tuple[str, str, str]:
    """Return the text of a valid document, the extension of its name, and a short description.

    A document with included files, overrides or references becomes one without them.
    """
    from ...registry import DocumentError, _document_files, _documents, target
    from ...registry._resolved_view import yaml_text

    try:
        with silenced():  # the policy of a user may import TensorFlow
            source = _document_files.source_at(path)
            nodes = _documents.resolved(source, access, overrides)
            document = _documents.check_nodes(nodes, target(), access, source.name)
    except DocumentError as error:
        print_problems(error)
        raise click.exceptions.Exit(1) from None
    label = f"{document.optimizer.name} with {type(document.loss_scale).__name__}"
    values = nodes.plain()
    if _document_files.parsed(source, _document_files.is_json(source)).plain() == values:
        return source.text, os.path.splitext(path)[1], label
    return "".join(f"{yaml_text(key)}: {yaml_text(value)}\n" for key, value in values.items()), ".yaml", label


def _for_json(request: Any, label: str, versions: Dict[str, str], outcome: Any, picture: str) -> Dict[str, Any]:
    return {
        "equal": outcome.is_equal,
        "versions": versions,
        "document": label,
        "folder": request.folder,
        "picture": picture,
        "steps": request.steps,
        "saved_after": request.half,
        "skipped": [step.number for step in outcome.taken if step.is_skipped],
        "scale": float(outcome.record["scale"]),
        "continuations": [
            {
                "format": each.format.title,
                "files": list(each.format.files),
                "bytes": each.size,
                "loaded_with": each.format.loaded_with,
                "scale": each.scale,
                "equal": each.is_equal,
                "different": [] if each.comparison is None else each.comparison.different,
                "largest_difference": None if each.comparison is None else each.comparison.largest,
                "failed": each.messages or None,
                "seconds": round(each.seconds, 2),
            }
            for each in outcome.continuations
        ],
    }
