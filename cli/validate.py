"""``scalekeeper validate``: whether documents hold what they should, without TensorFlow."""

from typing import Any, Dict, List, Optional, Tuple

import json
import sys

import click

from .options import allow_option, json_option, target_option


@click.command("validate")
@click.argument("files", nargs=-1, required=True, metavar="FILE…", type=click.Path())
@target_option
@allow_option
@json_option
def validate_command(files: Tuple[str, ...], target: Any, allow: Any, as_json: bool) -> None:
    """Check YAML or JSON documents; "-" reads standard input. Exit code 1 if any of them is wrong."""
    from ..registry.documents import DocumentError

    if allow.patterns:
        sys.path.insert(0, "")
    results: List[Dict[str, Any]] = []
    for name in files:
        document, error = None, None  # type: Any, Optional[DocumentError]
        try:
            document = _check(name, target, allow)
        except DocumentError as caught:
            error = caught
        if as_json:
            results.append(_result(name, error))
        elif error is not None:
            click.echo(str(error).encode("utf-8", "replace").decode("utf-8"), err=True)
        else:
            scale = type(document.loss_scale).__name__
            click.echo("{}: ok ({} with {}, for {})".format(click.format_filename(name), document.optimizer.name, scale, target))
        if error is not None and not as_json:
            results.append({"valid": False})
    if as_json:
        click.echo(json.dumps({"target": target.name, "files": results}, indent=2))
    if any(not result["valid"] for result in results):
        raise click.exceptions.Exit(1)


def _check(name: str, target: Any, allow: Any) -> Any:
    from ..registry import documents

    if name == "-":
        data = sys.stdin.buffer.read(documents.MAX_BYTES + 1)
        return documents.check_text(documents.source_of("<stdin>", data), target, allow)
    return documents.check_text(documents.source_at(name), target, allow)


def _result(name: str, error: Any) -> Dict[str, Any]:
    problems = [
        {
            "line": finding.place.line if finding.place else None,
            "column": finding.place.column if finding.place else None,
            "path": list(finding.problem.path),
            "kind": finding.problem.kind,
            "message": finding.problem.message,
        }
        for finding in (error.findings if error is not None else ())
    ]
    return {"file": name, "valid": error is None, "problems": problems}
