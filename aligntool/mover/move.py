"""Start, resume or roll back a move: find its journal, check it, and walk the steps of its plan."""

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from types import MappingProxyType

from aligntool import steps
from aligntool.change import Event, Plan, Said, StepBegun, StepDone, Waiting
from aligntool.commands import ByHand, by_hand, typed
from aligntool.contents.layers import read_layers
from aligntool.device import Device
from aligntool.errors import JournalUnwritten, NothingInFlight, Refused, Stopped
from aligntool.formats import parked
from aligntool.formats.tables import read_table
from aligntool.inventory import Role
from aligntool.mover import disk_state, in_flight, numbered_marker, table, whole_disk
from aligntool.mover.claimed_room import claims_of
from aligntool.mover.convert_table import conversion_of, convert_images, rebuilt_halves
from aligntool.mover.hidden_signatures import View, read_saved
from aligntool.mover.journal import GRID, Contents, Journal, erase_unfinished, finish_closing, new_id, pack
from aligntool.mover.journal_format import (
    BODY_AT,
    SLOT,
    Closing,
    LostPart,
    NoJournal,
    Position,
    begins_as_own,
    head_or_none,
    is_head,
    read_closing,
)
from aligntool.mover.newcomers import brought_content, newcomers, own_content
from aligntool.mover.steps import Kernel, Walk, hidden_from, patched, places_written, progress
from aligntool.mover.table import TableState, is_own_table, is_readable, table_state, write_table
from aligntool.units import GIB, KIB, MIB, Extent, align_down, format_size, merged

# Finding the journal and the state of a disk from the disk alone.
#
# On another machine, the path of the half-moved disk is all that is known.
#
# The journal is found through a parked entry, otherwise through a marker at the start of an entry, otherwise by its
# magic: in the last 256 MiB and the first 64 MiB, or, if a copy of the table is damaged, in the last and first 16 GiB.

