"""Start, resume or roll back a move: first run, resume and rollback are the same walk along the steps of its
plan.

The promise rests on the order of the writes: docs/crash-safety.md explains why a cut between any two of them
loses nothing. The work may stop at every `yield`: a caller that consumes no further event leaves the same
state as a power cut.
"""

import errno
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType

from aligntool.change import Event, MovePlan, Said, StepBegun, StepDone
from aligntool.commands import Hint, command, typed
from aligntool.errors import JournalUnwritten, NothingInFlight, Refused, Stopped
from aligntool.mover import disk_state, numbered_marker, table, whole_disk
from aligntool.mover.changed_disk import UNFINISHED, goes_back, is_committed, refuse_changes
from aligntool.mover.context import MoveContext
from aligntool.mover.journal import Contents, Journal, erase_unfinished, finish_closing, new_id, what_is_left
from aligntool.mover.journal_contents import Runs, journal_contents
from aligntool.mover.journal_format import Position
from aligntool.mover.journal_match import is_begun, state_of
from aligntool.mover.journal_search import find_journal
from aligntool.mover.left_journals import find_left
from aligntool.mover.status import Status, journal_status
from aligntool.mover.steps import PLACE_STAYS, Walk, hidden_from, places_written
from aligntool.mover.table import TableState, write_table
from aligntool.steps import CloseJournal, ReleaseContent, WriteJournal
from aligntool.units import Extent, format_size, merged

_SHARE_OF_MAPS = 100  # of the bytes that a file grows by: its file system needs less for its own maps of them


def realign(
    plan: MovePlan,
    context: MoveContext,
    runs: Runs,
    rebuilt: Mapping[int, tuple[bytes, ...]] = MappingProxyType({}),
) -> Iterator[Event]:
    """Execute the plan's steps from WriteJournal on; the caller executes those before it.

    `runs`: the used extents of each partition that a CopyContent step copies, counted from the partition's
    start. `rebuilt`: the bytes that each RebuildContent step writes. Raises Refused while no partition was
    touched, Stopped after that.
    """
    place = plan.journal
    id_ = new_id()
    try:
        at = None if place.file else place.extent.start
        contents = journal_contents(plan, context.device, runs, rebuilt, at, id_)
    except OSError as error:
        raise Refused(f"{_move_sentence(error)}; no partition was touched") from error
    yield from begin(context, contents, id_)


def begin(context: MoveContext, contents: Contents, id_: bytes) -> Iterator[Event]:
    """Write a journal with these contents, and execute the steps of its plan after that. Raises like
    `realign`.
    """
    index = contents.plan.index_of(WriteJournal)
    try:
        _refuse_full(context, contents)
        with hidden_from(context.kernel, contents.plan):
            yield StepBegun(index)
            journal = _create_journal(context, contents, id_)
    except OSError as error:
        raise Refused(f"{_move_sentence(error)}; no partition was touched") from error
    yield StepDone(index)
    yield from _stopping_on_errors(_walk(context, journal).forward())


def _refuse_full(context: MoveContext, contents: Contents) -> None:
    """Raise Refused if the holes of a sparse image that the change fills need more space than there is: in
    flight nobody could finish or undo it before some is made.
    """
    device = context.device
    name = contents.plan.disk.path
    places = merged(places_written(device, contents), Extent(0, device.size), device.sector_size)
    found = context.room_for(places)
    if found is None:
        return
    needed, free = found
    needed += needed // _SHARE_OF_MAPS
    if needed > free:
        text = (
            f"{name} is sparse, and its file would grow by up to {format_size(needed)}, but where it is"
            " stored only"
        )
        raise Refused(
            f"{text} {format_size(free)} are free", hint=typed("df -h", name), code="no-room", subject=name
        )


def _create_journal(context: MoveContext, contents: Contents, id_: bytes) -> Journal:
    """Write the journal. Raises Refused before the first write, JournalUnwritten after it; then no heads are
    left, if the medium still accepts a write.
    """
    place = contents.plan.journal
    device = context.device_of(place)
    first = Position(contents.plan.park_at)
    try:
        return Journal.create(device, place, contents, id_, first)
    except (OSError, JournalUnwritten) as error:
        with suppress(OSError):
            erase_unfinished(device, place, id_)
        why = _move_sentence(error) if isinstance(error, OSError) else str(error)
        text = f"{why}; the journal could not be written, and no partition was touched"
        raise JournalUnwritten(text, hint=command("status")) from error


