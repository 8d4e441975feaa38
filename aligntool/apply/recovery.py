"""Where a disk stands, from the disk alone.

In: a disk, and the journal's file where it lies elsewhere. Out: the journal, or that there is none; and the state in
words. Alone because whoever comes to a half-moved disk, on another machine, knows nothing but its name.

A journal is found through a parked entry, else through a marker at the start of an entry, else by its magic in the last
256 MiB; when a copy of the table is damaged, in the last and first 16 GiB.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from aligntool.apply.device import Device
from aligntool.apply.journal import GRID, Journal
from aligntool.apply.journal_pieces import LostPiece
from aligntool.apply.journal_sectors import SLOT, Head, is_head, read_head
from aligntool.apply.partition_tables import ParkedMark, TableState, find_parked, table_state
from aligntool.apply.partition_tables.mbr import is_readable
from aligntool.apply.partition_tables.parked import places_in_torn_entries
from aligntool.apply.partition_tables.starts import entry_starts, is_sound
from aligntool.apply.standing import MARKER, Standing, has_markers, index_of, peek, place_of, standing
from aligntool.apply.table_writer import is_ours
from aligntool.apply.walk import progress
from aligntool.errors import Refused
from aligntool.plan import CopyContent, HoldContent, ParkEntries, Plan
from aligntool.units import GIB, align_down

SEARCHED = 16 * GIB
NEAR_THE_END = GIB // 4  # where journals usually lie; looked through whenever nothing else tells of one
CHANGED_TABLE = "another program changed the partition table since the move began, or removed it"


@dataclass(frozen=True, slots=True)
class Status:
    """`state`: "old" (nothing is in flight) or "in-flight"; the rest is of the plan that is in flight."""

    state: str
    sentences: tuple[str, ...]
    plan: Plan | None = None
    step: int = 0  # index of the one that is next
    done: int = 0  # bytes at their new place
    total: int = 0
    forward: bool = True  # False: it was being taken back
    restore_table: bool = False  # another program changed the table


def find_journal(device: Device, file: Device | None, *, any_table: bool = False) -> Journal | None:
    """None: nothing is in flight. `file`: the journal that the user names.

    `any_table`: look for it as if there were no table, and take it whatever the table is.

    Raises Refused when something is in flight and the journal cannot be had.
    """
    mark = find_parked(device)
    id_ = None if mark is None else mark.journal_id
    if file is not None:
        return _intact(_checked(Journal.open(file, 0), device, id_, in_file=True))
    refusal: Refused | None = None
    if mark is not None:
        try:
            journal = _of_mark(device, mark)
        except Refused as error:
            refusal = error  # what the entry says may be torn: the journal may be found all the same
        else:
            return _intact(journal)
    sound = is_sound(device)
    found = _search_for(device, mark, sound=sound, any_table=any_table)
    if isinstance(found, Journal):
        return _intact(found)
    refusal = refusal or found
    if refusal is None and not sound and None in places_in_torn_entries(device):
        refusal = _elsewhere()
    if refusal is not None and not (mark and mark.only_backup):
        raise refusal
    return None


def _search_for(
    device: Device, mark: ParkedMark | None, *, sound: bool, any_table: bool
) -> Journal | LostPiece | None:
    """Return the journal to which no entry leads, or that one is there of which a piece is lost.

    One whose markers are on the disk goes before all others. Raises Refused where several may be meant.
    """
    lost = None
    perhaps: dict[int, Journal] = {}
    for at, is_marked in _candidates(device, sound=sound and not any_table):
        try:
            journal = Journal.open(device, at)
            _checked(journal, device, mark.journal_id if mark and mark.sound else None)
        except LostPiece as error:
            lost = lost or (None if sound else error)
            continue
        except Refused:
            continue
        if _counts(device, journal, sound=sound, is_marked=is_marked, any_table=any_table):
            if is_marked or has_markers(device, journal):
                return journal
            perhaps[journal.at] = journal
    return lost or (_only(list(perhaps.values())) if perhaps else None)


def _only(journals: list[Journal]) -> Journal:
    """Return the one of a move that was begun; of one that was not nothing is left but a journal that nobody closed.

    Raises Refused where there are several.
    """
    begun = [one for one in journals if one.lost_slots or _is_begun(one)]
    if len(begun or journals) > 1:
        places = " and ".join(str(one.at) for one in begun or journals)
        raise Refused(f"there are journals at bytes {places}, and nothing shows which of them is that of this disk",
                      hint="keep the disk as it is, and copy it with ddrescue")  # fmt: skip
    return (begun or journals)[0]


def _is_begun(journal: Journal) -> bool:
    return journal.position.step > index_of(journal.contents.plan, ParkEntries)


def _counts(device: Device, journal: Journal, *, sound: bool, is_marked: bool, any_table: bool) -> bool:
    """Return whether this journal, to which no entry led, is that of a move in flight."""
    images = journal.contents.images
    state = table_state(device, images)
    if state is not TableState.OTHER or is_ours(device, images):
        whole = sound and state in (TableState.BEFORE, TableState.AFTER)
        return (
            is_marked or not whole
        )  # else one that could not be wiped, beside a table that is as it should be
    return (
        (any_table and _is_begun(journal))
        or is_marked
        or not is_readable(device)
        or has_markers(device, journal)
    )


def _intact(journal: Journal) -> Journal:
    """Return it. Raises Refused where its newest record may be lost: to go on from an older one would do a step again
    whose source is overwritten.
    """
    if journal.lost_slots:
        places = " and ".join(f"at byte {at}" for at in journal.lost_slots)
        raise Refused(
            f"the journal at byte {journal.at} is damaged: the record {places} cannot be read in either of its two"
            " copies, and it may be the newest, the one that tells how far the move came; nothing is done from an"
            " older one",
            hint="keep the disk as it is, and copy it with ddrescue: a sector that is read at last is enough",
        )
    return journal


def _of_mark(device: Device, mark: ParkedMark) -> Journal:
    if mark.journal_at is None:
        raise _elsewhere()
    if mark.journal_at % GRID or mark.journal_at >= device.size:
        raise Refused(f"an entry names a journal at byte {mark.journal_at}, where none can be")
    return _checked(Journal.open(device, mark.journal_at), device, mark.journal_id)


def _elsewhere() -> Refused:
    return Refused(
        "partitions of this disk are in flight, and their journal is in a file on another disk",
        hint="aligntool resume DISK --journal FILE",
    )


def status(device: Device, file: Device | None, *, any_table: bool = False) -> Status:
    """Raises Refused like `find_journal`."""
    journal = find_journal(device, file, any_table=any_table)
    if journal is None:
        return Status("old", ("nothing is in flight on this disk", *_unsearched(device)))
    position, plan = journal.position, journal.contents.plan
    stands = standing(device, journal)
    if stands is Standing.LEFT:
        return Status("old", ("the move is complete, and the partition table was changed since",))
    done, total = progress(journal)
    sentences = (_sentence(stands, forward=position.forward), *_on_table(stands), *journal.damage)
    restore = stands is Standing.CHANGED
    return Status("in-flight", sentences, plan, position.step, done, total, position.forward, restore)


def _sentence(stands: Standing, *, forward: bool) -> str:
    match stands:
        case Standing.NOT_BEGUN:
            return "a move was prepared and not begun: every partition is where it was, and whole"
        case Standing.COMPLETE:
            return "every partition is at its new place, and whole; what is left is to close the journal"
    if forward:
        return "partitions of this disk are being moved; the work stopped on the way"
    return "a move of partitions was being taken back; the work stopped on the way"


def _on_table(stands: Standing) -> tuple[str, ...]:
    match stands:
        case Standing.UNREADABLE:
            return ("the partition table cannot be read; it will be written anew from the journal",)
        case Standing.CHANGED:
            return (CHANGED_TABLE,)
    return ()


def _checked(journal: Journal, device: Device, id_: bytes | None, *, in_file: bool = False) -> Journal:
    """A larger disk will do: everything is at the same bytes of a copy (dd) on one. So will a disk that lacks what
    the old one had behind its last whole sector, which no Device shows.
    """
    subject, place = journal.contents.plan.disk, place_of(journal.contents.plan)
    if (place.extent.start, place.file is not None) != (journal.at, in_file):
        raise Refused(
            "this journal was written at another place: it is a copy, or that of a disk image inside this disk",
            hint="give the disk whose partitions are in flight",
        )
    if device.size < align_down(subject.size, subject.sector_size):
        raise Refused(f"this journal belongs to a disk of {subject.size} bytes; this one has {device.size}",
                      hint="give the disk whose partitions are in flight")  # fmt: skip
    if device.sector_size > subject.sector_size:
        raise Refused(
            f"the move was begun with sectors of {subject.sector_size} bytes; here the disk has {device.sector_size}",
            hint="attach the disk as it was attached then: some USB adapters change its sectors",
        )
    if id_ != journal.id if id_ is not None else _is_marked_by_another(device, journal):
        raise Refused(
            "this journal belongs to another move", hint="give the journal that was named when the move began"
        )
    return journal


def _is_marked_by_another(device: Device, journal: Journal) -> bool:
    """Whether another move has marked what this one takes for whole, or for marked by itself.

    An MBR has no room for a journal's id, and the file of a move that never began may lie beside that of the one in
    flight.
    """
    contents, size = journal.contents, device.sector_size
    if journal.position.step > index_of(contents.plan, CopyContent):
        return False
    for step in contents.plan.steps:
        if isinstance(step, HoldContent):
            was = contents.held[step.partition][0]
            found = peek(device, step.source.start, len(was))
            for at in range(0, len(found), size):
                marker = MARKER.match(found, at, at + size)
                if (
                    marker
                    and marker[1] != journal.id.hex().encode()
                    and found[at : at + size] != was[at : at + size]
                ):
                    return True
    return False


def _unsearched(device: Device) -> tuple[str, ...]:
    """A sentence where there may be a journal that was not looked for."""
    if device.size <= 2 * SEARCHED or is_readable(device):
        return ()
    return (
        f"no partition table is readable, and no journal is in the first and last {SEARCHED // GIB} GiB;"
        " what lies between was not searched",
    )


def _candidates(device: Device, *, sound: bool) -> Iterator[tuple[int, bool]]:
    """Where a journal may be, and whether a marker says so."""
    if not sound:
        places = places_in_torn_entries(device)
        yield from ((at, False) for at in places if at is not None and at % GRID == 0)
    for start in entry_starts(device):
        if start + 4096 <= device.size:
            found = MARKER.match(peek(device, start, 4096))
            if found and found[2]:
                yield int(found[2]), True
    yield from ((at, False) for at in _search(device, NEAR_THE_END if sound else SEARCHED))


def _second_head(device: Device, at: int) -> Head | None:
    """Return the head of a second copy; the one of the first may be damaged."""
    with suppress(Refused):
        return read_head(device, at, 1)
    return None


def _search(device: Device, length: int) -> Iterator[int]:
    last = align_down(device.size - GRID, GRID)
    backwards = range(last, max(last - length, 0), -GRID)
    forwards = range(0, max(min(length, last - length), 0) if length == SEARCHED else 0, GRID)
    for places in (backwards, forwards):
        for at in places:
            if is_head(peek(device, at, SLOT)):
                second = _second_head(device, at)
                yield at if second is None else at - second.copy_length
