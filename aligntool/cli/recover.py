"""`aligntool status`, `resume`, `rollback`: a disk in flight, from the disk; an unfinished array by its record."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from aligntool.cli.options import colored, terminal_width
from aligntool.cli.realign import EventsOption, RateOption, YesOption
from aligntool.cli.stream_end import ends_stream
from aligntool.errors import Refused
from aligntool.units import KIB

if TYPE_CHECKING:
    from aligntool.apply.arrays.record import Record
    from aligntool.apply.recovery import Status
    from aligntool.plan import Plan

_LEAST = 64 * KIB  # bytes; the tables alone take more than half of it

JournalFileOption = Annotated[
    str | None,
    typer.Option("--journal", metavar="FILE", help="The journal's file, where it was put on another disk."),
]


RestoreOption = Annotated[
    bool,
    typer.Option(
        "--restore-table", help="Write the journal's partition table over one that another program changed."
    ),
]


TargetArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[DISK]",
        help="A disk or an image; of an unfinished array a member or its name. Without: the array that is unfinished.",
    ),
]


def status(
    disk: TargetArgument = None,
    *,
    journal: JournalFileOption = None,
    json_: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Tell whether a move is in flight on a disk or an array unfinished, how far it came, and what to type.

    Writes nothing.

    Example: sudo aligntool status /dev/sda
    """
    from aligntool.cli.recover_arrays import tell_array_status
    from aligntool.render.lines import show
    from aligntool.render.status import status_json, status_lines

    record = _record(disk, journal)
    if disk is None or record is not None:
        tell_array_status(record, json_=json_)
        return
    found = _standing(disk, journal)
    following = _next(found, disk, journal)
    if json_:
        sys.stdout.write(status_json(disk, found, type_next=following))
        return
    show(status_lines(disk, found, width=terminal_width(), type_next=following), sys.stdout, color=colored())


@ends_stream
def resume(
    disk: TargetArgument = None,
    *,
    journal: JournalFileOption = None,
    restore_table: RestoreOption = False,
    yes: YesOption = False,
    rate: RateOption = None,
    json_: EventsOption = False,
) -> None:
    """Finish what was interrupted: a move, from the disk alone, on any machine; an array, on this one.

    Example: sudo aligntool resume /dev/sda

    Exit code: 0 the disk or array is in its new state, 3 nothing is in flight there, 4 stopped part-way again.
    """
    _recover(disk, journal, Recovery(back=False, restore_table=restore_table, yes=yes, json=json_, rate=rate))


@ends_stream
def rollback(
    disk: TargetArgument = None,
    *,
    journal: JournalFileOption = None,
    restore_table: RestoreOption = False,
    yes: YesOption = False,
    rate: RateOption = None,
    json_: EventsOption = False,
) -> None:
    """Take back what was interrupted: every partition to where it was; of an array everything that was made.

    Example: sudo aligntool rollback /dev/sda

    Exit code: 0 everything is in its old state, 3 nothing is in flight there, 4 stopped part-way again, or the move is
    complete and stays so.
    """
    _recover(disk, journal, Recovery(back=True, restore_table=restore_table, yes=yes, json=json_, rate=rate))


def _record(target: str | None, journal: str | None) -> "Record | None":
    """A journal that is named belongs to a move. Without root the records cannot be read, and a disk may be asked for
    all the same.
    """
    from aligntool.cli.recover_arrays import record_of
    from aligntool.probe.targets import refuse_ambiguous

    if target is not None:
        refuse_ambiguous(target)
    if journal is not None:
        if target is None:
            raise Refused(
                "a journal belongs to a disk, which has to be named as well",
                hint="sudo aligntool audit names the disks in flight",
            )
        return None
    return record_of(target)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was asked for."""

    back: bool
    restore_table: bool
    yes: bool
    json: bool
    rate: int | None


def _recover(disk: str | None, journal: str | None, asked: Recovery) -> None:
    from aligntool.apply import mover
    from aligntool.cli.asked import Asked
    from aligntool.cli.follow import follow
    from aligntool.cli.moving import hurrying, tell_result, ways_on, workshop
    from aligntool.cli.recover_arrays import recover_array
    from aligntool.cli.restoring import confirm_restoring, refuse_another

    record = _record(disk, journal)
    if disk is None or record is not None:
        recover_array(record, json_=asked.json, back=asked.back)
        return
    found = _standing(disk, journal, any_table=asked.restore_table)
    plan = _in_flight(found, disk)
    restore = asked.restore_table and found.restore_table
    shown = confirm_restoring(disk, journal, plan, yes=asked.yes) if restore else None
    with workshop(plan, disk, journal_file=journal, rate=asked.rate) as shop:
        if shown is not None:
            refuse_another(shop.device, plan, shown)
        act = mover.rollback if asked.back else mover.resume
        events = act(shop, restore_table=restore)
        hint = ways_on(disk, journal)
        behind = follow(plan, events, json_=asked.json, hint=hint, on_stop=hurrying(shop), in_flight=True)
    tell_result(plan, disk, Asked(), json_=asked.json, back=asked.back, kernel_behind=behind)
    if journal:
        from aligntool.render.lines import harmless

        print(f"{harmless(journal)} is not needed any more", file=sys.stderr)


def _standing(disk: str, journal: str | None, *, any_table: bool = False) -> "Status":
    """Without holding it: whoever has the disk may be asked about it. Raises Refused."""
    from contextlib import nullcontext
    from pathlib import Path

    from aligntool.apply.hold import refuse_partition
    from aligntool.apply.look_only import look_only
    from aligntool.apply.recovery import status as find_status
    from aligntool.audit.words import shell_word
    from aligntool.cli.asked import command, naming
    from aligntool.probe.images import refuse_containers
    from aligntool.probe.targets import refuse_silent

    for path in (disk, journal) if journal else (disk,):
        refuse_silent(path)
    with naming(disk), look_only(disk) as device, look_only(journal) if journal else nullcontext() as file:
        refuse_partition(disk, Path(disk).stat())
        if device.size < _LEAST:
            raise Refused(f"{disk} is too small for a disk with partitions", hint=f"ls -l {shell_word(disk)}")
        try:
            found = find_status(device, file, any_table=any_table)
            if found.state != "in-flight" and Path(disk).is_file():
                refuse_containers(disk, device)
            return found
        except OSError as error:
            raise Refused(f"{disk} cannot be read: {error.strerror}", hint=command("audit", disk)) from error


def _in_flight(found: "Status", disk: str) -> "Plan":
    from aligntool.cli.asked import command

    if found.state != "in-flight" or found.plan is None:
        from aligntool.cli.tune_clear import clear_hint_of

        hint = clear_hint_of(disk) or command("audit", disk)
        raise Refused(f"{disk}: {found.sentences[0]}", hint=hint)
    return found.plan


def _next(found: "Status", disk: str, journal: str | None) -> tuple[str, ...]:
    from aligntool.cli.moving import ways_on

    if found.state != "in-flight":
        return ()
    ways = ways_on(disk, journal).split("\n")
    return tuple(f"{way} --restore-table" for way in ways) if found.restore_table else tuple(ways)