def resume(context: MoveContext, *, restore_table: bool = False) -> Iterator[Event]:
    """Continue from the journal's position, on any machine.

    `restore_table`: write the journal's table over one that another program changed.

    Raises Refused if nothing is in flight, or the journal is not available.
    """
    yield from _stopping_on_errors(_closed_or_resumed(context, back=False, restore_table=restore_table))


def rollback(context: MoveContext, *, restore_table: bool = False) -> Iterator[Event]:
    """Undo the move. Raises Refused if nothing is in flight, and Stopped if the move is complete, after its
    table was repaired and its journal closed.
    """
    yield from _stopping_on_errors(_closed_or_resumed(context, back=True, restore_table=restore_table))


def status(context: MoveContext) -> Status:
    """Return the state of a disk. Raises Refused if a move is in flight and its journal is not available."""
    return journal_status(context.device, context.journal)


_NOTHING_BEGUN = "nothing was in flight: every partition is intact at its old place"


def _already_complete(*, back: bool, begun: bool = True, remains: str = "") -> NothingInFlight:
    """`remains`: what could not be zeroed of the journal."""
    found = "the move is complete" if begun else "nothing is in flight"
    text = f"{found}, and the partition table has been changed since; it stays as it is"
    if back and begun:
        text = "the move is complete and cannot be rolled back"
    text += f"; {remains}" if remains else "; its journal is closed" if back else ""
    return NothingInFlight(text, hint=Hint(command("audit"), " shows the current state"))


def _closed_or_resumed(context: MoveContext, *, back: bool, restore_table: bool) -> Iterator[Event]:
    """Zero what is left of a journal without a move in flight, or continue the move."""
    is_free = context.journal is None and find_journal(context.device, None, any_table=restore_table) is None
    left = find_left(context.device) if is_free else None
    if left is None:
        went_back = yield from _resumed(context, back=back, restore_table=restore_table)
        if back and not went_back:
            raise _already_complete(back=True)
        return
    is_complete = False
    if isinstance(left, Journal):
        is_complete = state_of(context.device, left) is disk_state.DiskState.COMPLETE
        _clear_after_rollback(_walk(context, left))
        remains = left.close()
    else:
        finish_closing(context.device, left)
        remains = what_is_left(context.device, left.extent)
    if back and is_complete:
        raise _already_complete(back=True, remains=remains)
    ended = remains or "what was left of the journal is zeroed"
    yield Said(f"nothing was in flight, and every partition stays where it is; {ended}")


def _resumed(context: MoveContext, *, back: bool, restore_table: bool) -> Generator[Event, None, bool]:
    """Continue the move. Return whether it was rolled back: `back`, unless only the other way is open."""
    device = context.device
    journal = _find_or_refuse(context, any_table=restore_table)
    walk = _walk(context, journal)
    images = journal.contents.images
    state = state_of(device, journal)
    asked = back
    back = goes_back(device, journal, state, back=asked)
    covered = refuse_changes(device, journal, state, back=back, restore_table=restore_table)
    complete = not covered and is_committed(device, journal, state)
    if state in UNFINISHED and not complete:
        walk.forget()  # raises Refused if a partition is in use, so it comes before the first write
    if covered:
        release = Position(journal.contents.plan.index_of(ReleaseContent))
        numbered_marker.record(device, journal, walk.sign, release)
    turned = (_ONLY_BACK if back else _ONLY_FORWARD,) if back is not asked else ()
    yield from map(Said, (*turned, *journal.damage))
    is_settled = state in (disk_state.DiskState.NOT_BEGUN, disk_state.DiskState.COMPLETE)
    if (images.of_whole_disk and is_settled) or whole_disk.is_left_without_table(device, journal, state):
        yield from _settle(walk, state, back=back)
        return back
    if state is disk_state.DiskState.NOT_BEGUN:
        write_table(device, images, TableState.BEFORE)
        yield from _end_unbegun(walk)
        return back
    yield from _with_own_table(walk, state, complete=complete)
    if complete and (back or state is disk_state.DiskState.LEFT):
        remains = journal.close(zeroed=state is not disk_state.DiskState.LEFT)
        if not back and not walk.place.file:
            yield Said(remains or "its journal is closed")
            return back
        raise _already_complete(back=back, begun=not disk_state.is_undone(journal), remains=remains)
    yield from walk.back() if back else walk.forward(was_shown=covered)
    return back


