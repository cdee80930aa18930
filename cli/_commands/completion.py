"""``scalekeeper completion``: print the completion script of a shell."""

from typing import List, Optional

import os

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", metavar=f"[{'|'.join(_SHELLS)}]", type=click.Choice(_SHELLS), required=False)
@click.pass_context
def completion_command(context: click.Context, shell: Optional[str]) -> None:
    """Print the script that completes commands, options, policies and targets in a shell.

    SHELL is bash, zsh or fish; without it, the variable SHELL decides. For every new shell,
    put this into ~/.bashrc, or ~/.zshrc with zsh: eval "$(scalekeeper completion bash)"; with fish, write the output to
    ~/.config/fish/completions/scalekeeper.fish.
    """
    name = shell or os.path.basename(os.environ.get("SHELL", ""))
    complete = get_completion_class(name) if name in _SHELLS else None
    if complete is None:
        raise click.UsageError(f"{name or 'no shell'} is in SHELL; say which one: {', '.join(_SHELLS)}")
    click.echo(complete(context.find_root().command, {}, "scalekeeper", "_SCALEKEEPER_COMPLETE").source())


def complete_policies(context: click.Context, parameter: click.Parameter, incomplete: str) -> List[str]:
    """Return the names of policies with a prefix."""
    from ...registry._plugins import loss_scales

    names = [name for row in loss_scales.listing() if row.plugin for name in (row.name, *row.plugin.aliases)]
    return [name for name in names if name.startswith(incomplete)]


def complete_targets(context: click.Context, parameter: click.Parameter, incomplete: str) -> List[str]:
    """Return the names of targets with a prefix."""
    from ...registry._targets import KERAS_3, TF_KERAS, known_targets

    names = [*(each.name for each in known_targets()), TF_KERAS, KERAS_3]
    return [name for name in names if name.startswith(incomplete)]
