"""``scalekeeper schema``: what an editor needs to complete and check documents."""

from typing import Any

import json

import click

from .options import target_option


@click.command("schema")
@target_option
def schema_command(target: Any) -> None:
    """Print the JSON Schema (2020-12) of a document."""
    from ..registry.schema import document_schema

    click.echo(json.dumps(document_schema(target), indent=2))
