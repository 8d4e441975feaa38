"""`aligntool trace LOG`: a log of commands, and what it says of the load."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from aligntool.cli.options import colored, grid, size, terminal_width, whole
from aligntool.errors import Refused

if TYPE_CHECKING:
    from aligntool.audit import Judged
    from aligntool.trace import Boundary


class LogOrCommand(TyperGroup):
    """`trace LOG` is `trace read LOG`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override] # click's Context
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["read", *args]
        return super().parse_args(ctx, args)


trace_app = typer.Typer(
    name="trace",
    cls=LogOrCommand,
    help="Tell what a drive was asked, of a log or while a command runs; `trace LOG` is `trace read LOG`.\n\n"
    "Example: aligntool trace boot.blkparse --grid 4KiB",
    no_args_is_help=True,
)


class TraceFormat(StrEnum):
    AUTO = "auto"
    BLKPARSE = "blkparse"
    IOLOG = "iolog"
    CSV = "csv"


def phase(text: str) -> int:
    """Bytes past zero, or a usage error; 0 is the usual one."""
    return 0 if text.strip() == "0" else size(text)


_GRID = "Alignment"


@trace_app.command("read")
def trace(
    log: Annotated[
        str, typer.Argument(metavar="LOG", help="Text of blkparse, a blktrace file, an iolog of fio, CSV; - for stdin.")
    ],
    *,
    format_: Annotated[TraceFormat, typer.Option("--format", help="Which format it has.")] = TraceFormat.AUTO,
    grid_: Annotated[
        int | None, typer.Option("--grid", parser=grid, metavar="SIZE", rich_help_panel=_GRID,
                                 help="Hold the requests against boundaries of this size, such as 4KiB.")
    ] = None,
    phase_: Annotated[
        int | None, typer.Option("--phase", parser=phase, metavar="N", rich_help_panel=_GRID,
                          help="How many bytes past zero the boundaries of --grid begin.")
    ] = None,
    disk: Annotated[
        str | None, typer.Option("--disk", metavar="DISK", rich_help_panel=_GRID,
                                 help="Hold them against the boundaries of this disk, as the audit finds them.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", parser=whole(1), metavar="N", rich_help_panel=_GRID,
                                 help="The log counts from the start of this partition of --disk.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="As JSON; sizes are bytes.")] = False,
) -> None:  # fmt: skip
    """Tell what a log of commands says: sequential or random, how large, how deep the queue, how much off the grid.

    Example: aligntool trace read boot.blkparse --grid 4KiB
    """
    from aligntool.probe.logs import LogFormat, open_log
    from aligntool.trace import read_pattern

    boundaries = boundaries_of(grid_, phase_, disk, partition)
    form = None if format_ is TraceFormat.AUTO else LogFormat(format_.value)
    with open_log(log, form) as opened:
        pattern = read_pattern(opened.events, boundaries)
    if json_:
        from aligntool.render.trace import trace_json

        sys.stdout.write(trace_json(pattern, opened.form))
        return
    from aligntool.render.lines import show
    from aligntool.render.trace import trace_lines

    show(trace_lines(pattern, opened.name, opened.form, width=terminal_width()), sys.stdout, color=colored())


def boundaries_of(
    grid_: int | None, phase_: int | None, disk: str | None, partition: int | None
) -> "Sequence[Boundary]":
    """Given, audited, or none. A partition's start is taken off, so that the grid counts as the log does."""
    from aligntool.trace import Boundary

    if grid_ is not None and disk is not None:
        raise typer.BadParameter("--grid and --disk contradict each other")
    if phase_ is not None and grid_ is None:
        raise typer.BadParameter("--phase needs --grid")
    if partition is not None and disk is None:
        raise typer.BadParameter("--partition needs --disk")
    if grid_ is not None:
        return (Boundary("given", grid_, (phase_ or 0) % grid_),)
    if disk is None:
        return ()
    from aligntool.audit import Severity

    judged = _judged(disk)
    start = _start(judged, partition)
    return tuple(
        Boundary(f"{one.kind.value}, {one.source.value}", one.size, (one.phase - start) % one.size)
        for one in judged.grids
        if one.severity is not Severity.INFO
    )


def _judged(disk: str) -> "Judged":
    from aligntool.audit import Wishes, audit
    from aligntool.cli.audit import known_of
    from aligntool.probe.look import look

    inventory = look((disk,))
    return audit(inventory, known_of(inventory), Wishes()).judged[0]


def _start(judged: "Judged", number: int | None) -> int:
    """Of the partition, in bytes. Raises Refused when it is not there."""
    if number is None:
        return 0
    found = next((part for part in judged.disk.partitions if part.number == number), None)
    if found is None:
        raise Refused(
            f"{judged.disk.name} has no partition {number}", hint="aligntool audit shows those it has"
        )
    return found.extent.start
