"""Compare a disk's table with the journal of a move, and build the table that a restore writes."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from aligntool import steps
from aligntool.change import MovePlan, Plan
from aligntool.contents.layers import read_layers
from aligntool.device import Device, Sectors
from aligntool.errors import Refused
from aligntool.formats.parked import read_or_empty
from aligntool.formats.tables import read_table
from aligntool.inventory import Layer, Role
from aligntool.mover import table as tables
from aligntool.mover.journal import Journal
from aligntool.mover.table import TableImages, TableState, all_sectors, is_readable, table_state
from aligntool.units import Extent, align_down, align_up

# The state of a disk, from its table and the journal of a move. It decides what may be written.
#
# `status`, `resume` and `rollback` must find the same state; an unreadable table must not be mistaken for one
# that was changed on purpose.

MARKER = re.compile(
    rb"aligntool: .*\njournal ([0-9a-f]{32}) (?:at byte ([0-9]+)|in a file elsewhere)\n", re.DOTALL
)
USED = "another program has written to the file system since its shrink stopped"
_MOST_FLIPPED = 16  # bytes that may differ in a sector that is damaged, but still recognised as that sector


class DiskState(Enum):
    NOT_BEGUN = auto()  # every partition is at its old place, and whole
    IN_FLIGHT = auto()
    COMPLETE = auto()  # every partition is at its new place, and whole
    # As COMPLETE, or as NOT_BEGUN with an MBR, but the table was changed since: the user continued to use the
    # disk.
    LEFT = auto()
    # in flight or complete; no table is readable, but there is evidence of the journal's move
    UNREADABLE = auto()
    # In flight; there is another table, or no table and no evidence of the journal's move. Or complete, but
    # the table lists an old place, where the content is not any more.
    CHANGED = auto()


def find_disk_state(device: Device, journal: Journal) -> DiskState:
    """Return the state of the disk according to its table and the journal. Raises OSError."""
    plan = journal.contents.plan
    images = journal.contents.images
    step = journal.position.step
    table = table_state(device, images)
    complete = is_complete(journal)
    shown = tables.shows_table(device, images)
    if shown and (table is not TableState.OTHER or tables.is_own_table(device, images)):
        if table is TableState.BEFORE and step <= plan.park_at:
            # A rollback removes its markers before it writes the old table; another program does not wait for
            # that.
            is_settled = journal.position.forward or not has_markers(device, journal)
            return DiskState.NOT_BEGUN if is_settled else DiskState.IN_FLIGHT
        if table is TableState.OTHER and _has_other_chain(device, images):
            is_released = (
                journal.position.forward and step >= plan.commit_at and not lists_old_place(device, plan)
            )
            return DiskState.LEFT if is_undone(journal) or is_released else DiskState.CHANGED
        is_old = table is TableState.BEFORE and images.before != images.after
        if complete and (is_old or lists_old_place(device, plan)):
            return DiskState.CHANGED
        if table is TableState.OTHER and complete and is_readable(device):
            return DiskState.LEFT  # the MBR is unchanged, the chain of EBRs is not
        committed = table is TableState.AFTER or (
            table is TableState.BEFORE and images.before == images.after
        )
        if complete or (committed and step >= plan.commit_at):
            return DiskState.COMPLETE
        return DiskState.IN_FLIGHT
    if shown is False or (shown and is_readable(device)) or covers_content(plan):
        ended = has_ended(device, journal)
        return DiskState.LEFT if ended and not lists_old_place(device, plan) else DiskState.CHANGED
    known = has_evidence(device, journal) and not any(
        foreign_content(device, journal, [Extent(0, device.size)])
    )
    return DiskState.UNREADABLE if known else DiskState.CHANGED


def is_undone(journal: Journal) -> bool:
    """Return whether nothing was parked yet, or a rollback has shown everything at its old place again: only
    the old table was to be written.
    """
    return journal.position.step <= journal.contents.plan.park_at


def _has_other_chain(device: Device, images: TableImages) -> bool:
    """Return whether sector 0 is that of the old or the new MBR, but leads to an EBR that is of neither:
    another program has changed the chain since, as sector 0 is parked in flight, and written last.
    """
    unparked = {one.data for one in all_sectors((*images.before, *images.after)) if one.at == 0}
    parked = {one.data for one in all_sectors(images.parked) if one.at == 0}
    if not any(bytes(device.read(0, len(data))) == data for data in unparked - parked):
        return False
    own = {(one.at, one.data) for one in images.sectors}
    try:
        chains = tables.sound_mbr(device, with_chains=True).chains
    except Refused:
        return False
    return any(record not in own for chain in chains for record in chain.sectors.items())


def has_ended(device: Device, journal: Journal) -> bool:
    """Return whether the change is complete, whatever its record says: all content was released at its new
    places, and the table lists each of them, at least as long as planned. The new table was durable then, its
    record was not, and the disk was used since: a system grows the last partition at its next start.
    """
    if is_complete(journal):
        return True
    position = journal.position
    plan = journal.contents.plan
    if not position.forward or position.step != plan.commit_at:
        return False
    longest: dict[int, int] = {}
    for extent in listed_places(device):
        longest[extent.start] = max(extent.length, longest.get(extent.start, 0))
    return all(place.after.length <= longest.get(place.after.start, -1) for place in plan.places)


def is_owned(device: Device, extent: Extent) -> bool:
    """Return whether a partition of a table for sectors of either size has any of these bytes, or content
    that begins at byte 0 may have.
    """
    disk = LegibleDisk(device, ())
    readings = (read_table(disk, sector_size=size) for size in (512, 4096))
    parts = (part for reading in readings for part in reading.partitions)
    if any(part.role is not Role.EXTENDED and part.extent.overlaps(extent) for part in parts):
        return True
    try:
        layers = read_layers(disk, Extent(0, device.size), sector_size=device.sector_size)
    except OSError:
        return True
    return any(layer.claims_size is None or layer.claims_size > extent.start for layer in layers)


def listed_places(device: Device) -> frozenset[Extent]:
    """Return the places of the partitions, containers included, that the table lists."""
    reading = read_table(LegibleDisk(device, ()), sector_size=device.sector_size)
    return frozenset(part.extent for part in reading.partitions)


def lists_old_place(device: Device, plan: MovePlan) -> bool:
    """Return whether the table lists a place from which a partition moves, and to which none moves."""
    listed = listed_places(device)
    old = {step.source for step in plan.holds}
    new = {step.target for step in plan.releases}
    return bool(listed & (old - new))


def covers_content(plan: MovePlan) -> bool:
    """Return whether the sectors of the table are the head of content on the whole disk. A system that used
    the disk since has changed them, and they must not be written again.
    """
    return any(step.extent.start == 0 for step in plan.rebuilds)


def is_shrink(plan: MovePlan) -> bool:
    """Return whether the plan only writes a file system that was shrunk on a view."""
    return any(not step.sector_size for step in plan.rebuilds)


def is_used(device: Device, plan: MovePlan) -> bool:
    """Return whether the content on a whole disk whose head the plan writes can be recognised. If that head
    is CHANGED, a system has used the content: a cut in the last write of the head can leave it visible beside
    the parked entry.
    """
    return covers_content(plan) and any(
        layer.kind == step.kind
        for step in plan.rebuilds
        for layer in read_layers(LegibleDisk(device, ()), step.extent, sector_size=device.sector_size)
    )


def is_complete(journal: Journal) -> bool:
    """Return whether the new table was made durable, and was not rolled back since."""
    return journal.position.step > journal.contents.plan.commit_at


def has_markers(device: Device, journal: Journal, *, only_at_source: bool = False) -> bool:
    """Return whether a marker with this journal's id is at a place where its plan writes markers. A rollback
    removes those at the source, and leaves those at the target.
    """
    for step in journal.contents.plan.saved:
        if only_at_source and isinstance(step, steps.ReleaseContent):
            continue
        for extent in step.held.ranges:
            found = read_or_empty(device, step.place.start + extent.start, extent.length)
            for at in range(0, len(found), device.sector_size):
                marker = MARKER.match(found, at, at + device.sector_size)
                if marker and marker[1] == journal.id.hex().encode():
                    return True
    return False


def has_evidence(device: Device, journal: Journal) -> bool:
    """Return whether there is evidence that this disk is the one in flight: a sector of a table, or a
    marker.
    """
    sectors = _table_sectors(journal.contents.images, device.sector_size)
    return any(_is_nearly_intact(device, sector) for sector in sectors) or has_markers(device, journal)


def _table_sectors(images: TableImages, size: int) -> Iterator[Sectors]:
    for sectors in images.sectors:
        for at in range(0, len(sectors.data), size):
            data = sectors.data[at : at + size]
            if any(data):
                yield Sectors(sectors.at + at, data)


def _is_nearly_intact(device: Device, sector: Sectors) -> bool:
    found = read_or_empty(device, sector.at, len(sector.data))
    differing = sum(one != other for one, other in zip(found, sector.data, strict=False))
    return len(found) == len(sector.data) and any(found) and differing <= _MOST_FLIPPED


# The journal's table on a disk whose table another program changed.
#
# Both tables are shown and checked before anything is written.


@dataclass(frozen=True, slots=True)
class OverlaidDisk:
    """A reader of a disk that replaces some sectors."""

    device: Device
    sectors: Sequence[Sectors]

    @property
    def size(self) -> int:
        return self.device.size

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes at `offset`, fewer at the end of the disk. Raises OSError."""
        end = min(offset + length, self.size)
        if offset < 0 or end <= offset:
            return b""
        first, last = align_down(offset, self.device.sector_size), align_up(end, self.device.sector_size)
        content = bytearray(self.device.read(first, last - first))
        for part in self.sectors:
            start = max(first, part.at)
            until = min(last, part.at + len(part.data))
            if start < until:
                content[start - first : until - first] = part.data[start - part.at : until - part.at]
        return bytes(content[offset - first : end - first])


