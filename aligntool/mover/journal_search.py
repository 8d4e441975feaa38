"""Find the journal of a move in flight from the disk alone: on another machine, nothing else is known.

It is found through a parked entry, otherwise through a marker at the start of an entry, otherwise by its
magic: where journals are placed (journal_places.py); if a copy of the table or a chain of EBRs is damaged, in
the last and first 16 GiB, too.
"""

from collections.abc import Iterator

from aligntool.commands import DISK, ByHand, Hint, by_hand, command
from aligntool.device import Device
from aligntool.errors import Refused
from aligntool.formats import parked
from aligntool.mover import disk_state, numbered_marker, whole_disk
from aligntool.mover.journal import Journal
from aligntool.mover.journal_format import SLOT, LostPart, NoJournal, head_or_none, is_head
from aligntool.mover.journal_match import is_begun, is_of_this_move, matching, refuse_other_disk
from aligntool.mover.journal_places import (
    AROUND_DAMAGE,
    GRID,
    LONGEST_USUAL,
    NEAR_THE_END,
    NEAR_THE_START,
    searched_places,
)
from aligntool.mover.table import is_readable
from aligntool.units import Extent, align_down


def find_journal(device: Device, file: Device | None, *, any_table: bool = False) -> Journal | None:
    """Return the journal of a move in flight, or None. `file`: the journal that the user named.

    `any_table`: search as if there were no table, and accept the journal whatever the table is.

    Raises Refused if a move is in flight and its journal is not available.
    """
    entry = parked.find_parked(device)
    # half of the id in a torn entry may be of another one
    id_ = entry.journal_id if entry and entry.sound else None
    if file is not None:
        journal = _in_file(file, device, entry)
        if id_ is None and journal.at == 0:
            refuse_other_disk(device, journal, is_parked=entry is not None and entry.journal_at is None)
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
    sound = parked.is_table_intact(device) and is_readable(device)
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

    A journal whose markers are on the disk is preferred to all others. Raises Refused if several journals
    qualify.
    """
    lost = None
    unmarked: dict[int, Journal] = {}
    for at, marker in _candidates(device, sound=sound and not any_table):
        try:
            journal = Journal.open(device, at)
            matching(journal, device, entry.journal_id if entry and entry.sound else None)
            is_marked = marker in content_starts(device, journal.contents.plan.disk.sector_size)
        except LostPart as error:
            lost = lost or (None if sound else error)
            continue
        except Refused:
            continue
        if is_of_this_move(device, journal, sound=sound, is_marked=is_marked, any_table=any_table):
            if is_marked or disk_state.has_markers(device, journal):
                return journal
            unmarked[journal.at] = journal
    return lost or (_only_begun(list(unmarked.values())) if unmarked else None)


def journal_in_flight(device: Device) -> int | None:
    """Return the byte of the journal of a change that is in flight on a disk whose table does not show it, or
    None. Only the places are searched to which a marker leads, and those where journals usually are. Raises
    Refused if several journals qualify.
    """
    found = _search_journal(device, None, sound=True, any_table=False)
    return found.at if isinstance(found, Journal) else None


def _only_begun(journals: list[Journal]) -> Journal:
    """Return the journal of a move that was begun; a move that never began only left a journal that was not
    closed.

    Raises Refused if there are several.
    """
    begun = [journal for journal in journals if journal.lost_slots or is_begun(journal)]
    if len(begun or journals) > 1:
        places = " and ".join(str(journal.at) for journal in begun or journals)
        text = f"there are journals at bytes {places}, and nothing shows which of them belongs to this disk"
        raise Refused(text, hint="leave the disk as it is, and copy it with ddrescue")
    return (begun or journals)[0]


def _with_newest_record(journal: Journal) -> Journal:
    """Return the journal. Raises Refused if its newest record may be lost: to continue from an older one
    would repeat a step whose source is overwritten.
    """
    if journal.lost_slots:
        places = " and ".join(f"at byte {at}" for at in journal.lost_slots)
        newest = "it may be the newest, which records how far the move got; an older one must not be used"
        text = f"the record {places} cannot be read in either of its two copies, and {newest}"
        hint = "leave the disk as it is, and copy it with ddrescue: one recovered sector may be enough"
        raise Refused(
            f"the journal at byte {journal.at} is damaged: {text}", hint=hint, code="journal-damaged"
        )
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
        leave = "leave the disk as it is, also its table, and copy it with ddrescue"
        whole = by_hand(ByHand.LOST_JOURNAL, "sfdisk", "a partition whose content is recognised and whole")
        hint = Hint(leave, "\n", whole)
        text = f"partitions of this disk are in flight, but {error}"
        raise Refused(text, hint=hint, code="journal-damaged") from error
    return matching(journal, device, entry.journal_id)


def _in_file(file: Device, device: Device, entry: parked.ParkedMark | None) -> Journal:
    """Return the journal in the file that the user named. If the file has none, and the entry names a byte,
    return the journal at that byte: of the file, where an older version wrote that of a shrink, or of the
    disk, where the journal of a shrink is if the file was too short.
    """
    id_ = entry.journal_id if entry and entry.sound else None
    try:
        return matching(Journal.open(file, 0, disk_size=device.size), device, id_, file=file)
    except NoJournal as error:
        if entry is None:
            raise
        if entry.journal_at is None:
            raise _in_file_elsewhere("the file that was named contains none") from error
    try:
        return matching(Journal.open(file, entry.journal_at, disk_size=device.size), device, id_)
    except NoJournal:
        return _named_by_entry(device, entry)


def _in_file_elsewhere(why: str = "") -> Refused:
    text = (
        "partitions of this disk are in flight, and their journal is in a file on another disk, which begins"
        " with the words aligntool journal; the log of the system that began this has its path: journalctl -t"
        " aligntool"
    )
    if why:
        text = f"{text}; {why}"
    hint = Hint(command("resume", DISK, "--journal FILE"), "\n", command("rollback", DISK, "--journal FILE"))
    return Refused(text, hint=hint, code="journal-elsewhere")


def _candidates(device: Device, *, sound: bool) -> Iterator[tuple[int, int | None]]:
    """Yield each byte where a journal may be, and the place of the marker that names it, or None."""
    if not sound:
        places = parked.journals_in_torn_entries(device)
        yield from ((at, None) for at in places if at is not None and at % GRID == 0)
    for start in content_starts(device, device.sector_size, 4096):  # an image may have an MBR for the latter
        if start + 4096 <= device.size:
            found = disk_state.MARKER.match(parked.read_or_empty(device, start, 4096))
            if found and found[2]:
                yield int(found[2]), start
    yield from ((at, None) for at in _find_heads(device, sound=sound))


def content_starts(device: Device, *sector_sizes: int) -> tuple[int, ...]:
    return 0, *parked.partition_starts(device, sector_sizes)  # byte 0: content may lie on the whole disk


def usual_places(
    device: Device, *, at_the_end: int = NEAR_THE_END, at_the_start: int = NEAR_THE_START
) -> Iterator[int]:
    """Yield the multiples of GRID where journals are placed, the last one first."""
    parts = {start: Extent(start, 0) for start in parked.partition_starts(device, (device.sector_size, 4096))}
    parts |= {listed.start: listed for listed in sorted(disk_state.listed_places(device))}
    places = searched_places(device.size, parts.values(), at_the_end=at_the_end, at_the_start=at_the_start)
    last = align_down(device.size - GRID, GRID)
    for each in reversed(places):
        yield from _outside_of_holes(device, range(min(last, each.end - GRID), each.start - 1, -GRID))


def _outside_of_holes(device: Device, places: range) -> Iterator[int]:
    """Yield places GRID bytes from each other, but none of a stretch that is a hole of a sparse image."""
    count = LONGEST_USUAL // GRID
    for number in range(0, len(places), count):
        piece = places[number : number + count]
        lowest = min(piece[0], piece[-1])
        if not device.is_hole(lowest, min(len(piece) * GRID, device.size - lowest)):
            yield from piece


def _find_heads(device: Device, *, sound: bool) -> Iterator[int]:
    end, start = (NEAR_THE_END, NEAR_THE_START) if sound else (AROUND_DAMAGE, AROUND_DAMAGE)
    for at in usual_places(device, at_the_end=end, at_the_start=start):
        if is_head(read_unless_hole(device, at, SLOT)):
            second = head_or_none(device, at, 1)  # the head of the first copy may be damaged
            yield at if second is None else at - second.copy_length


def read_unless_hole(device: Device, at: int, length: int) -> bytes:
    return b"" if device.is_hole(at, length) else parked.read_or_empty(device, at, length)
