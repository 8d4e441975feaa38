"""`aligntool apply`, `status`, `resume` and `rollback`."""

import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from aligntool.audit.wording import layer_name, shell_word
from aligntool.change import (
    NO_PLAN,
    ArrayRequest,
    ChangeState,
    LayoutGoal,
    Plan,
    Said,
    from_json,
    request_in_document,
)
from aligntool.cli import options, run_change
from aligntool.cli.arrays import (
    array_status,
    continue_array,
    find_record,
    recover_array,
    require_unfinished,
    with_current_paths,
)
from aligntool.cli.layers import Layers, read_key, report_layers
from aligntool.cli.options import command, hints_for_disk, print_lines, remark, terminal_width
from aligntool.cli.partitions import Layout
from aligntool.cli.plan import realign_of, report_result, table_change
from aligntool.cli.raid import CreateArray, Persist, clear_hint_of
from aligntool.cli.reformat import Reformat
from aligntool.cli.tables import ConvertCopy, partition_change
from aligntool.commands import DISK, ByHand, by_hand, is_node
from aligntool.convert.copying import CopyRequest
from aligntool.convert.operation import Conversion
from aligntool.device import Device
from aligntool.errors import ExitCode, Refusal, Refused, Stopped, failing_as, refuse
from aligntool.formats.reader import TableReading
from aligntool.formats.tables import read_table
from aligntool.inventory import Partition as TableEntry
from aligntool.inventory import Role
from aligntool.linux.block import open_read_only
from aligntool.linux.deadline import SILENCE_S, Pulse, results_in_children, run_while_progressing
from aligntool.linux.devices import list_blocks
from aligntool.linux.files import read_text
from aligntool.linux.held import status_of
from aligntool.linux.lock import lock_disk, refuse_partition
from aligntool.linux.sysfs import LIVE
from aligntool.linux.targets import find_virtual, hold_targets, raw_copy, refuse_ambiguous, refuse_containers
from aligntool.mover import move
from aligntool.mover.changed_disk import refuse_changed_disk
from aligntool.mover.context import MoveContext
from aligntool.mover.disk_state import OverlaidDisk, foreign_content, overlay, places_in_use
from aligntool.mover.in_flight import CHOOSE
from aligntool.mover.journal import Journal
from aligntool.mover.journal_format import SLOT, NoJournal, is_head
from aligntool.mover.journal_search import find_journal
from aligntool.mover.locked_disk import journal_options, locked_disk, unthrottle_function
from aligntool.mover.status import Status, journal_status
from aligntool.mover.unfinished_change import shows_change
from aligntool.raid.record import Record, find_records
from aligntool.raid.reformat import ReformatGoal
from aligntool.raid.running import PersistGoal
from aligntool.raid.steps_luks import NO_KEY, Key
from aligntool.realign.planned_checks import checked_disk
from aligntool.realign.request import Request
from aligntool.render.lines import EMPTY, Line, paragraph, plain, show
from aligntool.render.progress import remaining_step_lines, status_json, status_lines, table_lines
from aligntool.steps import MakeArray
from aligntool.units import KIB, Extent, counted, format_size
from aligntool.whole_disk.operation import WholeDisk

# `aligntool apply`: apply a saved plan, if it is still valid.


@run_change.ends_stream
def apply(
    file: Annotated[
        str,
        typer.Argument(
            parser=options.path, metavar="FILE", help="A plan written by `aligntool plan ... -o FILE`."
        ),
    ],
    *,
    verbose: options.VerbosePlanOption = False,
    yes: options.YesOption = False,
    rate: options.RateOption = None,
    no_lease: options.NoLeaseOption = False,
    not_suspended: options.NotSuspendedOption = False,
    key_file: options.KeyFileOption = None,
    json_: options.EventsOption = False,
) -> None:
    """Apply a plan that was saved in a file.

    It is refused if the disk or its table is another one, or if a new plan has other steps. Files may have
    changed.

    Example: sudo aligntool apply plan.json

    Exit code: 0 done, 3 refused and nothing written, 4 stopped before the end, with the journal kept.
    """
    try:
        text = read_text(file, hint=NO_PLAN)
    except Refused as error:
        if _is_disk(file):
            text = f"{file} is a disk or a disk image, not a plan"
            raise Refused(text, hint=command("plan realign", file, "-o plan.json")) from error
        raise
    operation, plan = _saved_plan(text, file, rate, key_file, no_lease=no_lease)
    source = checked_disk(plan)  # of a copy, which only reads it
    if not is_node(source):
        hint = f"{file} is a plan for this path: the image was moved or deleted, or is in another folder"
        with failing_as(Refused, source, hint=hint, denied="run the same command with sudo"):
            status_of(source)
    refuse(options.attach_virtual(source, writes=source == plan.disk.path, alone=True, no_lease=no_lease))
    run_change.run_change(
        operation, yes=yes, json_=json_, not_suspended=not_suspended, kept=plan, verbose=verbose
    )


