"""``scalekeeper validate``: check documents without TensorFlow."""

from typing import Any, Dict, Tuple

import json
import sys

import click

from .._options import document_options, json_option, target_option


@click.command("validate")
@click.argument("files", nargs=-1, required=True, metavar="FILE…", type=click.Path())
@target_option
@document_options
@json_option
def validate_command(files: Tuple[str, ...], target: Any, overrides: Any, access: Any, as_json: bool) -> None:
    """Check YAML or JSON documents; "-" reads standard input. Exit code 1 if one is not valid."""
    outcomes = []
    for name in files:
        document, error = _check(name, target, access, overrides)
        outcomes.append((name, error))
        if as_json:
            continue
        if error is not None:
            print_problems(error)
        else:
            found = f"{document.optimizer.name} with {type(document.loss_scale).__name__}"
            click.echo(f"{click.format_filename(name)}: ok ({found}, for {target})")
    if as_json:
        results = [_result(name, error) for name, error in outcomes]
        click.echo(json.dumps({"target": target.name, "files": results}, indent=2))
    if any(error is not None for _, error in outcomes):
        raise click.exceptions.Exit(1)


def print_problems(error: Any) -> None:
    """Print the problems of a document with their positions."""
    click.echo(str(error).encode("utf-8", "replace").decode("utf-8"), err=True)


def source_named(name: str) -> Any:
    """Return the text of a file, or of standard input for ``-``."""
    from ...registry import _document_files
    from ...registry._document_parser import MAX_BYTES

    if name == "-":
        return _document_files.source_of("<stdin>", sys.stdin.buffer.read(MAX_BYTES + 1))
    return _document_files.source_at(name)


def _check(name: str, target: Any, access: Any, overrides: Any) -> Tuple[Any, Any]:
    """Return the document and None, or None and the error."""
    from ...registry import DocumentError, _documents

    try:
        return _documents.check_text(source_named(name), target, access, overrides), None
    except DocumentError as error:
        return None, error


def _result(name: str, error: Any) -> Dict[str, Any]:
    problems = [
        {
            "file": finding.source or name,
            "line": finding.place.line if finding.place else None,
            "column": finding.place.column if finding.place else None,
            "path": list(finding.problem.path),
            "kind": finding.problem.kind,
            "message": finding.problem.message,
        }
        for finding in (error.findings if error is not None else ())
    ]
    return {"file": name, "valid": error is None, "problems": problems}
