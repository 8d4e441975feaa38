"""The command line with every command loaded, for tests of options."""

from typing import Any

import typer

from aligntool.cli.app import LateCommand, app


def whole_program() -> Any:
    """Return the root group with all commands below it loaded."""
    return _loaded(typer.main.get_command(app))


def _loaded(group: Any) -> Any:
    for name, command in list(group.commands.items()):
        late = isinstance(command, LateCommand)
        group.commands[name] = command.load() if late else _loaded(command)
    return group