def _is_disk(file: str) -> bool:
    """Return whether a file that is no text has a partition table or a boot sector."""
    with suppress(Refused, OSError), open_read_only(file) as device:
        start = bytes(device.read(0, min(device.size, 1024)))
        return start[510:512] == b"\x55\xaa" or start[512:520] == b"EFI PART"
    return False


def _saved_plan(
    text: str, file: str, rate: int | None, key_file: str | None, *, no_lease: bool
) -> tuple[run_change.Operation, Plan]:
    """Return the operation that makes a saved plan again from its request, and the saved plan."""
    plan = from_json(text, file)
    path = plan.disk.path
    match plan.purpose:
        case "raid":
            wanted = request_in_document(text, "wanted", ArrayRequest)
            return CreateArray(wanted.drives, wanted.goal, made_from=wanted.made_from), plan
        case "persist":
            return Persist(path, request_in_document(text, "persist", PersistGoal)), plan
        case "reformat":
            return Reformat(path, request_in_document(text, "reformat", ReformatGoal)), plan
        case "partition" | "unpartition":
            partition = request_in_document(text, "partition", WholeDisk)
            if any(word.startswith("--key-file") for word in partition.request.typed):
                key_file = key_file or "-"  # planned by the key of a LUKS, so it takes the key again
            return partition_change(path, partition, key_file, rate, no_lease=no_lease), plan
        case "convert":
            conversion = request_in_document(text, "convert", Conversion)
            return table_change("convert", path, conversion, rate, no_lease=no_lease), plan
        case "convert-copy":
            return ConvertCopy(request_in_document(text, "copying", CopyRequest), rate, no_lease), plan
        case "layers":
            return Layers(path, request_in_document(text, "asked", Request), key_file), plan
        case "layout":
            return Layout(path, LayoutGoal(()), Request(), no_lease), plan
    return realign_of(path, request_in_document(text, "asked", Request), rate, no_lease=no_lease), plan


# `aligntool status`, `resume`, `rollback`: a disk in flight by its journal, an unfinished array by its
# record.

_NOTHING_LOST = plain("  lost: nothing")
_LEAST = 64 * KIB  # bytes; the tables alone take more than half of it

JournalFileOption = Annotated[
    str | None, typer.Option("--journal", metavar="FILE", help="The journal file, if it is on another disk.")
]


@dataclass(frozen=True, slots=True)
class Recovery:
    """Options of `resume` and `rollback`."""

    journal: JournalFileOption = None
    restore_table: Annotated[
        bool,
        typer.Option(
            "--restore-table", help="Restore the journal's partition table over one that was changed."
        ),
    ] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what is in flight and the remaining steps, and stop.")
    ] = False
    yes: options.YesOption = False
    rate: options.RateOption = None
    no_lease: options.NoLeaseOption = False


TargetArgument = Annotated[
    str | None,
    typer.Argument(
        parser=options.path,
        metavar="[DISK]",
        help="A disk or image, or an array's name or member [default: the unfinished array].",
    ),
]


StatusArgument = Annotated[
    str | None,
    typer.Argument(
        parser=options.path,
        metavar="[DISK]",
        help="A disk or image, or an array's name or member [default: whatever is in flight here].",
    ),
]


