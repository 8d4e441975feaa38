"""Options that several commands share, and how their values are read."""

import os
import re
import sys
from collections.abc import Callable, Sequence
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


def whole(least: int, most: int | None = None) -> Callable[[object], int]:
    """Return a parser of whole numbers, written in the digits 0 to 9 and nothing else: Python's own int() also takes
    1_000, " 5 " and the digits of other scripts.
    """
    span = f"from {least} to {most}" if most is not None else f"of at least {least}"

    def number(given: object) -> int:  # the default is given too, as a number
        text = str(given)
        found = int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None
        if found is None or found < least or (most is not None and found > most):
            raise typer.BadParameter(f"{text!r} is not a whole number {span}")
        return found

    return number


def seconds(least: float, most: float) -> Callable[[object], float]:
    """Return a parser of seconds: digits with or without a decimal point, so neither nan nor 1e3."""

    def number(given: object) -> float:
        text = str(given)
        found = float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9}", text) else None
        if found is None or not least <= found <= most:
            raise typer.BadParameter(f"{text!r} is not a number of seconds from {least:g} to {most:g}")
        return found

    return number


def partition_numbers(words: Sequence[str] | None) -> list[int] | None:
    """Return the numbers of `-p 1 -p 2` or `-p 1,2`, each once; None: the option was not given."""
    numbers = [whole(1)(word.strip()) for words_ in words or () for word in words_.split(",")]
    return list(dict.fromkeys(numbers)) or None


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
_SECTOR_SIZES = ("sector_size", "physical_sector_size")


def _ordered_sectors(context: typer.Context, option: typer.CallbackParam, given: int | None) -> int | None:
    """Return the size; called for either option, and by the later one with the other in the context.

    Raises BadParameter where the physical sector would be smaller than the logical one.
    """
    logical, physical = (given if option.name == name else context.params.get(name) for name in _SECTOR_SIZES)
    if logical and physical and physical < logical:
        raise typer.BadParameter(
            f"physical sectors of {physical} bytes cannot be smaller than logical sectors of {logical} bytes"
        )
    return given


WakeOption = Annotated[bool, typer.Option("--wake", help="Also read disks that are asleep.")]
TimeoutOption = Annotated[
    float,
    typer.Option("--timeout", parser=seconds(0.1, 3600), metavar="SECONDS",
                 help="How long a disk may take for an answer; then the others are looked at without it."),
]  # fmt: skip
SectorOption = Annotated[
    int | None,
    typer.Option("--sector-size", parser=sector, callback=_ordered_sectors, metavar="SIZE", rich_help_panel=_GEOMETRY,
                 help="Logical sector size, such as 4096."),
]  # fmt: skip
PhysicalOption = Annotated[
    int | None,
    typer.Option("--physical-sector-size", parser=sector, callback=_ordered_sectors, metavar="SIZE",
                 rich_help_panel=_GEOMETRY,
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
