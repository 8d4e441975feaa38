"""What a journal's table would look like on a disk whose table another program changed.

In: a Device and its journal. Out: a reader that shows the disk with that table; the places that the move still needs.
Alone because both are looked at before anything is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aligntool.apply.device import Device, Sectors
from aligntool.apply.journal import Journal
from aligntool.apply.partition_tables import TableState
from aligntool.apply.partition_tables.leftovers import leftovers
from aligntool.apply.standing import is_complete
from aligntool.apply.table_writer import all_sectors
from aligntool.plan import CopyContent, HoldContent, Plan, ReleaseContent, WriteJournal
from aligntool.units import Extent, align_down, align_up


@dataclass(frozen=True, slots=True)
class Laid:
    """A disk to read, with other sectors in their places."""

    device: Device
    sectors: Sequence[Sectors]

    @property
    def size(self) -> int:
        return self.device.size

    def read(self, offset: int, length: int) -> bytes:
        """Fewer bytes at the end of the disk. Raises OSError."""
        end = min(offset + length, self.size)
        if offset < 0 or end <= offset:
            return b""
        first, last = align_down(offset, self.device.sector_size), align_up(end, self.device.sector_size)
        made = bytearray(self.device.read(first, last - first))
        for one in self.sectors:
            start, until = max(first, one.at), min(last, one.at + len(one.data))
            if start < until:
                made[start - first : until - first] = one.data[start - one.at : until - one.at]
        return bytes(made[offset - first : end - first])


def overlay(device: Device, journal: Journal) -> Laid:
    """Return the disk as it would be read with the journal's table of the state that it is in."""
    images = journal.contents.images
    writing = images.of(TableState.AFTER if is_complete(journal) else TableState.PARKED)
    return Laid(device, (*all_sectors(leftovers(device, images)), *all_sectors(writing)))


def places_in_use(plan: Plan, *, with_journal: bool = True) -> tuple[Extent, ...]:
    """Return the old and new places of all that moves, and the journal's where it is on this disk."""
    places: list[Extent] = []
    for step in plan.steps:
        match step:
            case HoldContent():
                places.append(step.source)
            case ReleaseContent():
                places.append(step.target)
            case CopyContent():
                places += (step.source, step.target)
            case WriteJournal() if with_journal and not step.journal.file:
                places.append(step.journal.extent)
    return tuple(dict.fromkeys(places))
