"""`aligntool status`, `resume`, `rollback`: a disk in flight, from the disk alone."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from aligntool.cli.options import colored, terminal_width
from aligntool.cli.plan import DiskArgument
from aligntool.cli.realign import EventsOption, RateOption
from aligntool.errors import Refused
from aligntool.units import KIB

if TYPE_CHECKING:
    from aligntool.apply.recovery import Status
    from aligntool.plan import Plan

_LEAST = 64 * KIB  # bytes; the tables alone take more than half of it

JournalFileOption = Annotated[
    str | None,
    typer.Option("--journal", metavar="FILE", help="The journal's file, where it was put on another disk."),
]


def status(
    disk: DiskArgument,
    *,
    journal: JournalFileOption = None,
    json_: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Tell whether a move is in flight on a disk, how far it came, and what to type. Writes nothing.

    Example: sudo aligntool status /dev/sda
    """
    from aligntool.render.lines import show
    from aligntool.render.status import status_json, status_lines

    found = _standing(disk, journal)
    following = _next(found, disk, journal)
    if json_:
        sys.stdout.write(status_json(disk, found, type_next=following))
        return
    show(status_lines(disk, found, width=terminal_width(), type_next=following), sys.stdout, color=colored())


def resume(
    disk: DiskArgument,
    *,
    journal: JournalFileOption = None,
    rate: RateOption = None,
    json_: EventsOption = False,
) -> None:
    """Finish a move that was interrupted, from the disk alone, on any machine.

    Example: sudo aligntool resume /dev/sda

    Exit code: 0 the disk is in its new state, 3 nothing is in flight there, 4 stopped part-way again.
    """
    _recover(disk, journal, rate=rate, json_=json_, back=False)


def rollback(
    disk: DiskArgument,
    *,
    journal: JournalFileOption = None,
    rate: RateOption = None,
    json_: EventsOption = False,
) -> None:
    """Take a move back that was interrupted: every partition to where it was.

    Example: sudo aligntool rollback /dev/sda

    Exit code: 0 the disk is in its old state, 3 nothing is in flight there, 4 stopped part-way again.
    """
    _recover(disk, journal, rate=rate, json_=json_, back=True)


def _recover(disk: str, journal: str | None, *, rate: int | None, json_: bool, back: bool) -> None:
    from aligntool.apply import mover
    from aligntool.cli.asked import Asked
    from aligntool.cli.follow import follow
    from aligntool.cli.moving import hurrying, tell_result, ways_on, workshop

    plan = _in_flight(_standing(disk, journal), disk)
    with workshop(plan, disk, journal_file=journal, rate=rate) as shop:
        events = mover.rollback(shop) if back else mover.resume(shop)
        follow(plan, events, json_=json_, hint=ways_on(disk, journal), on_stop=hurrying(shop))
    tell_result(plan, disk, Asked(), json_=json_, back=back)
    if journal:
        from aligntool.render.lines import harmless

        print(f"{harmless(journal)} is not needed any more", file=sys.stderr)


def _standing(disk: str, journal: str | None) -> "Status":
    """Without holding it: whoever has the disk may be asked about it. Raises Refused."""
    from contextlib import nullcontext
    from pathlib import Path

    from aligntool.apply.hold import refuse_partition
    from aligntool.apply.look_only import look_only
    from aligntool.apply.recovery import status as find_status
    from aligntool.audit.words import shell_word
    from aligntool.cli.asked import command

    with look_only(disk) as device, look_only(journal) if journal else nullcontext() as file:
        refuse_partition(disk, Path(disk).stat())
        if device.size < _LEAST:
            raise Refused(f"{disk} is too small for a disk with partitions", hint=f"ls -l {shell_word(disk)}")
        try:
            return find_status(device, file)
        except OSError as error:
            raise Refused(f"{disk} cannot be read: {error.strerror}", hint=command("audit", disk)) from error


def _in_flight(found: "Status", disk: str) -> "Plan":
    from aligntool.cli.asked import command

    if found.state != "in-flight" or found.plan is None:
        raise Refused(f"{disk}: {found.sentences[0]}", hint=command("audit", disk))
    return found.plan


def _next(found: "Status", disk: str, journal: str | None) -> tuple[str, ...]:
    from aligntool.cli.moving import ways_on

    return tuple(ways_on(disk, journal).split("\n")) if found.state == "in-flight" else ()