def status(
    disk: StatusArgument = None, *, journal: JournalFileOption = None, json_: options.JsonOption = False
) -> None:
    """Show the progress of an interrupted move or array, and the next command.

    Without DISK, every disk of this machine that is in flight and every unfinished array is shown.

    Nothing is written.

    Example: sudo aligntool status

    Exit code: 0 shown, also if a disk is in flight and its journal is in a file that was not given; 3 it was
    not found, or a disk or journal could not be read.
    """
    unread: list[str] = []
    try:
        found = (
            list(_all_unfinished(unread))
            if disk is None and journal is None
            else [_unfinished(disk, journal)]
        )
    except Refused as error:
        if disk is None or journal is not None or not _is_journal_elsewhere(error):
            raise
        found = [_without_journal(_path_of(disk), error)]
    if not found:
        none = "Nothing is in flight on the disks of this machine, and no array is unfinished."
        if unread:
            could = f"{counted(len(unread), 'disk')} could not be: {', '.join(unread)}"
            none = f"Nothing is in flight on the disks that could be read; {could}. No array is unfinished."
        sentences = (none,) if unread else ()
        shown = paragraph(f"{none} `aligntool status IMAGE` shows that of an image.", terminal_width())
        print_lines(status_json(None, Status("old", sentences)) if json_ else shown)
    for number, each in enumerate(found):
        lines = status_lines(each.disk, each.status, width=terminal_width(), type_next=each.next)
        between = (EMPTY,) if number else ()
        print_lines(status_json(each.disk, each.status, type_next=each.next) if json_ else (*between, *lines))
    if unread:
        sys.exit(ExitCode.REFUSED)


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """A disk or an array, its state, and the next commands."""

    disk: str
    status: Status
    next: tuple[str, ...]


def _unfinished(target: str | None, journal: str | None) -> _Unfinished:
    """Return the state of a disk or an array that was named. Raises Refused."""
    opener: dict[str, str] = {}
    if target is not None:
        hold_targets((_path_of(target),))
        opener = find_virtual((_path_of(target),), SILENCE_S)
    record = _record(target, journal)
    if record is not None or target is None:
        return _unfinished_array(require_unfinished(record))
    disk = _path_of(target)
    may_change = opener.get(disk, "qcow2") == "qcow2"  # virtual disks of no other kind
    current = _disk_status(disk, journal)
    if current.restore_table and current.plan:
        current = replace(
            current, sentences=(*current.sentences, *_what_bars_restoring(disk, journal, current.plan))
        )
    commands = _next_commands(current, disk, journal)
    return _Unfinished(disk, current, commands if may_change or not commands else (raw_copy(disk),))


def _unfinished_array(record: Record) -> _Unfinished:
    path = record.plan.disk.path
    return _Unfinished(path, array_status(record), tuple(run_change.recovery_commands(path).split("\n")))


def _all_unfinished(unread: list[str]) -> Iterator[_Unfinished]:
    """Yield every unfinished array, and every disk of this machine that is in flight. `unread`: gets the
    other disks. Raises Refused.
    """
    yield from map(_unfinished_array, with_current_paths(find_records()))
    paths = [f"/dev/{block.name}" for block in list_blocks(LIVE)]
    jobs = [partial(_state_of, path) for path in paths]
    states = dict(results_in_children(jobs))
    for number, path in enumerate(paths):
        match states[number]:
            case None:
                unread.append(path)
                options.say(f"{path}: did not respond within {SILENCE_S:g} s")
            case "":
                pass
            case "in-flight":
                yield _in_flight(path, unread)
            case why:
                unread.append(path)
                options.say(why)


def _state_of(path: str, _: Pulse) -> str:
    """Return "in-flight", "" or why the disk cannot be read; in a child, because a disk may not respond."""
    try:
        return "in-flight" if shows_change(path) else ""
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    except Refused as error:
        cause = error.__cause__
        is_empty = isinstance(cause, OSError) and cause.errno in (errno.ENOMEDIUM, errno.ENXIO)
        return "" if is_empty else str(error)


def _in_flight(path: str, unread: list[str]) -> _Unfinished:
    """Return the state of a disk in flight, also if its journal was not read. `unread`: gets the disk if its
    journal is not in a file that can be given.
    """
    try:
        return _unfinished(path, None)
    except Refused as error:
        if not _is_journal_elsewhere(error):
            unread.append(path)
        return _without_journal(path, error)


def _is_journal_elsewhere(error: Refused) -> bool:
    return error.refusals[0].code == "journal-elsewhere"


