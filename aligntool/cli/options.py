"""Options that several commands share, and how their values are read."""

import os
import sys

import typer

from aligntool.units import is_power_of_two, parse_size


def size(text: str) -> int:
    """ "4KiB" -> 4096, or a usage error that says how to write it."""
    try:
        number = parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if number <= 0:
        raise typer.BadParameter(f"{text!r} is too small")
    return number


def sector(text: str) -> int:
    """A sector size: a power of two from 512 bytes to 64 KiB."""
    number = size(text)
    if not is_power_of_two(number) or not 512 <= number <= 65536:
        raise typer.BadParameter(f"{text!r} is no sector size; 512 and 4096 are the usual ones")
    return number


def grid(text: str) -> int:
    """A page or grain: a multiple of 512 bytes."""
    number = size(text)
    if number % 512 or number > 1 << 40:
        raise typer.BadParameter(f"{text!r} is no multiple of 512 bytes that a disk could have")
    return number


def terminal_width() -> int:
    """Columns of the terminal; 80 in a pipe, unless COLUMNS says otherwise."""
    import shutil

    return max(shutil.get_terminal_size((80, 24)).columns, 40)


def colored() -> bool:
    from aligntool.render.lines import wants_color

    return wants_color(sys.stdout, dict(os.environ))