def _with_own_table(walk: Walk, state: disk_state.DiskState, *, complete: bool) -> Iterator[Event]:
    """Write the table of the state, whole, from which the work goes on."""
    device = walk.device
    journal = walk.journal
    images = journal.contents.images
    match state:
        case disk_state.DiskState.COMPLETE:
            write_table(
                device, images, TableState.AFTER, first=() if disk_state.is_complete(journal) else None
            )
        case disk_state.DiskState.UNREADABLE | disk_state.DiskState.CHANGED:
            yield Said("the partition table is rewritten from the journal")
            journal.repair_copies()
            others = (
                table.leftovers if state is disk_state.DiskState.CHANGED else table.missing_protective_mbr
            )
            goal = TableState.AFTER if complete else TableState.PARKED
            write_table(device, images, goal, first=others(device, images))
        case disk_state.DiskState.IN_FLIGHT:
            journal.repair_copies()
            if is_begun(journal):
                write_table(device, images, TableState.PARKED, first=() if images.of_whole_disk else None)


_SEEN = "what moves was visible when the work stopped, and may have been used since"
_ONLY_BACK = f"{_SEEN}: the old state is restored, from which nothing was moved yet"
_ONLY_FORWARD = f"{_SEEN}, at its new place: the move is finished"


def _end_unbegun(walk: Walk) -> Iterator[Event]:
    """Close the journal of a move that was not begun, unless it is a file: this disk may be a backup of the
    one in flight, which looks the same, and that one needs the file.
    """
    yield Said(_NOTHING_BEGUN)
    _clear_after_rollback(walk)
    if walk.place.file:
        yield Said("the journal file is kept: if this is a backup, the disk in flight needs it")
    else:
        yield from walk.close_journal()


def _clear_after_rollback(walk: Walk) -> None:
    """Zero what a rollback would have zeroed before it wrote the old table, which another program put back
    earlier.
    """
    if not walk.journal.position.forward:
        walk.clear_new_places()


def _find_or_refuse(context: MoveContext, *, any_table: bool) -> Journal:
    journal = find_journal(context.device, context.journal, any_table=any_table)
    if journal is None:
        hint = Hint(command("audit"), " shows the current state")
        text = "nothing is in flight on this disk; a move that is complete is not undone"
        raise Refused(text, hint=hint, code="not-in-flight")
    return journal


def _settle(walk: Walk, state: disk_state.DiskState, *, back: bool) -> Iterator[Event]:
    """Finish a change that adds or removes a table, if a cut left the disk in its old or its new state."""
    journal = walk.journal
    is_free = state is not disk_state.DiskState.LEFT
    if is_free:
        journal.repair_copies()
    goal = TableState.BEFORE if state is disk_state.DiskState.NOT_BEGUN else TableState.AFTER
    whole_disk.complete_interrupted_writes(walk.device, journal, goal)
    if state is disk_state.DiskState.NOT_BEGUN:
        return (yield from _end_unbegun(walk))
    if not is_free:
        journal.close_in_use()
    if back:
        raise _already_complete(back=True, remains=journal.close() if is_free else "")
    if not is_free:
        return (yield Said(PLACE_STAYS))
    closing = Position(journal.contents.plan.index_of(CloseJournal))
    numbered_marker.record(walk.device, journal, walk.sign, closing)
    yield from walk.forward()


def _walk(context: MoveContext, journal: Journal) -> Walk:
    place = journal.contents.plan.journal
    sign = whole_disk.marker_of(journal)
    return Walk(context.device, context.kernel, journal, place, sign)


def _stopping_on_errors(events: Iterator[Event]) -> Iterator[Event]:
    """Yield the events, and turn an OSError into Stopped, with the commands to continue."""
    try:
        yield from events
    except OSError as error:
        raise Stopped(f"{_move_sentence(error)}; the journal is kept") from error


def _move_sentence(error: OSError) -> str:
    if error.errno == errno.ENOSPC:  # an image or a thin volume; a disk has all of its bytes
        return f"{error.strerror}: free some space where the image or the journal file is stored"
    return f"{error.filename or 'the disk'}: {error.strerror or error}"