class LegibleDisk(OverlaidDisk):
    """A reader to which unreadable sectors are zeros: they must not hide what the readable ones show."""

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes at `offset`, fewer at the end of the disk."""
        try:
            return OverlaidDisk.read(self, offset, length)
        except OSError:
            if length <= self.device.sector_size:
                return bytes(min(length, self.size - offset))
        half = align_up(length // 2, self.device.sector_size)
        return self.read(offset, half) + self.read(offset + half, length - half)


def overlay(device: Device, journal: Journal) -> OverlaidDisk:
    """Return a reader of the disk as it would be once a resume has written the journal's table."""
    images = journal.contents.images
    writing = images.of(TableState.AFTER if is_complete(journal) else TableState.PARKED)
    return OverlaidDisk(device, (*all_sectors(tables.leftovers(device, images)), *all_sectors(writing)))


def foreign_content(
    device: Device, journal: Journal, places: Iterable[Extent]
) -> Iterator[tuple[Extent, Layer]]:
    """Yield what is recognised at places where the move hides its own content, and is not that content: to
    continue would overwrite it. The end of the last partition, which may have metadata there, is not the end
    of the disk.
    """
    own = _own_content(device, journal)
    plan = journal.contents.plan
    entries = (entry for place in plan.places for entry in (place.before, place.after) if entry)
    last_end = max((place.end for place in (*places_in_use(plan), *entries)), default=0)
    for place in places:
        layers = read_layers(
            LegibleDisk(device, ()), place, sector_size=device.sector_size, last_end=last_end
        )
        yield from ((place, layer) for layer in layers if (layer.kind, layer.uuid) not in own)