def _without_journal(path: str, error: Refused) -> _Unfinished:
    """Return what is known of a disk in flight whose journal was not read."""
    commands = tuple(filter(None, error.hint.split("\n")))
    return _Unfinished(path, Status("in-flight", tuple(str(error).split("\n"))), commands)


@run_change.ends_stream
def resume(
    disk: TargetArgument = None,
    *,
    chosen: Recovery,
    key_file: options.KeyFileOption = None,
    json_: options.EventsOption = False,
) -> None:
    """Finish an interrupted move or array.

    The remaining steps are shown and confirmed first. A move can be finished on any machine, an array only on
    the machine where it was begun.

    Example: sudo aligntool resume /dev/sda

    Exit code: 0 the disk or array is in its new state, or the move had not begun, 3 nothing is in flight or
    it was not confirmed, 4 stopped again before the end.
    """
    _recover(disk, chosen, back=False, json_=json_, key_file=key_file)


@run_change.ends_stream
def rollback(disk: TargetArgument = None, *, chosen: Recovery, json_: options.EventsOption = False) -> None:
    """Undo an interrupted move or array.

    The steps to undo are shown and confirmed first. Every partition returns to its old place; everything made
    for an array is removed.

    Example: sudo aligntool rollback /dev/sda

    Exit code: 0 everything is in its old state, or only a rest of a journal was left and is zeroed, 3 nothing
    is in flight or it was not confirmed, 4 stopped again before the end, or the move is complete and is not
    undone.
    """
    _recover(disk, chosen, back=True, json_=json_)


def _record(
    target: str | None, journal: str | None, *, writes: bool = False, no_lease: bool = False
) -> Record | None:
    """Attach a virtual disk, and return the record of an unfinished array, or None. A named journal belongs
    to a move.

    Without root the records cannot be read, but a disk can still be named.
    """
    if target is not None:
        refuse_ambiguous(target)
        refuse(options.attach_virtual(_path_of(target), writes=writes, no_lease=no_lease))
    if journal is not None:
        if target is None:
            text = "a journal belongs to a disk: name the disk too"
            raise Refused(text, hint="the disks in flight: sudo aligntool status")
        return None
    return find_record(target)


def _path_of(disk: str) -> str:
    """Return the path of a disk that was named as in lsblk, or of an image."""
    # Path.exists fails if the name is too long
    is_name = "/" not in disk and not os.path.exists(disk) and os.path.exists(f"/dev/{disk}")  # noqa: PTH110
    return f"/dev/{disk}" if is_name else disk


def _recover(
    disk: str | None, chosen: Recovery, *, back: bool, json_: bool, key_file: str | None = None
) -> None:
    journal = chosen.journal
    record = _record(disk, journal, writes=not chosen.dry_run, no_lease=chosen.no_lease)
    if disk is None or record is not None:
        record = require_unfinished(record)
        path = record.plan.disk.path
        if _confirmed(disk or path, path, array_status(record), chosen, back=back, json_=json_):
            key = read_key(key_file) if record.plan.changes_layers and not back else NO_KEY
            with run_change.timed():
                _continue_record(record, key, back=back, json_=json_)
        return
    named = disk
    disk = _path_of(disk)
    current = _disk_status(disk, journal, any_table=chosen.restore_table)
    if current.is_marked:
        return _zero_rest(named, disk, current, chosen, json_=json_)
    plan = _plan_in_flight(current, disk, back=back)
    restore = chosen.restore_table and current.restore_table
    # A table that another program changed is refused below, or is confirmed separately. A complete move is
    # not undone.
    tables = _tables_to_confirm(disk, journal, plan) if restore and not chosen.dry_run else None
    if not chosen.dry_run:
        _refuse_changed_disk(disk, journal, current, back=back, restore_table=restore)
    asked = replace(chosen, yes=chosen.yes or current.restore_table or (back and current.complete))
    goes_back = current.ways == ("rollback",) or (back and current.ways != ("resume",))
    if not _confirmed(named, disk, current, asked, back=goes_back, json_=json_):
        return
    shown = confirm_table(named, disk, *tables, yes=chosen.yes) if tables else None

    @contextmanager
    def locked(note: Callable[[str], object]) -> Iterator[run_change.ChangeInProgress]:
        opening = locked_disk(
            plan, disk, on_note=note, journal_file=journal, rate=chosen.rate, no_lease=chosen.no_lease
        )
        with opening as context, context.alone():
            if shown is not None:
                refuse_other_table(context.device, plan, shown)
            run = move.rollback if back else move.resume
            events = run(context, restore_table=restore)
            moment = ChangeState.UNDOING if goes_back else ChangeState.RESUMED
            ways = run_change.recovery_commands(disk, *journal_options(journal))
            yield run_change.ChangeInProgress(
                events, ways, unthrottle_function(context), moment, disk, context.unanswered
            )

    with run_change.timed():
        with run_change.lock_in_child(locked, plan, disk) as applying:
            kernel_behind = run_change.apply_and_report(plan, applying, json_=json_, in_flight=True)
        report_result(
            plan,
            disk,
            Request(),
            json_=json_,
            back=goes_back or not current.begun,
            kernel_behind=kernel_behind,
        )
    if journal and _is_closed(journal):
        remark(f"{journal} is no longer needed")


