"""Options that several commands share, and how their values are read."""

import os
import sys
from typing import Annotated

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


def place(text: str) -> str:
    """A folder to mount at, as the kernel names it: no slash at the end, no links on the way. Other words stay."""
    return os.path.realpath(text) if text.startswith("/") else text


def terminal_width() -> int:
    """Columns of the terminal; 80 in a pipe, unless COLUMNS says otherwise."""
    import shutil

    return max(shutil.get_terminal_size((80, 24)).columns, 40)


def colored() -> bool:
    from aligntool.render.lines import wants_color

    return wants_color(sys.stdout, dict(os.environ))


_GEOMETRY = "Geometry, where the device does not say"

TargetsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="TARGET", help="Devices or disk image files; none: every disk of this machine."),
]
WakeOption = Annotated[bool, typer.Option("--wake", help="Also read disks that are asleep.")]
SectorOption = Annotated[
    int | None,
    typer.Option("--sector-size", parser=sector, metavar="SIZE", rich_help_panel=_GEOMETRY,
                 help="Logical sector size, such as 4096."),
]  # fmt: skip
PhysicalOption = Annotated[
    int | None,
    typer.Option("--physical-sector-size", parser=sector, metavar="SIZE", rich_help_panel=_GEOMETRY,
                 help="Physical sector size; image files are assumed to have 4096."),
]  # fmt: skip
PageOption = Annotated[
    int | None,
    typer.Option("--page-size", parser=grid, metavar="SIZE", rich_help_panel=_GEOMETRY,
                 help="NAND page or internal unit, such as 16KiB."),
]  # fmt: skip
WishedGrainOption = Annotated[
    int | None,
    typer.Option("--grain", parser=grid, metavar="SIZE", rich_help_panel=_GEOMETRY,
                 help="Boundary that partitions should start on; 1MiB unless said."),
]  # fmt: skip
MeasuredOption = Annotated[
    list[str] | None,
    typer.Option("--measured", metavar="FILE", rich_help_panel=_GEOMETRY,
                 help="Hold the disk against what `aligntool probe -o FILE` measured on it."),
]  # fmt: skip
