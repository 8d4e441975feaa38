"""`aligntool drives`: what the drive database knows of a model."""

import sys
from typing import Annotated

import typer

from aligntool.cli.options import colored, terminal_width
from aligntool.errors import Refused


def drives(
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="As the kernel or the label prints it; none: list every row."),
    ] = None,
    *,
    firmware: Annotated[
        str | None, typer.Option("--firmware", help="Firmware revision, where it decides.")
    ] = None,
) -> None:
    """Show what is known of a drive, with the source of every fact.

    Example: aligntool drives WD20EARS
    """
    from aligntool.recipe import load_drives
    from aligntool.render.drives import drive_lines, row_lines
    from aligntool.render.lines import show

    database = load_drives()
    if model is None:
        show(row_lines([row.geometry for row in database.rows]), sys.stdout, color=colored())
        return
    found = database.search(model, firmware=firmware)
    if not found:
        raise Refused(f"the drive database has no row for {model!r}", hint="aligntool drives lists every row")
    show(drive_lines(found, width=terminal_width()), sys.stdout, color=colored())