def _continue_record(record: Record, key: Key, *, back: bool, json_: bool) -> None:
    """Finish or roll back an unfinished array or the layers of a disk, and report it."""
    if record.plan.changes_layers and not back:
        report_layers(continue_array(record, back=False, json_=json_, key=key), json_=json_)
    else:
        recover_array(record, json_=json_, back=back)


def _zero_rest(named: str, disk: str, current: Status, chosen: Recovery, *, json_: bool) -> None:
    """Zero what a cut has left of the journal of a change that has ended, or show it with --dry-run."""
    if chosen.dry_run:
        lines = status_lines(disk, current, width=terminal_width())
        return print_lines(status_json(disk, current) if json_ else lines)
    rest = (plain(f"  {sentence}") for sentence in current.sentences)
    options.confirm(named, options.target_lines(disk, (_NOTHING_LOST, *rest)), yes=chosen.yes)
    with lock_disk(disk, no_lease=chosen.no_lease) as locked, locked.lease.held():
        for event in move.resume(MoveContext(locked.device, locked.kernel)):
            if isinstance(event, Said):
                remark(event.text)


def _is_closed(journal: str) -> bool:
    with suppress(Refused, OSError), open_read_only(journal) as file:
        return not is_head(bytes(file.read(0, SLOT)))
    return False  # it was removed or renamed meanwhile


def _confirmed(named: str, disk: str, current: Status, chosen: Recovery, *, back: bool, json_: bool) -> bool:
    """Show what is in flight and the remaining steps, and ask. Return False with --dry-run. Raises
    Refused.
    """
    if chosen.dry_run and json_:
        print_lines(status_json(disk, current))
        return False
    width = terminal_width()
    lines = (
        *status_lines(disk, current, width=width),
        *remaining_step_lines(current, back=back, width=width),
    )
    on_screen = sys.stdout if chosen.dry_run else sys.stderr
    show(lines, on_screen, color=options.colored(on_screen))
    if not chosen.dry_run and current.plan:
        still = f"nothing was written, and {disk} is still {current.state.replace('-', ' ')}"
        options.confirm(named, question_lines(disk, current.plan, back=back), yes=chosen.yes, undone=still)
    return not chosen.dry_run


def question_lines(disk: str, plan: Plan, *, back: bool) -> Iterator[Line]:
    """Yield the facts of the question of a resume or a rollback, which loses nothing but a new array."""
    loses_array = back and plan.of(MakeArray)
    lost = plain("  lost: the new array and what is stored on it") if loses_array else _NOTHING_LOST
    return options.target_lines(disk, [lost])


def _disk_status(disk: str, journal: str | None, *, any_table: bool = False) -> Status:
    """Return the status of a disk, read without a lock because the disk may be in use. Raises Refused."""
    return run_while_progressing(
        lambda: _read_status(disk, journal, any_table=any_table), " or ".join(filter(None, (disk, journal)))
    )


