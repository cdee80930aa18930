"""The command and its subcommands. Wrong input ends in a message and an exit code.

Exit codes: 0 success, 1 wrong input, 2 wrong usage.
"""

from typing import Any

import io
import sys

import click

from ._commands.check import check_command
from ._commands.completion import completion_command
from ._commands.convert import convert_command
from ._commands.demo import demo_command
from ._commands.doctor import doctor_command
from ._commands.inspect import inspect_command
from ._commands.list import list_command
from ._commands.recommend import recommend_command
from ._commands.schema import schema_command
from ._commands.show import show_command
from ._commands.simulate import simulate_command
from ._commands.validate import validate_command
from ._commands.verify import verify_command


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        from ..registry.errors import ScalekeeperError

        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # a name in a file may have letters that the terminal lacks
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except ScalekeeperError as error:
            raise click.ClickException(str(error)) from error
        except OSError as error:  # for example a missing file, no permission, a full disk
            raise click.ClickException(str(error)) from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="scalekeeper", prog_name="scalekeeper")
def main() -> None:
    """Loss scaling for TensorFlow and Keras: policies as configuration, state that is never lost.

    \f
    It is a group of click, which :func:`run` calls.

    Example:
        >>> from click.testing import CliRunner
        >>> from scalekeeper.cli import main
        >>> CliRunner().invoke(main, ["--version"]).exit_code
        0
    """


main.add_command(check_command)
main.add_command(completion_command)
main.add_command(convert_command)
main.add_command(demo_command)
main.add_command(doctor_command)
main.add_command(inspect_command)
main.add_command(list_command)
main.add_command(recommend_command)
main.add_command(schema_command)
main.add_command(show_command)
main.add_command(simulate_command)
main.add_command(validate_command)
main.add_command(verify_command)
