"""Compare a journal with a disk: whether it belongs to it, and in which state its move is."""

from aligntool import steps
from aligntool.device import Device
from aligntool.errors import Refused
from aligntool.formats import parked
from aligntool.mover import disk_state, in_flight, whole_disk
from aligntool.mover.convert_table import rebuilt_halves
from aligntool.mover.journal import Journal
from aligntool.mover.steps import patched
from aligntool.mover.table import TableState, is_own_table, is_readable, table_state
from aligntool.units import align_down


def state_of(device: Device, journal: Journal) -> disk_state.DiskState:
    whole = journal.contents.images.of_whole_disk
    return (
        whole_disk.find_whole_disk_state(device, journal)
        if whole
        else disk_state.find_disk_state(device, journal)
    )


def is_begun(journal: Journal) -> bool:
    """Return whether the table was parked, or may have been: a rollback has not ended before the old one is
    there.
    """
    return not journal.position.forward or journal.position.step > journal.contents.plan.park_at


def is_of_this_move(
    device: Device, journal: Journal, *, sound: bool, is_marked: bool, any_table: bool
) -> bool:
    """Return whether this journal, to which no entry led, belongs to a move that is in flight."""
    images = journal.contents.images
    plan = journal.contents.plan
    # A journal that was begun and is not finished is never settled, whatever the table is now.
    unfinished = is_begun(journal) and not disk_state.is_complete(journal)
    if images.of_whole_disk:
        begun = is_begun(journal) and (any_table or disk_state.has_markers(device, journal))
        return is_marked or begun or whole_disk.is_unsettled(device, journal)
    state = table_state(device, images)
    if state is not TableState.OTHER or is_own_table(device, images):
        found = disk_state.find_disk_state(device, journal)
        is_back = state is TableState.BEFORE and found is disk_state.DiskState.IN_FLIGHT
        is_replaced = is_back or found is disk_state.DiskState.CHANGED  # by another program
        settled = sound and state in (TableState.BEFORE, TableState.AFTER) and not is_replaced
        unfinished &= found not in (disk_state.DiskState.COMPLETE, disk_state.DiskState.NOT_BEGUN)
        return is_marked or unfinished or not settled  # otherwise a journal whose heads could not be wiped
    if disk_state.covers_content(plan):
        return journal.position.step < plan.commit_at and unfinished
    return (
        (any_table and is_begun(journal))
        or is_marked
        or not is_readable(device)
        or disk_state.has_markers(device, journal)
        or (
            is_begun(journal)
            and not disk_state.has_ended(device, journal)
            and _has_new_content(device, journal)
        )
        or (disk_state.is_complete(journal) and disk_state.lists_old_place(device, plan))
    )


def matching(journal: Journal, device: Device, id_: bytes | None, *, file: Device | None = None) -> Journal:
    """Return the journal, or raise Refused if it does not fit the disk.

    A larger disk fits: a copy (dd) has everything at the same offsets. So does a disk that lacks only the
    bytes after the last whole sector of the old one, which no Device shows.
    """
    subject = journal.contents.plan.disk
    place = journal.contents.plan.journal
    text = ""
    hint = "give the disk whose partitions are in flight"
    if (place.extent.start, place.file is not None) != (journal.at, file is not None):
        text = (
            "this journal was written at another place: it is a copy, or belongs to a disk image inside this"
            " disk"
        )
    elif file is not None and file.size < place.extent.end:
        text = f"this journal file is truncated: it has {file.size} of {place.extent.end} bytes"
        hint = "give the complete file that was named when the move began"
    elif device.size < align_down(subject.size, subject.sector_size):
        text = f"this journal belongs to a disk of {subject.size} bytes; this one has {device.size}"
    elif device.sector_size > (begun := whole_disk.shortest_write(journal)):
        text = f"the move was begun with sectors of {begun} bytes; the disk now has {device.sector_size}"
        hint = "attach the disk as it was attached then: some USB adapters change its sector size"
    elif id_ != journal.id if id_ is not None else _is_marked_by_another(device, journal):
        text = "this journal belongs to another move"
        hint = "give the journal that was named when the move began"
    if text:
        raise Refused(text, hint=hint, code="wrong-journal")
    return journal


def _is_marked_by_another(device: Device, journal: Journal) -> bool:
    """Return whether another move has written markers where this one expects content, or its own markers.

    An MBR has no room for a journal's id, and the journal file of a move that never began may exist as well
    as that of the move in flight.
    """
    contents = journal.contents
    plan = contents.plan
    size = device.sector_size
    if not plan.holds or journal.position.step > plan.index_of(steps.CopyContent):
        return False
    for step in plan.holds:
        saved = contents.held[step.partition][0]
        found = parked.read_or_empty(device, step.source.start, len(saved))
        for at in range(0, len(found), size):
            marker = disk_state.MARKER.match(found, at, at + size)
            if (
                marker
                and marker[1] != journal.id.hex().encode()
                and found[at : at + size] != saved[at : at + size]
            ):
                return True
    return False


def refuse_other_disk(device: Device, journal: Journal, *, is_parked: bool) -> None:
    """Raise Refused unless the disk shows that the move of this journal, which is a file, is in flight on it:
    a backup made before the move lacks what the journal records as copied, and an older copy of the file
    would repeat batches on a disk whose move was finished or undone. `is_parked`: an entry states that a
    journal is in a file; a conversion leaves no other mark of itself.
    """
    plan = journal.contents.plan
    step = journal.position.step
    images = journal.contents.images
    shown = table_state(device, images)
    uncommitted = shown is TableState.AFTER and step < plan.commit_at
    marked = disk_state.has_markers(device, journal, only_at_source=shown is TableState.BEFORE)
    if not uncommitted and (marked or _has_new_content(device, journal)):
        return
    untouched = step <= plan.park_at
    state = state_of(device, journal)
    is_parked = is_parked and bool(plan.conversion)
    match shown:
        case TableState.PARKED | TableState.BEFORE:
            begun = shown is TableState.PARKED or (untouched and _has_old_content(device, journal))
        case TableState.AFTER:
            is_undoing = not journal.position.forward and untouched and _has_old_content(device, journal)
            begun = is_undoing or (state is disk_state.DiskState.COMPLETE and not uncommitted)
        case _ if state is disk_state.DiskState.LEFT:
            begun = disk_state.is_complete(journal)
        case _:
            begun = disk_state.has_evidence(device, journal) or (is_parked and is_own_table(device, images))
            begun &= is_parked or state is not disk_state.DiskState.CHANGED
            begun &= untouched or state is not disk_state.DiskState.NOT_BEGUN
    if not begun:
        text = (
            "this journal's move is not in flight on this disk: it may be a backup, or the file an older copy"
        )
        raise Refused(text, hint="give the disk whose partitions are in flight", code="wrong-journal")


def _has_old_content(device: Device, journal: Journal) -> bool:
    """Return whether all bytes that the journal has saved are at their old place: a blank disk may have the
    same table, which is none.
    """
    sign = whole_disk.marker_of(journal)
    held = journal.contents.plan.holds
    views = ((step.source.start, in_flight.source_view(journal, step, sign)) for step in held)
    return all(in_flight.compare(device, start, view).other is None for start, view in views)


def _has_new_content(device: Device, journal: Journal) -> bool:
    """Return whether bytes that a step writes last, and only on the disk in flight, are at their new place:
    all of a partition that was moved, or a sector of content that is rebuilt, or its hidden signature. Blank
    bytes show nothing: another disk has them too.
    """
    held = journal.contents.held
    released = []
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