def _read_status(disk: str, journal: str | None, *, any_table: bool) -> Status:
    with (
        hints_for_disk(disk, raw_copy(disk)),
        open_read_only(disk, image_sector_size=512) as device,
        _opened(journal) as file,
    ):
        refuse_partition(disk, status_of(disk))
        if device.size < _LEAST:
            text = f"{disk} is too small to be a disk with partitions: it has less than {format_size(_LEAST)}"
            raise Refused(text, hint=command("audit", disk))
        if is_head(bytes(device.read(0, SLOT))):
            text = f"{disk} is the journal of a move, not a disk"
            raise Refused(text, hint=command("status", DISK, f"--journal {shell_word(disk)}"))
        try:
            found = journal_status(device, file, any_table=any_table)
            if found.state != "in-flight" and Path(disk).is_file():
                refuse_containers(disk, device)
            return found
        except NoJournal as error:
            if journal is None:
                raise
            why = "it is another file, or the change was not begun or is complete, and the file is not needed"
            raise Refused(f"{journal} contains no journal: {why}", hint=command("audit", disk)) from error
        except OSError as error:
            raise Refused(f"{disk} cannot be read: {error.strerror}", hint=command("audit", disk)) from error


def _refuse_changed_disk(
    disk: str, journal: str | None, current: Status, *, back: bool, restore_table: bool
) -> None:
    """Raise what the work would raise before its first write, so that nobody confirms what cannot be done."""

    def look() -> None:
        with (
            hints_for_disk(disk, raw_copy(disk)),
            open_read_only(disk, image_sector_size=512) as device,
            _opened(journal) as file,
        ):
            refuse_changed_disk(device, file, back=back, restore_table=restore_table)

    try:
        run_while_progressing(look, " or ".join(filter(None, (disk, journal))))
    except Stopped as error:
        ways = () if restore_table else _next_commands(current, disk, journal)
        status = command("status", disk, *journal_options(journal))
        raise Stopped(str(error), hint="\n".join(ways) or status) from error


def _opened(journal: str | None) -> AbstractContextManager[Device | None]:
    """Open the journal's file, if one was named. Raises Refused."""
    with failing_as(Refused, f"{journal} cannot be read"):
        if journal and not Path(journal).is_file():
            raise Refused(
                f"{journal} is not an existing file", hint="--journal FILE names the journal's file"
            )
    return open_read_only(journal) if journal else nullcontext()


_NOT_UNDONE = (
    "a rollback undoes only what is in flight; a complete change lost nothing, and only a backup has the"
    " state before it"
)


def _plan_in_flight(current: Status, disk: str, *, back: bool) -> Plan:
    if current.state != "in-flight" or current.plan is None:
        hint = clear_hint_of(disk) or command("audit", disk)
        sentences = (current.sentences[0], *((_NOT_UNDONE,) if back else ()))
        raise Refused(f"{disk}: {'; '.join(sentences)}", hint=hint, code="not-in-flight", subject=disk)
    return current.plan


def _next_commands(current: Status, disk: str, journal: str | None) -> tuple[str, ...]:
    if current.is_marked:
        return (command("resume", disk),)
    if current.state != "in-flight":
        return ()
    restoring = ("--restore-table",) if current.restore_table else ()
    ways = ("resume",) if current.complete else current.ways
    return tuple(command(way, disk, *journal_options(journal), *restoring) for way in ways)


# `--restore-table`: restore the table of a disk in flight after another program changed it.
#
# The entries that this removes may belong to partitions that were created in the meantime.


def _tables_to_confirm(disk: str, journal_file: str | None, plan: Plan) -> tuple[TableReading, TableReading]:
    """Return the table found and the table to be written. Raises Refused if a partition that was added, or
    content that was made meanwhile, is in an area that the move reads or writes: with where the user finds
    how to delete it.
    """
    found, written, overwritten = _compared_tables(disk, journal_file, plan)
    refuse(_overwriting_refusals(disk, overwritten))
    return found, written


def confirm_table(
    named: str, disk: str, found: TableReading, written: TableReading, *, yes: bool
) -> TableReading:
    """Show the table found and the table to be written, and ask. Return the table found."""
    for which, table in (("found", found), ("to be written", written)):
        show(
            table_lines(f"the partition table {which}", table.partitions),
            sys.stderr,
            color=options.colored(sys.stderr),
        )
    lost = plain("  lost: the partition table found")
    still = f"nothing was written, and {disk} is still in flight"
    options.confirm(named, options.target_lines(disk, [lost]), yes=yes, undone=still)
    return found


def read_current_table(device: Device, plan: Plan) -> TableReading:
    return read_table(OverlaidDisk(device, ()), sector_size=plan.disk.sector_size)


