"""`aligntool tui`: browse disks, verdicts, plans and moves in a full-screen interface."""

import sys
from importlib import import_module

from aligntool.cli import options
from aligntool.errors import Refused, Stopped
from aligntool.linux.applying import recovery_commands


def tui(targets: options.TargetsArgument = None, *, rate: options.RateOption = None) -> None:
    """Browse disks, verdicts, plans and moves in a full-screen interface.

    It runs the other commands, and asks before a move as they do. It needs Textual, but no mouse.

    Example: sudo aligntool tui

    Exit code: 0 quit, 3 no Textual or no terminal, 4 a move that was started here is still in flight.
    """
    # Textual draws on stderr
    if not all(stream and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise Refused("the tui command needs a terminal", hint="sudo aligntool audit")
    try:
        screens = import_module("aligntool.cli.screens")
    except ImportError as error:
        hint = "install the package python3-textual (Arch: python-textual, pip: textual)"
        text = f"the tui command needs Textual 2.1 or newer, which is not installed: {error}"
        raise Refused(
            text, hint=f"{hint}\nsudo aligntool audit", code="not-installed", subject="textual"
        ) from error
    for disk, words in screens.run(tuple(targets or ()), rate).items():
        raise Stopped(words, hint=recovery_commands(disk))