SEARCHED = 16 * GIB
LONGEST_USUAL = 64 * MIB  # bytes of a journal with the preferred sizes, at most
_MOST_STARTS = 256  # of partitions before which the rest of a journal is searched; Linux shows 255
NEAR_THE_END = GIB // 4  # journals are usually here; searched whenever no entry and no marker names a journal
NEAR_THE_START = GIB // 16  # or in the gap before the first partition
CHANGED_TABLE = "another program has changed or removed the partition table since the move began"


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a disk: "old" (nothing is in flight) or "in-flight"; the other fields describe the move."""

    state: str
    sentences: tuple[str, ...]
    plan: Plan | None = None
    step: int = 0  # index of the next one
    done: int = 0  # bytes at their new place
    total: int = 0
    forward: bool = True  # False: a rollback was in progress
    restore_table: bool = False  # another program changed the table
    begun: bool = True  # False: nothing was moved, and a resume only closes the journal
    complete: bool = False  # every partition is at its new place: only the journal is still open
    is_marked: bool = False  # nothing is in flight, and a resume zeroes what a cut has left of the journal


def _disk_state(device: Device, journal: Journal) -> disk_state.DiskState:
    whole = journal.contents.images.of_whole_disk
    return whole_disk.find_whole_disk_state(device, journal) if whole else disk_state.find_disk_state(device, journal)


def find_journal(device: Device, file: Device | None, *, any_table: bool = False) -> Journal | None:
    """Return the journal of a move in flight, or None. `file`: the journal that the user named.

    `any_table`: search as if there were no table, and accept the journal whatever the table is.

    Raises Refused if a move is in flight and its journal is not available.
    """
    entry = parked.find_parked(device)
    id_ = entry.journal_id if entry and entry.sound else None  # half of the id in a torn entry may be of another one
    if file is not None:
        journal = _in_file(file, device, entry)
        if id_ is None and journal.at == 0:
            _refuse_other_disk(device, journal, is_parked=entry is not None and entry.journal_at is None)
        numbered_marker.refuse_other_age(device, _with_newest_record(journal), whole_disk.marker_of(journal))
        return journal
    refusal: Refused | None = None
    if entry is not None:
        try:
            journal = _named_by_entry(device, entry)
        except Refused as error:
            refusal = error  # the entry may be torn, and the journal may still be found by the search
        else:
            return _with_newest_record(journal)
    sound = parked.is_table_intact(device)
    found = _search_journal(device, entry, sound=sound, any_table=any_table)
    if isinstance(found, Journal):
        return _with_newest_record(found)
    refusal = refusal or found
    if refusal is None and not sound and None in parked.journals_in_torn_entries(device):
        refusal = _in_file_elsewhere()
    if refusal is not None and not (entry and entry.only_backup):
        raise refusal
    return None


def _search_journal(
    device: Device, entry: parked.ParkedMark | None, *, sound: bool, any_table: bool
) -> Journal | LostPart | None:
    """Return the journal that a search of the disk finds, or LostPart if a journal there has lost a part.

    A journal whose markers are on the disk is preferred to all others. Raises Refused if several journals qualify.
    """
    lost = None
    unmarked: dict[int, Journal] = {}
    for at, marker in _candidates(device, sound=sound and not any_table):
        try:
            journal = Journal.open(device, at)
            _checked(journal, device, entry.journal_id if entry and entry.sound else None)
            is_marked = marker in _starts(device, journal.contents.plan.disk.sector_size)
        except LostPart as error:
            lost = lost or (None if sound else error)
            continue
        except Refused:
            continue
        if _is_of_this_move(device, journal, sound=sound, is_marked=is_marked, any_table=any_table):
            if is_marked or disk_state.has_markers(device, journal):
                return journal
            unmarked[journal.at] = journal
    return lost or (_only_begun(list(unmarked.values())) if unmarked else None)


def journal_in_flight(device: Device) -> int | None:
    """Return the byte of the journal of a change that is in flight on a disk whose table does not show it, or None.
    Only the places are searched to which a marker leads, and those where journals usually are. Raises Refused if
    several journals qualify.
    """
    found = _search_journal(device, None, sound=True, any_table=False)
    return found.at if isinstance(found, Journal) else None


def _only_begun(journals: list[Journal]) -> Journal:
    """Return the journal of a move that was begun; a move that never began only left a journal that was not closed.

    Raises Refused if there are several.
    """
    begun = [journal for journal in journals if journal.lost_slots or _is_begun(journal)]
    if len(begun or journals) > 1:
        places = " and ".join(str(journal.at) for journal in begun or journals)
        raise Refused(f"there are journals at bytes {places}, and nothing shows which of them belongs to this disk",
                      hint="leave the disk as it is, and copy it with ddrescue")  # fmt: skip
    return (begun or journals)[0]


def _is_begun(journal: Journal) -> bool:
    return journal.position.step > disk_state.step_index(journal.contents.plan, steps.ParkEntries)


def _is_of_this_move(device: Device, journal: Journal, *, sound: bool, is_marked: bool, any_table: bool) -> bool:
    """Return whether this journal, to which no entry led, belongs to a move that is in flight."""
    images, plan = journal.contents.images, journal.contents.plan
    # A journal that was begun and is not finished is never settled, whatever the table is now.
    unfinished = _is_begun(journal) and not disk_state.is_complete(journal)
    if images.of_whole_disk:
        begun = _is_begun(journal) and (any_table or disk_state.has_markers(device, journal))
        return is_marked or begun or whole_disk.is_unsettled(device, journal)
    state = table_state(device, images)
    if state is not TableState.OTHER or is_own_table(device, images):
        found = disk_state.find_disk_state(device, journal)
        is_back = state is TableState.BEFORE and found is disk_state.DiskState.IN_FLIGHT
        is_replaced = is_back or found is disk_state.DiskState.CHANGED  # by another program
        settled = sound and state in (TableState.BEFORE, TableState.AFTER) and not is_replaced
        unfinished &= found is not disk_state.DiskState.COMPLETE
        return is_marked or unfinished or not settled  # otherwise a journal whose heads could not be wiped
    if disk_state.covers_content(plan):
        return journal.position.step < disk_state.step_index(plan, steps.Commit) and unfinished
    return (
        (any_table and _is_begun(journal))
        or is_marked
        or not is_readable(device)
        or disk_state.has_markers(device, journal)
        or (unfinished and _has_new_content(device, journal))
        or (disk_state.is_complete(journal) and disk_state.lists_old_place(device, plan))
    )


def _with_newest_record(journal: Journal) -> Journal:
    """Return the journal. Raises Refused if its newest record may be lost: to continue from an older one would repeat
    a step whose source is overwritten.
    """
    if journal.lost_slots:
        places = " and ".join(f"at byte {at}" for at in journal.lost_slots)
        newest = "it may be the newest, which records how far the move got; an older one must not be used"
        text = f"the record {places} cannot be read in either of its two copies, and {newest}"
        hint = "leave the disk as it is, and copy it with ddrescue: one recovered sector may be enough"
        raise Refused(f"the journal at byte {journal.at} is damaged: {text}", hint=hint, code="journal-damaged")
    return journal


def _named_by_entry(device: Device, entry: parked.ParkedMark) -> Journal:
    if entry.journal_at is None:
        raise _in_file_elsewhere()
    if entry.journal_at % GRID or entry.journal_at >= device.size:
        raise Refused(f"an entry names a journal at byte {entry.journal_at}, where there cannot be one")
    try:
        journal = Journal.open(device, entry.journal_at)
    except NoJournal as error:
        # Nothing else says where the partitions were and are: no entry of the table may be changed now.
        hint = "leave the disk as it is, also its table, and copy it with ddrescue"
        text = f"partitions of this disk are in flight, but {error}"
        raise Refused(text, hint=hint, code="journal-damaged") from error
    return _checked(journal, device, entry.journal_id)


def _in_file(file: Device, device: Device, entry: parked.ParkedMark | None) -> Journal:
    """Return the journal in the file that the user named. If the file has none, and the entry names a byte, return the
    journal at that byte: of the file, where an older version wrote that of a shrink, or of the disk, where the journal
    of a shrink is if the file was too short.
    """
    id_ = entry.journal_id if entry and entry.sound else None
    try:
        return _checked(Journal.open(file, 0, disk_size=device.size), device, id_, file=file)
    except NoJournal as error:
        if entry is None:
            raise
        if entry.journal_at is None:
            raise _in_file_elsewhere("the file that was named contains none") from error
    try:
        return _checked(Journal.open(file, entry.journal_at, disk_size=device.size), device, id_)
    except NoJournal:
        return _named_by_entry(device, entry)


def _in_file_elsewhere(why: str = "") -> Refused:
    text = "; ".join(filter(None, ("partitions of this disk are in flight, and their journal is in a file on another"
                                   " disk, which begins with the words aligntool journal", why)))  # fmt: skip
    hint = "\n".join(f"aligntool {way} DISK --journal FILE" for way in ("resume", "rollback"))
    return Refused(text, hint=hint, code="journal-elsewhere")


def journal_status(device: Device, file: Device | None, *, any_table: bool = False) -> Status:
    """Return the state of the move. Raises Refused like `find_journal`."""
    journal = find_journal(device, file, any_table=any_table)
    left = find_left(device) if journal is None and file is None else None
    if isinstance(left, Journal):
        journal = left
    if journal is None:
        marked = (
            ("a change has ended or was not begun, and a part of its journal is left, which nothing needs",)
            if left
            else ()
        )
        sentences = ("nothing is in flight on this disk", *marked, *_unsearched_sentences(device))
        return Status("old", sentences, is_marked=left is not None)
    position, plan = journal.position, journal.contents.plan
    state = _disk_state(device, journal)
    if state is disk_state.DiskState.LEFT:
        return Status("old", ("the move is complete, and the partition table has been changed since",))
    done, total = progress(journal)
    ways = "partitions of this disk are being moved", "a move of partitions was being rolled back"
    if conversion_of(plan):
        ways = "the table is being converted", "a conversion of the table was being rolled back"
    if disk_state.is_shrink(plan):
        ways = "a file system is being shrunk", "a shrink of a file system was being rolled back"
    unfinished = f"{ways[not position.forward]}; the work is not complete"
    unread = "the partition table cannot be read; it will be rewritten from the journal"
    used = state is disk_state.DiskState.CHANGED and disk_state.is_used(device, plan)
    changed = tuple(_content_changes(device, journal, back=False)) if state in _UNFINISHED else ()
    on_table = {"UNREADABLE": (unread,), "CHANGED": (disk_state.USED if used else CHANGED_TABLE,)}.get(state.name, ())
    on_content = (_changed_sentence(changed),) if changed else ()
    is_hidden = state is disk_state.DiskState.CHANGED and disk_state.is_complete(journal)
    complete = is_hidden or state is disk_state.DiskState.COMPLETE
    first = _AT_NEW_PLACES if is_hidden else _SENTENCES.get(state, (unfinished,))
    sentences = (*first, *on_table, *on_content, *journal.damage)
    restore = state is disk_state.DiskState.CHANGED and not used
    if state in _UNFINISHED and not (complete or changed or used or journal.damage):
        sentences = (*sentences, _NOTHING_LOST)
    return Status(
        "in-flight", sentences, plan, position.step, done, total, position.forward, restore,
        begun=state is not disk_state.DiskState.NOT_BEGUN, complete=complete,
    )  # fmt: skip


_NOTHING_LOST = "nothing is lost: resume makes everything valid at the new places, rollback at the old ones"
_AT_NEW_PLACES = ("every partition is intact at its new place, which the table does not list: do not use the old ones",)
_SENTENCES = {
    disk_state.DiskState.NOT_BEGUN: ("a move was prepared but not begun: every partition is intact at its old place",),
    disk_state.DiskState.COMPLETE: (
        "every partition is intact at its new place; only the journal must still be closed",
    ),
}


def _checked(journal: Journal, device: Device, id_: bytes | None, *, file: Device | None = None) -> Journal:
    """Return the journal, or raise Refused if it does not fit the disk.

    A larger disk fits: a copy (dd) has everything at the same offsets. So does a disk that lacks only the bytes after
    the last whole sector of the old one, which no Device shows.
    """
    subject, place = journal.contents.plan.disk, disk_state.journal_place(journal.contents.plan)
    text, hint = "", "give the disk whose partitions are in flight"
    if (place.extent.start, place.file is not None) != (journal.at, file is not None):
        text = "this journal was written at another place: it is a copy, or belongs to a disk image inside this disk"
    elif file is not None and file.size < place.extent.end:
        text = f"this journal file is truncated: it has {file.size} of {place.extent.end} bytes"
        hint = "give the complete file that was named when the move began"
    elif device.size < align_down(subject.size, subject.sector_size):
        text = f"this journal belongs to a disk of {subject.size} bytes; this one has {device.size}"
    elif device.sector_size > (begun := whole_disk.shortest_write(journal)):
        text = f"the move was begun with sectors of {begun} bytes; the disk now has {device.sector_size}"
        hint = "attach the disk as it was attached then: some USB adapters change its sector size"
    elif id_ != journal.id if id_ is not None else _is_marked_by_another(device, journal):
        text, hint = "this journal belongs to another move", "give the journal that was named when the move began"
    if text:
        raise Refused(text, hint=hint, code="wrong-journal")
    return journal


def _is_marked_by_another(device: Device, journal: Journal) -> bool:
    """Return whether another move has written markers where this one expects content, or its own markers.

    An MBR has no room for a journal's id, and the journal file of a move that never began may exist as well as that of
    the move in flight.
    """
    contents, size = journal.contents, device.sector_size
    holds = [step for step in contents.plan.steps if isinstance(step, steps.HoldContent)]
    if not holds or journal.position.step > disk_state.step_index(contents.plan, steps.CopyContent):
        return False
    for step in holds:
        saved = contents.held[step.partition][0]
        found = parked.read_or_empty(device, step.source.start, len(saved))
        for at in range(0, len(found), size):
            marker = disk_state.MARKER.match(found, at, at + size)
            if marker and marker[1] != journal.id.hex().encode() and found[at : at + size] != saved[at : at + size]:
                return True
    return False


def _refuse_other_disk(device: Device, journal: Journal, *, is_parked: bool) -> None:
    """Raise Refused unless the disk shows that the move of this journal, which is a file, is in flight on it: a backup
    made before the move lacks what the journal records as copied, and an older copy of the file would repeat batches on
    a disk whose move was finished or undone. `is_parked`: an entry states that a journal is in a file; a conversion
    leaves no other mark of itself.
    """
    plan, step, images = journal.contents.plan, journal.position.step, journal.contents.images
    shown = table_state(device, images)
    uncommitted = shown is TableState.AFTER and step < disk_state.step_index(plan, steps.Commit)
    marked = disk_state.has_markers(device, journal, only_at_source=shown is TableState.BEFORE)
    if not uncommitted and (marked or _has_new_content(device, journal)):
        return
    untouched = step <= disk_state.step_index(plan, steps.ParkEntries)
    state, is_parked = _disk_state(device, journal), is_parked and bool(conversion_of(plan))
    match shown:
        case TableState.PARKED | TableState.BEFORE:
            begun = shown is TableState.PARKED or (untouched and _has_old_content(device, journal))
        case TableState.AFTER:
            begun = state is disk_state.DiskState.COMPLETE and not uncommitted
        case _ if state is disk_state.DiskState.LEFT:
            begun = disk_state.is_complete(journal)
        case _:
            begun = disk_state.has_evidence(device, journal) or (is_parked and is_own_table(device, images))
            begun &= is_parked or state is not disk_state.DiskState.CHANGED
            begun &= untouched or state is not disk_state.DiskState.NOT_BEGUN
    if not begun:
        text = "this journal's move is not in flight on this disk: it may be a backup, or the file an older copy"
        raise Refused(text, hint="give the disk whose partitions are in flight", code="wrong-journal")


def _has_old_content(device: Device, journal: Journal) -> bool:
    """Return whether all bytes that the journal has saved are at their old place: a blank disk may have the same table,
    which is none.
    """
    sign = whole_disk.marker_of(journal)
    held = (step for step in journal.contents.plan.steps if isinstance(step, steps.HoldContent))
    views = ((step.source.start, in_flight.source_view(journal, step, sign)) for step in held)
    return all(in_flight.compare(device, start, view).other is None for start, view in views)


def _has_new_content(device: Device, journal: Journal) -> bool:
    """Return whether bytes that a step writes last, and only on the disk in flight, are at their new place: all of a
    partition that was moved, or a sector of content that is rebuilt, or its hidden signature. Blank bytes show nothing:
    another disk has them too.
    """
    held, released = journal.contents.held, []
    for step in journal.contents.plan.steps:
        match step:
            case steps.ReleaseContent():
                new = patched(step.held, held[step.partition], step.patches)
                if len(set(b"".join(new))) > 1:
                    released.append(_read_places(device, step.target.start, step.held) == list(new))
            case steps.RebuildContent():
                parts = zip(
                    _read_places(device, step.extent.start, step.held),
                    *rebuilt_halves(step, held[step.partition]),
                    strict=True,
                )
                if any(_has_new_sector(*part, device.sector_size) for part in parts):
                    return True
                if in_flight.has_hidden_byte(device, journal, step, whole_disk.marker_of(journal)):
                    return True
    return bool(released) and all(released)


def _read_places(device: Device, start: int, saved: steps.SavedRanges) -> list[bytes]:
    return [parked.read_or_empty(device, start + part.start, part.length) for part in saved.ranges]


def _has_new_sector(found: bytes, old: bytes, new: bytes, size: int) -> bool:
    sectors = ((part[at : at + size] for part in (found, old, new)) for at in range(0, len(found), size))
    return any(here == after != before and any(here) for here, before, after in sectors)


def _unsearched_sentences(device: Device) -> tuple[str, ...]:
    """Return a sentence if a journal may be in a part of the disk that was not searched."""
    if len(_starts(device, device.sector_size)) > _MOST_STARTS:
        return (f"the table has more than {_MOST_STARTS} partitions; before the others, nothing was searched",)
    if device.size <= 2 * SEARCHED or is_readable(device):
        return ()
    searched = f"the first and last {SEARCHED // GIB} GiB; the space between was not searched"
    return (f"no partition table is readable, and no journal is in {searched}",)


def _candidates(device: Device, *, sound: bool) -> Iterator[tuple[int, int | None]]:
    """Yield each byte where a journal may be, and the place of the marker that names it, or None."""
    if not sound:
        places = parked.journals_in_torn_entries(device)
        yield from ((at, None) for at in places if at is not None and at % GRID == 0)
    for start in _starts(device, device.sector_size, 4096):  # an image may have an MBR for the latter
        if start + 4096 <= device.size:
            found = disk_state.MARKER.match(parked.read_or_empty(device, start, 4096))
            if found and found[2]:
                yield int(found[2]), start
    yield from ((at, None) for at in _find_heads(device, NEAR_THE_END if sound else SEARCHED))


def _starts(device: Device, *sector_sizes: int) -> tuple[int, ...]:
    return 0, *parked.partition_starts(device, sector_sizes)  # byte 0: content may lie on the whole disk


def find_left(device: Device) -> Closing | Journal | None:
    """Return a journal without a move in flight: one that was not begun, or whose move is complete, or its mark.
    Nothing else may be at its place: no partition is there.

    It is searched where journals are placed: at the end of the disk, and before partitions.
    """
    starts = _starts(device, device.sector_size, 4096)[:_MOST_STARTS]
    ends = {device.size: NEAR_THE_END, **dict.fromkeys(starts, LONGEST_USUAL)}
    searched: set[int] = set()
    for end, length in ends.items():
        last = align_down(min(end, device.size) - GRID, GRID)
        for at in range(last, max(last - length, -1), -GRID):
            if at in searched:
                continue
            searched.add(at)
            if not begins_as_own(_read_unless_hole(device, at, device.sector_size)):
                continue
            if closing := read_closing(device, at):
                if not _is_listed(device, closing.extent):
                    return closing
            elif is_head(parked.read_or_empty(device, at, SLOT)) and (journal := _left_journal(device, at)):
                return journal
    return None


def _left_journal(device: Device, at: int) -> Journal | None:
    try:
        journal = _checked(Journal.open(device, at), device, None)
        is_settled = _disk_state(device, journal) in (disk_state.DiskState.NOT_BEGUN, disk_state.DiskState.COMPLETE)
    except (Refused, OSError):
        return None
    is_free = not _is_listed(device, disk_state.journal_place(journal.contents.plan).extent)
    return journal if is_settled and is_free and not journal.lost_slots else None


def _is_listed(device: Device, extent: Extent) -> bool:
    """Return whether a partition of a table for sectors of either size has any of these bytes, or content that begins
    at byte 0 may have.
    """
    disk = disk_state.OverlaidDisk(device, ())
    readings = (read_table(disk, sector_size=size) for size in (512, 4096))
    parts = (part for reading in readings for part in reading.partitions)
    if any(part.role is not Role.EXTENDED and part.extent.overlaps(extent) for part in parts):
        return True
    try:
        layers = read_layers(disk, Extent(0, device.size), sector_size=device.sector_size)
    except OSError:
        return True
    return any(layer.claims_size is None or layer.claims_size > extent.start for layer in layers)


def _find_heads(device: Device, length: int) -> Iterator[int]:
    last = align_down(device.size - GRID, GRID)
    backwards = range(last, max(last - length, 0), -GRID)
    first = SEARCHED if length == SEARCHED else NEAR_THE_START
    forwards = range(0, max(min(first, last - length), 0), GRID)
    for places in (backwards, forwards):
        for at in places:
            if is_head(_read_unless_hole(device, at, SLOT)):
                second = head_or_none(device, at, 1)  # the head of the first copy may be damaged
                yield at if second is None else at - second.copy_length


def _read_unless_hole(device: Device, at: int, length: int) -> bytes:
    return b"" if device.is_hole(at, length) else parked.read_or_empty(device, at, length)


# Executing a plan: first run, resume and rollback are the same walk along the plan's steps.
#
# The promise rests on the order of the writes: docs/crash-safety.md explains why a cut between any two of them loses
# nothing.
#
# The work may stop at every `yield`: a caller that consumes no further event leaves the same state as a power cut.

_GAPS = (0, *(64 * KIB << step for step in range(0, 40, 4)))  # unused bytes between runs that may be copied, too
_SHARE_OF_MAPS = 100  # of the bytes that a file grows by: its file system needs less for its own maps of them
Runs = Mapping[int, tuple[Extent, ...]]  # by the number of a partition, counted from its start
RESUME = "aligntool resume DISK; or aligntool rollback DISK, which undoes everything"


@dataclass(frozen=True, slots=True)
class MoveContext:
    """The disk of a move and its surroundings. `journal`: the file that was named for journals; None: none was."""

    device: Device
    kernel: Kernel
    journal: Device | None = None
    unanswered: Callable[[], Waiting | None] = lambda: None  # the request that a disk has not answered for seconds
    alone: Callable[[], AbstractContextManager[None]] = nullcontext  # keeps other programs from opening an image file
    room_for: Callable[[Iterable[Extent]], tuple[int, int] | None] = lambda _: None  # of a sparse image: linux/block.py

    def device_of(self, place: steps.JournalPlace) -> Device:
        """Return the device on which a journal with this place is written. Raises Refused if its file is not open."""
        if place.file is None:
            return self.device
        if self.journal is None:
            raise Refused(f"the journal belongs into {place.file}, which is not open", hint=f"--journal {place.file}")
        return self.journal


def realign(
    plan: Plan, context: MoveContext, runs: Runs, rebuilt: Mapping[int, tuple[bytes, ...]] = MappingProxyType({})
) -> Iterator[Event]:
    """Execute the plan's steps from WriteJournal on; the caller executes those before it.

    `runs`: the used extents of each partition that a CopyContent step copies, counted from the partition's start.
    `rebuilt`: the bytes that each RebuildContent step writes. Raises Refused while no partition was touched, Stopped
    after that.
    """
    place, id_ = disk_state.journal_place(plan), new_id()
    try:
        contents = _journal_contents(plan, context, runs, rebuilt, None if place.file else place.extent.start, id_)
    except OSError as error:
        raise Refused(f"{_move_sentence(error)}; no partition was touched") from error
    yield from begin(context, contents, id_)


def begin(context: MoveContext, contents: Contents, id_: bytes) -> Iterator[Event]:
    """Write a journal with these contents, and execute the steps of its plan after that. Raises like `realign`."""
    index = disk_state.step_index(contents.plan, steps.WriteJournal)
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
    """Raise Refused if the holes of a sparse image that the change fills need more space than there is: in flight
    nobody could finish or undo it before some is made.
    """
    device, name = context.device, contents.plan.disk.path
    places = merged(places_written(device, contents), Extent(0, device.size), device.sector_size)
    found = context.room_for(places)
    if found is None:
        return
    needed, free = found
    needed += needed // _SHARE_OF_MAPS
    if needed > free:
        text = f"{name} is sparse, and its file would grow by up to {format_size(needed)}, but where it is stored only"
        raise Refused(
            f"{text} {format_size(free)} are free", hint=typed("df -h", name, sudo=False), code="no-room", subject=name
        )


def _create_journal(context: MoveContext, contents: Contents, id_: bytes) -> Journal:
    """Write the journal. Raises Refused before the first write, JournalUnwritten after it; then no heads are left, if
    the medium still accepts a write.
    """
    place = disk_state.journal_place(contents.plan)
    device, first = context.device_of(place), Position(disk_state.step_index(contents.plan, steps.ParkEntries))
    try:
        return Journal.create(device, place, contents, id_, first)
    except (OSError, JournalUnwritten) as error:
        with suppress(OSError):
            erase_unfinished(device, place, id_)
        why = _move_sentence(error) if isinstance(error, OSError) else str(error)
        text = f"{why}; the journal could not be written, and no partition was touched"
        raise JournalUnwritten(text, hint="aligntool status DISK") from error


def resume(context: MoveContext, *, restore_table: bool = False) -> Iterator[Event]:
    """Continue from the journal's position, on any machine.

    `restore_table`: write the journal's table over one that another program changed.

    Raises Refused if nothing is in flight, or the journal is not available.
    """
    yield from _stopping_on_errors(_closed_or_resumed(context, back=False, restore_table=restore_table))


def rollback(context: MoveContext, *, restore_table: bool = False) -> Iterator[Event]:
    """Undo the move. Raises Refused if nothing is in flight, and Stopped if the move is complete, after its table was
    repaired and its journal closed.
    """
    yield from _stopping_on_errors(_closed_or_resumed(context, back=True, restore_table=restore_table))


def status(context: MoveContext) -> Status:
    """Return the state of a disk. Raises Refused if a move is in flight and its journal is not available."""
    return journal_status(context.device, context.journal)


_NOTHING_BEGUN = "nothing was in flight: every partition is intact at its old place"


def _already_complete(*, back: bool) -> NothingInFlight:
    text = "the move is complete, and the partition table has been changed since; it stays as it is"
    if back:
        text = "the move is complete and cannot be rolled back; its journal is closed"
    return NothingInFlight(text, hint="aligntool audit DISK shows the current state")


def _closed_or_resumed(context: MoveContext, *, back: bool, restore_table: bool) -> Iterator[Event]:
    """Zero what is left of a journal without a move in flight, or continue the move."""
    is_free = context.journal is None and find_journal(context.device, None, any_table=restore_table) is None
    left = find_left(context.device) if is_free else None
    if left is None:
        yield from _resumed(context, back=back, restore_table=restore_table)
        return
    is_complete = False
    if isinstance(left, Journal):
        is_complete = _disk_state(context.device, left) is disk_state.DiskState.COMPLETE
        _clear_after_rollback(_walk(context, left))
        left.close()
    else:
        finish_closing(context.device, left)
    if back and is_complete:
        raise _already_complete(back=True)
    yield Said("nothing was in flight, and every partition stays where it is; what was left of the journal is zeroed")


def _resumed(context: MoveContext, *, back: bool, restore_table: bool) -> Iterator[Event]:
    device = context.device
    journal = _find_or_refuse(context, any_table=restore_table)
    walk, images, state = _walk(context, journal), journal.contents.images, _disk_state(device, journal)
    covered = _refuse_changed_disk(device, journal, state, back=back, restore_table=restore_table)
    complete = not covered and _is_complete(device, journal, state)
    if state in _UNFINISHED and not complete:
        walk.forget()  # raises Refused if a partition is in use, so it comes before the first write
    if covered:
        journal.record(Position(disk_state.step_index(journal.contents.plan, steps.ReleaseContent)))
    for damage in journal.damage:
        yield Said(damage)
    if images.of_whole_disk and state in (disk_state.DiskState.NOT_BEGUN, disk_state.DiskState.COMPLETE):
        return (yield from _settle(walk, state, back=back))
    match state:
        case disk_state.DiskState.NOT_BEGUN:
            write_table(device, images, TableState.BEFORE)
            return (yield from _end_unbegun(walk))
        case disk_state.DiskState.COMPLETE:
            write_table(device, images, TableState.AFTER, first=() if disk_state.is_complete(journal) else None)
        case disk_state.DiskState.UNREADABLE | disk_state.DiskState.CHANGED:
            yield Said("the partition table is rewritten from the journal")
            journal.repair_copies()
            others = table.leftovers if state is disk_state.DiskState.CHANGED else table.missing_protective_mbr
            goal = TableState.AFTER if complete else TableState.PARKED
            write_table(device, images, goal, first=others(device, images))
        case disk_state.DiskState.IN_FLIGHT:
            journal.repair_copies()
            if journal.position.step > disk_state.step_index(journal.contents.plan, steps.ParkEntries):
                write_table(device, images, TableState.PARKED, first=() if images.of_whole_disk else None)
    if complete and (back or state is disk_state.DiskState.LEFT):
        journal.close(zeroed=state is not disk_state.DiskState.LEFT)
        raise _already_complete(back=back)
    yield from walk.back() if back else walk.forward()


def refuse_changed_disk(device: Device, file: Device | None, *, back: bool, restore_table: bool) -> None:
    """Raise Refused or Stopped, before the user is asked, if a resume or a rollback would raise it before its first
    write.
    """
    journal = find_journal(device, file, any_table=restore_table)
    if journal is not None:
        state = _disk_state(device, journal)
        if not _refuse_changed_disk(device, journal, state, back=back, restore_table=restore_table):
            _is_complete(device, journal, state)


def _refuse_changed_disk(
    device: Device, journal: Journal, state: disk_state.DiskState, *, back: bool, restore_table: bool
) -> bool:
    """Raise Refused or Stopped if another program has written to the disk in flight. Return whether content that was
    released is covered by the old table, which `restore_table` removes: then it is released again.
    """
    plan, images = journal.contents.plan, journal.contents.images
    is_changed = state is disk_state.DiskState.CHANGED
    if is_changed and disk_state.is_used(device, plan):
        # Without the parked entry nothing is in flight.
        hint = f"{by_hand(ByHand.SIGNATURES, 'wipefs', 'DISK')}\naligntool audit DISK"
        raise Refused(f"{disk_state.USED}; nothing was written", hint=hint, code="table-changed")
    covered = images.of_whole_disk and whole_disk.is_covered(device, journal)
    is_compared = restore_table or (images.of_whole_disk and not covered) or not is_changed
    if state in _UNFINISHED and is_compared:
        _refuse_changed_content(device, journal, back=back, restore_table=restore_table, covered=covered)
    if state is disk_state.DiskState.CHANGED and not restore_table:
        hint = f"aligntool {'rollback' if back else 'resume'} DISK --restore-table, which shows both tables and asks"
        raise Refused(f"{CHANGED_TABLE}; nothing was written", hint=hint, code="table-changed")
    return covered


def _is_complete(device: Device, journal: Journal, state: disk_state.DiskState) -> bool:
    """Return whether the new table was written. Raises Stopped if the journal says so, but neither that table nor all
    of the new content is there.
    """
    if state is disk_state.DiskState.LEFT:
        return True
    complete = disk_state.is_complete(journal) or state is disk_state.DiskState.COMPLETE
    if complete and table_state(device, journal.contents.images) is not TableState.AFTER:
        in_flight.check_rebuilt(device, journal, whole_disk.marker_of(journal), after=True)
    return complete


_UNFINISHED = (disk_state.DiskState.CHANGED, disk_state.DiskState.IN_FLIGHT, disk_state.DiskState.UNREADABLE)


def _refuse_changed_content(
    device: Device, journal: Journal, *, back: bool, restore_table: bool, covered: bool
) -> None:
    """Raise Stopped if another program has written where content is in flight: neither direction may overwrite it."""
    changes = tuple(_content_changes(device, journal, back=back, restore_table=restore_table, covered=covered))
    if changes:
        text = f"{_changed_sentence(changes)}; nothing was written, and the journal is kept"
        is_whole = all(change.is_used for change in changes)
        raise Stopped(f"{text}: {in_flight.STAYS if is_whole else in_flight.CHOOSE}")


def _content_changes(
    device: Device, journal: Journal, *, back: bool, restore_table: bool = False, covered: bool = False
) -> Iterator[in_flight.Change]:
    """Yield where another program has written. `back`: also where only a rollback overwrites something. `covered`:
    content is released again that a table lies over.
    """
    if disk_state.is_complete(journal) and not covered:
        return
    sign = whole_disk.marker_of(journal)
    images = journal.contents.images.sectors if restore_table else ()
    table_places = tuple(Extent(sectors.at, len(sectors.data)) for sectors in images)
    if back or not covered:  # from the release on, nothing else is written
        yield from in_flight.changes(device, journal, sign, back=back, restore_table=restore_table)
        for start, what in newcomers(device, journal):
            yield in_flight.Change(None, start, f"something new, {what}")
    for index, step in enumerate(journal.contents.plan.steps):
        if (back or covered) and isinstance(step, steps.ReleaseContent) and index < journal.position.step:
            content = patched(step.held, journal.contents.held[step.partition], step.patches)
            view = View(step.held, content, step.target.length, sign)
            at = in_flight.first_difference(device, step.target.start, view, table_places)
            if at is not None:
                yield in_flight.Change(step.partition, at)


def _changed_sentence(changes: Sequence[in_flight.Change]) -> str:
    where = ", ".join(f"{change.what or f'partition {change.partition}'} (byte {change.at})" for change in changes)
    return f"another program has written to content in flight: {where}"


def _end_unbegun(walk: Walk) -> Iterator[Event]:
    """Close the journal of a move that was not begun, unless it is a file: this disk may be a backup of the one in
    flight, which looks the same, and that one needs the file."""
    yield Said(_NOTHING_BEGUN)
    _clear_after_rollback(walk)
    if walk.place.file:
        yield Said("the journal file is kept: if this is a backup, the disk in flight needs it")
    else:
        walk.journal.close()


def _clear_after_rollback(walk: Walk) -> None:
    """Zero what a rollback would have zeroed before it wrote the old table, which another program put back earlier."""
    if not walk.journal.position.forward:
        walk.clear_new_places()


def _find_or_refuse(context: MoveContext, *, any_table: bool) -> Journal:
    journal = find_journal(context.device, context.journal, any_table=any_table)
    if journal is None:
        hint = "aligntool audit DISK shows the current state"
        raise Refused("nothing is in flight on this disk", hint=hint, code="not-in-flight")
    return journal


def _settle(walk: Walk, state: disk_state.DiskState, *, back: bool) -> Iterator[Event]:
    """Finish a change that adds or removes a table, if a cut left the disk in its old or its new state."""
    journal = walk.journal
    journal.repair_copies()
    whole_disk.complete_interrupted_writes(
        walk.device, journal, TableState.AFTER if state is disk_state.DiskState.COMPLETE else TableState.BEFORE
    )
    if state is disk_state.DiskState.NOT_BEGUN:
        return (yield from _end_unbegun(walk))
    if back:
        journal.close()
        raise _already_complete(back=True)
    journal.record(Position(disk_state.step_index(journal.contents.plan, steps.CloseJournal)))
    yield from walk.forward()


def _walk(context: MoveContext, journal: Journal) -> Walk:
    place, sign = disk_state.journal_place(journal.contents.plan), whole_disk.marker_of(journal)
    return Walk(context.device, context.kernel, journal, place, sign)


def _journal_contents(
    plan: Plan, context: MoveContext, runs: Runs, rebuilt: Mapping[int, tuple[bytes, ...]], at: int | None, id_: bytes
) -> Contents:
    """Return the contents of the journal, checked as far as possible before the first write."""
    device = context.device
    park = next(step for step in plan.steps if isinstance(step, steps.ParkEntries))
    rewrite = next((step for step in plan.steps if isinstance(step, steps.RewriteTable)), None)
    if rewrite is None:
        images = convert_images(device, plan, journal_at=at, journal_id=id_)
        state = table_state(device, images)
    elif whole_disk.adds_table(plan) is None:
        images = table.table_images(device, park, rewrite, journal_at=at, journal_id=id_, claims=claims_of(plan.steps))
        state = table_state(device, images)
    else:
        images = whole_disk.whole_images(device, plan, journal_at=at, journal_id=id_)
        state = table_state(device, images.without_sector_0(TableState.BEFORE))
    if state is not TableState.BEFORE:
        text = "the partition table has changed since the plan was made"
        raise Refused(text, hint="make a new plan", code="plan-stale")
    held = {step.partition: read_saved(device, step.source.start, step.held)
            for step in plan.steps if isinstance(step, steps.HoldContent)}  # fmt: skip
    for step in plan.steps:
        if isinstance(step, steps.RebuildContent):
            held[step.partition] = (*read_saved(device, step.extent.start, step.held), *rebuilt[step.partition])
    for step in plan.steps:
        if isinstance(step, steps.ReleaseContent):
            patched(step.held, held[step.partition], step.patches)
    copies = [step for step in plan.steps if isinstance(step, steps.CopyContent)]
    numbered_at = numbered_marker.place_for(plan, images, held) if at is None else None
    own, brought = own_content(device, plan, images), brought_content(device, plan)
    for gap in _GAPS:
        copied = {step.partition: _without_saved(_with_gaps_filled(runs[step.partition], gap), step) for step in copies}
        contents = Contents(plan, images, copied, held, numbered_at, own, brought)
        if BODY_AT + len(pack(contents)) <= disk_state.journal_place(plan).copy_length:
            break
    return contents


def _with_gaps_filled(runs: tuple[Extent, ...], gap: int) -> tuple[Extent, ...]:
    """Return the runs with every gap of at most `gap` bytes filled: more to copy, but less to store."""
    filled: list[Extent] = []
    for run in sorted(runs) if gap else runs:
        if gap and filled and run.start - filled[-1].end <= gap:
            start = filled.pop().start
            run = Extent(start, run.end - start)
        filled.append(run)
    return tuple(filled)


def _without_saved(runs: tuple[Extent, ...], step: steps.CopyContent) -> tuple[Extent, ...]:
    """Return the runs without the bytes that the journal has saved, which are not copied."""
    left = []
    for run in runs:
        start = run.start
        for held in sorted(step.held.ranges):
            if held.start < run.end and held.end > start:
                if held.start > start:
                    left.append(Extent(start, held.start - start))
                start = held.end
        if start < run.end:
            left.append(Extent(start, min(run.end, step.source.length) - start))
    return tuple(left)


def _stopping_on_errors(events: Iterator[Event]) -> Iterator[Event]:
    """Yield the events, and turn an OSError into Stopped, with the commands to continue."""
    try:
        yield from events
    except OSError as error:
        raise Stopped(f"{_move_sentence(error)}; the journal is kept", hint=RESUME) from error


def _move_sentence(error: OSError) -> str:
    if error.errno == errno.ENOSPC:  # an image or a thin volume; a disk has all of its bytes
        return f"{error.strerror}: free some space where the image or the journal file is stored"
    return f"{error.filename or 'the disk'}: {error.strerror or error}"
