"""The commands of docs/command_line.md, from click's own description of them."""

from typing import Any, Dict, List

import click

from scalekeeper.cli._main import main


def parts_of_page() -> Dict[str, str]:
    """Name → text of each marked part."""
    return {"commands": "\n".join(section(name, command) for name, command in sorted(main.commands.items()))}


def section(name: str, command: Any) -> str:
    """Return the section on a command: its purpose, how it is called, its options."""
    context = click.Context(command, info_name=f"scalekeeper {name}")
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    rows = [row for row in (option_row(each, context) for each in command.params) if row]
    table = ["| option | what it does |", "| --- | --- |", *rows] if rows else []
    return "\n".join([f"## {name}", "", f"`{usage}`", "", described(command), "", *table, ""])


def described(command: Any) -> str:
    """The command's help: its paragraphs, each on one line."""
    text = (command.help or "").partition("\f")[0].replace("\b\n", "")
    paragraphs = [" ".join(line.strip() for line in each.splitlines()) for each in text.split("\n\n")]
    return "\n\n".join(each for each in paragraphs if each)


def option_row(option: Any, context: Any) -> str:
    """Arguments stand in the usage; an option has its spellings, and what it does."""
    if not isinstance(option, click.Option) or option.hidden:
        return ""
    spelled, said = option.get_help_record(context)
    if isinstance(option.type, click.Choice):  # a bar would end the table's cell
        spelled = spelled.partition("[")[0].strip()
        said += f" One of {', '.join(f'`{each}`' for each in option.type.choices)}."
    names: List[str] = spelled.split(", ")
    return f"| {', '.join(f'`{each.strip()}`' for each in names)} | {said} |"
