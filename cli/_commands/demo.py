"""``scalekeeper demo``: from a document to a trained model that was saved in every format, and went on from each."""

from typing import Any, Dict, Optional, Tuple

import json
import os

import click

from .._options import allow_option, json_option, search_current_folder
from .._quiet import quiet_tensorflow, silenced
from .validate import say_wrong

_STEPS = 400


def _folder(context: click.Context, parameter: click.Parameter, value: Optional[str]) -> Optional[str]:
    from .._demo import folder_layout

    if value is not None and not folder_layout.is_free(value):
        raise click.BadParameter(f"{value!r} is not an empty folder: nothing is overwritten, so choose another")
    return value


@click.command("demo")
@click.argument("document", required=False, type=click.Path())
@click.option(
    "--folder",
    metavar="DIR",
    type=click.Path(),
    callback=_folder,
    help="Where to leave the files: a new folder or an empty one. Default: scalekeeper-demo, with a number if that is "
    "there.",
)
@click.option(
    "--steps",
    metavar="N",
    type=click.IntRange(2, 100_000),
    default=_STEPS,
    help=f"Of training; the model is saved after half of them. Default: {_STEPS}.",
)
@click.option(
    "--format",
    "only",
    multiple=True,
    type=click.Choice(["h5", "saved_model", "keras", "checkpoint", "state", "config"]),
    help="Save in this format. May be repeated. Default: all that the installed TensorFlow has.",
)
@allow_option
@json_option
def demo_command(
    document: Optional[str], folder: Optional[str], steps: int, only: Tuple[str, ...], allow: Any, as_json: bool
) -> None:
    """Train a small mixed_float16 model, save it in every format, go on in new processes, and compare to the bit.

    DOCUMENT is a YAML or JSON document with an optimizer and a loss scale; without it, a bundled one is used. All files
    and a picture are left in a folder. It runs on the CPU and needs no network. Exit code 1 if a continuation differs
    from the run that was not interrupted.
    """
    from ...simulation._plot import require_matplotlib
    from .._demo import demo_run, folder_layout, plot
    from .._demo.screen import Screen, for_title

    search_current_folder(allow)
    _prepare_environment()
    text, ending, label = _checked(document, allow)
    screen = Screen(is_quiet=as_json)
    with silenced():
        demo_run.require_tensorflow()
        require_matplotlib()
        request = demo_run.Request(text, ending, folder or folder_layout.new_folder(), steps, allow.patterns, only)
        versions = demo_run.versions()
        screen.begin(versions, label, document, request.folder)
        try:
            with screen.watching(request) as watch:
                outcome = demo_run.run(request, watch)
        except KeyboardInterrupt:
            screen.interrupted(request.folder)
            raise
        drawn = os.path.join(request.folder, folder_layout.PICTURE)
        plot.draw(outcome, drawn, for_title(label, versions))
    if as_json:
        click.echo(json.dumps(_for_json(request, label, versions, outcome, drawn), indent=2))
    else:
        screen.end(request, outcome, drawn)
    if not outcome.is_equal:
        raise click.exceptions.Exit(1)


def _checked(path: Optional[str], allow: Any) -> Tuple[str, str, str]:
    """The text of the document, the ending of its name, and what it is in short."""
    from ...registry import _documents, target
    from .._demo import folder_layout

    given = folder_layout.BUNDLED if path is None else path
    try:
        with silenced():  # a policy of the user's own may import TensorFlow
            source = _documents.source_at(given)
            document = _documents.check_text(source, target(), allow)
    except _documents.DocumentError as error:
        say_wrong(error)
        raise click.exceptions.Exit(1) from None
    label = f"{document.optimizer.name} with {type(document.loss_scale).__name__}"
    return source.text, os.path.splitext(given)[1], label


def _prepare_environment() -> None:
    """Of this process and of those that it starts, before TensorFlow is imported."""
    quiet_tensorflow()
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # a GPU may add up in any order, and equal to the bit is the promise


def _for_json(request: Any, label: str, versions: Dict[str, str], outcome: Any, drawn: str) -> Dict[str, Any]:
    return {
        "equal": outcome.is_equal,
        "versions": versions,
        "document": label,
        "folder": request.folder,
        "picture": drawn,
        "steps": request.steps,
        "saved_after": request.half,
        "skipped": [step.number for step in outcome.taken if step.is_skipped],
        "scale": float(outcome.record["scale"]),
        "continuations": [
            {
                "format": each.title,
                "files": list(each.files),
                "bytes": each.size,
                "loaded_with": each.loaded_with,
                "scale": each.scale,
                "equal": each.is_equal,
                "different": [] if each.comparison is None else each.comparison.different,
                "largest_difference": None if each.comparison is None else each.comparison.largest,
                "failed": each.said or None,
                "seconds": round(each.seconds, 2),
            }
            for each in outcome.continuations
        ],
    }
