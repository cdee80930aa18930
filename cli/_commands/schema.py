"""``scalekeeper schema``: print the JSON Schema of documents."""

from typing import Any, Optional

import json
import os

import click

from .._options import target_option


@click.command("schema")
@target_option
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write it to a file, and print the line with which editors find it.",
)
def schema_command(target: Any, output: Optional[str]) -> None:
    """Print the JSON Schema (2020-12) of a document."""
    from ...registry._schema import document_schema

    text = json.dumps(document_schema(target), indent=2)
    if output is None:
        click.echo(text)
        return
    from ...serialization._atomic import replacing

    with replacing(output) as path, open(path, "w", encoding="utf-8", newline="\n") as stream:
        stream.write(text + "\n")
    name = os.path.basename(output)
    click.echo(f"{click.format_filename(output)}: the schema of a document for {target}")
    click.echo("An editor checks and completes a document beside it that begins with the line")
    click.echo(f"  YAML: # yaml-language-server: $schema={name}")
    click.echo(f'  JSON: {{"$schema": "{name}", …')
