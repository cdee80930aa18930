"""Options that several subcommands share."""

from typing import Any, Optional, Tuple

import sys

import click

from ._commands.completion import complete_targets


def _target(context: click.Context, parameter: click.Parameter, value: Optional[str]) -> Any:
    from ..registry import UnknownTargetError, target

    try:
        return target(value)
    except UnknownTargetError as error:
        raise click.BadParameter(str(error)) from None


def _allow(context: click.Context, parameter: click.Parameter, value: Tuple[str, ...]) -> Any:
    from ..registry._import_paths import AllowList

    try:
        return AllowList(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


class FormatChoice(click.Choice):  # type: ignore[type-arg]
    """The registered formats by an attribute of their codecs, read when the option is used: this imports h5py."""

    def __init__(self, attribute: str) -> None:
        self.attribute = attribute
        self.case_sensitive = True

    @property
    def choices(self) -> Tuple[str, ...]:  # type: ignore[override]
        from ..serialization.formats import formats

        return tuple(getattr(codec, self.attribute) for codec in formats())


def positive(context: click.Context, parameter: click.Parameter, value: Optional[float]) -> Optional[float]:
    """Check an option for a loss scale or a magnitude."""
    if value is not None and not 1e-30 <= value <= 1e30:  # NaN too
        raise click.BadParameter("must be a number between 1e-30 and 1e30")
    return value


def search_current_folder(allow: Any) -> None:
    """Add the current folder to the import path if imports are allowed."""
    if allow.patterns:
        sys.path.append("")  # last, so that a file there replaces no other module


target_option = click.option(
    "--target",
    metavar="V",
    callback=_target,
    shell_complete=complete_targets,
    help="The target TensorFlow: 2.0 to 2.21, 2.16-tf_keras …, tf_keras, keras3. Default: the installed one, or else "
    "the newest.",
)
allow_option = click.option(
    "--allow",
    metavar="P",
    multiple=True,
    callback=_allow,
    help="An import path that a document may use: package.module:Class, or package.* for a whole package. The current "
    "folder is then on the import path. May be repeated.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
limit_option = click.option(
    "--limit",
    metavar="L",
    type=float,
    callback=positive,
    help="The largest representable gradient. Default: that of the trace, or 65504 (float16).",
)
