"""Where the EBRs of logical partitions lie after a move, and how far their container reaches then.

In: a container, its logical partitions, their new places. Out: entries before and after. Alone because an EBR is a
table that lies between the partitions, and moving a partition moves it too.

The first EBR is the container's first sector. The others need one sector or more before their partition and outside of
every other one (parse_extended() in the kernel's block/partitions/msdos.c reads them wherever they are; fdisk and
Windows expect them in front of their partition).
"""

from collections.abc import Mapping, Sequence

from aligntool.inventory import Disk, Partition
from aligntool.plan import EntryChange
from aligntool.realign.row import containers, lead_of, logicals_of
from aligntool.units import Extent

_USUAL_LEAD = 2048  # sectors between an EBR and its partition, where there is room: what fdisk makes


def chain_changes(disk: Disk, places: Mapping[int, Extent]) -> tuple[EntryChange, ...]:
    """Of every container in which a logical partition moves: all its logicals, and itself when it grows."""
    changes: list[EntryChange] = []
    for container in containers(disk):
        chain = logicals_of(disk, container)
        if all(places.get(part.number, part.extent).start == part.extent.start for part in chain):
            continue
        end = max(places[part.number].end for part in chain)
        grown = Extent(container.extent.start, max(container.extent.end, end) - container.extent.start)
        if grown != container.extent:
            changes.append(EntryChange(container.number, container.extent, grown))
        records = _records(container, chain, places, disk.sector_size)
        for part in chain:
            before, after = part.record_at, records[part.number]
            changes.append(EntryChange(part.number, part.extent, places[part.number], before, after))
    return tuple(changes)


def irregular(container: Partition, chain: Sequence[Partition]) -> str:
    """Why this chain cannot be laid out anew; empty when it can."""
    for part in chain:
        if part.record_at is None:
            return f"where the EBR of partition {part.number} lies is not known"
        if not container.extent.start <= part.record_at < part.extent.start:
            return f"the EBR of partition {part.number}, at byte {part.record_at}, does not lie before it"
    if chain and min(chain, key=lambda part: part.extent.start) is not chain[0]:
        return (
            f"partition {chain[0].number} is the first in the chain of EBRs of partition {container.number}"
            " but not the first on the disk"
        )
    return ""


def _records(
    container: Partition, chain: Sequence[Partition], places: Mapping[int, Extent], sector: int
) -> dict[int, int]:
    """The distance between EBR and partition is kept where it fits, else it is as large as fits, up to the usual."""
    first, *others = sorted(chain, key=lambda part: places[part.number].start)
    records = {first.number: container.extent.start}
    end = places[first.number].end
    for part in others:
        start = places[part.number].start
        kept, gap = lead_of(part, sector), start - end
        lead = kept if kept <= gap else min(_USUAL_LEAD * sector, gap)
        records[part.number] = start - lead
        end = places[part.number].end
    return records