def _own_content(device: Device, journal: Journal) -> frozenset[tuple[str, str | None]]:
    """Return kind and UUID of the layers that the journal's saved bytes show at their places."""
    held = journal.contents.held
    found = set[tuple[str, str | None]]()
    for step in journal.contents.plan.saved:
        place = step.place
        count = len(step.held.ranges)
        for saved in (held[step.partition][:count], held[step.partition][count:] or held[step.partition]):
            parts = [
                Sectors(place.start + part.start, data)
                for part, data in zip(step.held.ranges, saved, strict=True)
            ]
            layers = read_layers(LegibleDisk(device, parts), place, sector_size=device.sector_size)
            found |= {(layer.kind, layer.uuid) for layer in layers}
    return frozenset(found)


def places_in_use(plan: Plan, *, with_journal: bool = True) -> tuple[Extent, ...]:
    """Return the old and new places of everything that the plan writes, and the journal's if it is on this
    disk.
    """
    places: list[Extent] = []
    for step in plan.steps:
        match step:
            case steps.HoldContent() | steps.ReleaseContent() | steps.RebuildContent():
                places.append(step.place)
            case steps.CopyContent():
                places += (step.source, step.target)
            case steps.WriteJournal() if with_journal and not step.journal.file:
                places.append(step.journal.extent)
    return tuple(dict.fromkeys(places))