def refuse_other_table(device: Device, plan: Plan, shown: TableReading) -> None:
    """Raise Refused if the table is not the one that was shown."""
    if read_current_table(device, plan) != shown:
        text = "the partition table has changed again since it was shown"
        raise Refused(text, hint="run the same command again", code="table-changed")


@dataclass(frozen=True, slots=True)
class _Overwritten:
    """What a restored table and the rest of the move would overwrite. `number`: of its partition; 0: the
    whole disk.
    """

    number: int
    text: str
    is_own: bool = False  # content of the move itself


def _name_of(number: int) -> str:
    return f"partition {number}" if number else "the whole disk"


def _overwriting_refusals(disk: str, found: Iterable[_Overwritten]) -> Iterator[Refusal]:
    """Yield everything that would be overwritten, and where the user finds how to delete it."""
    path = shell_word(disk)
    for_partition = by_hand(ByHand.DELETING, "sfdisk", path)
    for_whole_disk = by_hand(ByHand.SIGNATURES, "wipefs", path)
    for each in found:
        clearing = raw_copy(disk) or (for_partition if each.number else for_whole_disk)
        hint = CHOOSE if each.is_own else f"if it is not needed: {clearing}; then the same command again"
        yield Refusal("overwritten", _name_of(each.number), each.text, hint)


def _compared_tables(
    disk: str, journal_file: str | None, plan: Plan
) -> tuple[TableReading, TableReading, tuple[_Overwritten, ...]]:
    """Return the table found, the table to be written, and what that and the rest of the move would
    overwrite.
    """
    with (
        open_read_only(disk) as device,
        open_read_only(journal_file) if journal_file else nullcontext() as file,
    ):
        journal = find_journal(device, file, any_table=True)
        if journal is None:
            raise Refused(f"{disk}: nothing is in flight on this disk", code="not-in-flight", subject=disk)
        found = read_current_table(device, plan)
        foreign = tuple(_foreign_content(device, journal, found))
        written = read_table(overlay(device, journal), sector_size=plan.disk.sector_size)
    return found, written, (*_unlisted(plan, found.partitions, written.partitions), *foreign)


def _what_bars_restoring(disk: str, journal_file: str | None, plan: Plan) -> Iterator[str]:
    """Yield why a resume or a rollback with --restore-table would be refused now."""
    overwritten = run_while_progressing(lambda: _compared_tables(disk, journal_file, plan)[2])
    for each in overwritten:
        yield f"{each.text}: as long as it is there, --restore-table is refused"


def _foreign_content(device: Device, journal: Journal, found: TableReading) -> Iterator[_Overwritten]:
    """Yield each file system that was made at a place of the move, or on the whole disk, meanwhile: also in a
    partition that has exactly the old or the new extent.
    """
    numbers = {part.extent: part.number for part in found.partitions if part.role is not Role.EXTENDED}
    if not found.partitions or journal.contents.images.of_whole_disk:
        numbers[Extent(0, device.size)] = 0
    used = places_in_use(journal.contents.plan)
    touched = [extent for extent in numbers if any(extent.overlaps(place) for place in used)]
    for extent, layer in foreign_content(device, journal, touched):
        what = _name_of(numbers[extent])
        text = f"{what} holds {layer_name(layer)}, which is not part of the move and would be overwritten"
        yield _Overwritten(numbers[extent], text)


def _unlisted(
    plan: Plan, found: Sequence[TableEntry], written: Sequence[TableEntry]
) -> Iterator[_Overwritten]:
    """Yield each partition that the table to be written lacks and that the move would still touch."""
    known = {part.extent for part in written} | set(places_in_use(plan, with_journal=False))
    grown = {place.after.start for place in plan.places}
    for part in found:
        in_the_way = any(part.extent.overlaps(place) for place in places_in_use(plan))
        if part.role is not Role.EXTENDED and part.extent not in known and in_the_way:
            what = _name_of(part.number)
            where = f"bytes {part.extent.start} to {part.extent.end - 1}"
            if part.extent.start in grown:
                text = f"{what}, {where}, has another length than in the journal's table and would be cut off"
                yield _Overwritten(part.number, text, is_own=True)
                continue
            text = f"{what}, {where}, is not in the journal's table and would be overwritten by the move"
            yield _Overwritten(part.number, text)
