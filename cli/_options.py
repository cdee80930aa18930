"""Options that several subcommands share."""

from typing import Any, Optional, Tuple

import functools
import sys

import click

from ._commands.completion import complete_targets


def read_target(context: click.Context, parameter: click.Parameter, value: Optional[str]) -> Any:
    """Return the target of an option; of no option, that of the installed TensorFlow, or None for --diff-target."""
    from ..registry import UnknownTargetError, target

    if value is None and parameter.name != "target":
        return None

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


def _overrides(context: click.Context, parameter: click.Parameter, value: Tuple[str, ...]) -> Any:
    from ..registry import DocumentError
    from ..registry._overrides import parsed_overrides

    try:
        return parsed_overrides(value)
    except DocumentError as error:
        raise click.BadParameter(str(error)) from None


def _variables(context: click.Context, parameter: click.Parameter, value: Tuple[str, ...]) -> Any:
    from ..registry import ArgumentError
    from ..registry._references import allowed_variables

    try:
        return allowed_variables(value)
    except ArgumentError as error:
        raise click.BadParameter(str(error)) from None


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
    callback=read_target,
    shell_complete=complete_targets,
    help="The target TensorFlow: 2.0 to 2.21, 2.16-tf_keras …, tf_keras, keras3. Default: the installed one, or else "
    "the newest.",
)
_allow_option = click.option(
    "--allow",
    metavar="P",
    multiple=True,
    callback=_allow,
    help="An import path that a document may use: package.module:Class, or package.* for a whole package. The current "
    "folder is then on the import path. May be repeated.",
)
_set_option = click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_overrides,
    help="Set a value of the document, such as loss_scale.increment_period=100 or loss_scale=dynamic/pytorch; "
    "~loss_scale.maximum deletes one. VALUE is a YAML scalar, {…} or […]. May be repeated.",
)
_allow_include_option = click.option(
    "--allow-include",
    "folders",
    metavar="FOLDER",
    multiple=True,
    type=click.Path(),
    help="A folder from which a document may include files, besides its own. May be repeated.",
)
_allow_env_option = click.option(
    "--allow-env",
    "variables",
    metavar="NAME",
    multiple=True,
    callback=_variables,
    help="An environment variable that a document may refer to as ${env:NAME}. May be repeated.",
)


def document_options(command: Any) -> Any:
    """Add the options of a command that reads documents. It gets ``overrides`` and ``access``."""

    @functools.wraps(command)
    def with_access(allow: Any, folders: Tuple[str, ...], variables: Any, **options: Any) -> Any:
        from ..registry._documents import Access

        search_current_folder(allow)
        return command(access=Access(allow, folders, variables), **options)

    for option in (_allow_env_option, _allow_include_option, _allow_option, _set_option):
        with_access = option(with_access)
    return with_access


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
limit_option = click.option(
    "--limit",
    metavar="L",
    type=float,
    callback=positive,
    help="The largest representable gradient. Default: that of the trace, or 65504 (float16).",
)
