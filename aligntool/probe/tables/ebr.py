"""The chain of EBRs in an extended partition.

Comes in: the extended partition's entry. Goes out: logical partitions, numbered in the order of the chain as Linux
does, and what is wrong with the chain. Alone because it is the one table that is a linked list, and a hostile one can
turn in a circle.

The rules are those of parse_extended() in the kernel's block/partitions/msdos.c: a data entry counts from its own EBR,
a link counts from the start of the extended partition, all four entries are looked at, and links that lead outside the
extended partition are followed.
"""

from dataclasses import dataclass, field, replace

from aligntool.inventory import Fault, Partition, Role, TableFault
from aligntool.probe.reader import Reader
from aligntool.probe.tables.mbr_sector import Entry, MbrSector, parse_sector
from aligntool.probe.tables.mbr_types import mbr_type_name
from aligntool.probe.tables.reading import peek, unreadable
from aligntool.units import Extent

LAST_NUMBER = 255  # DISK_MAX_PARTS of the kernel is 256, and number 0 is the disk
_MOST_EMPTY_LINKS = 100  # the kernel follows no more EBRs in a row without a partition


@dataclass(slots=True)
class Chains:
    """What was gathered over all extended partitions of the disk."""

    next_number: int = 5
    logicals: list[Partition] = field(default_factory=list)
    faults: list[TableFault] = field(default_factory=list)
    places: dict[int, int] = field(
        default_factory=dict
    )  # sector of each EBR seen -> slot of its extended partition

    @property
    def full(self) -> bool:
        return self.next_number > LAST_NUMBER


def follow_chain(
    reader: Reader, extended: Entry, *, sector_size: int, disk_signature: int, chains: Chains
) -> None:
    """Add the logical partitions of `extended` to `chains`. Ends: no EBR is read twice, empty ones are counted."""
    here, here_sectors, empty = extended.start, extended.sectors, 0
    while not chains.full:
        table = _read_ebr(reader, here, sector_size, extended, chains)
        if table is None:
            return
        before = chains.next_number
        _add_logicals(table, extended, here, here_sectors, sector_size, disk_signature, chains)
        empty = 0 if chains.next_number > before else empty + 1
        link = next((entry for entry in table.used if entry.is_extended), None)
        if link is None:
            return
        if empty > _MOST_EMPTY_LINKS:
            break
        here, here_sectors = extended.start + link.start, link.sectors
        if not extended.start <= here < extended.end:
            detail = f"an EBR of partition {extended.slot} points to sector {here}, outside that partition"
            chains.faults.append(TableFault(Fault.EBR_BROKEN, detail, here * sector_size, (extended.slot,)))
    detail = (
        f"the chain of EBRs in partition {extended.slot} goes on after partition {chains.next_number - 1}; Linux "
        f"stops after number {LAST_NUMBER} or {_MOST_EMPTY_LINKS} empty EBRs, and so does aligntool"
    )
    chains.faults.append(TableFault(Fault.IMPLAUSIBLE_COUNT, detail, here * sector_size, (extended.slot,)))


def _read_ebr(
    reader: Reader, here: int, sector_size: int, extended: Entry, chains: Chains
) -> MbrSector | None:
    at = here * sector_size
    if here == 0 or here in chains.places:
        what = "the MBR itself" if here == 0 else f"the EBR at sector {here} a second time"
        detail = f"the chain of EBRs in partition {extended.slot} leads to {what}: it turns in a circle"
        chains.faults.append(TableFault(Fault.EBR_LOOP, detail, at, (extended.slot,)))
        return None
    chains.places[here] = extended.slot
    raw = peek(reader, at, 512)
    if raw is None:
        chains.faults.append(unreadable(f"the EBR of partition {extended.slot}", at))
        return None
    table = parse_sector(raw)
    if table is None:
        why = "lies beyond the end of the disk" if len(raw) < 512 else "lacks the signature 55 AA"
        detail = (
            f"the EBR at sector {here}, in partition {extended.slot}, {why}; the logical partitions end here"
        )
        chains.faults.append(TableFault(Fault.EBR_BROKEN, detail, at, (extended.slot,)))
    return table


def _add_logicals(
    table: MbrSector,
    extended: Entry,
    here: int,
    here_sectors: int,
    sector_size: int,
    disk_signature: int,
    chains: Chains,
) -> None:
    first = table.entries[0]
    if first.code and not first.sectors:
        detail = f"the EBR at sector {here} names a partition of type 0x{first.code:02x} without sectors"
        chains.faults.append(TableFault(Fault.BAD_ENTRY, detail, here * sector_size, (extended.slot,)))
    for entry in table.used:
        if entry.is_extended or chains.full or _is_garbage(entry, extended, here, here_sectors):
            continue
        extent = Extent((here + entry.start) * sector_size, entry.sectors * sector_size)
        partition = replace(
            dos_partition(entry, chains.next_number, Role.LOGICAL, extent, disk_signature),
            record_at=here * sector_size,
        )
        chains.next_number += 1
        chains.logicals.append(partition)
        if not extended.start <= here + entry.start or here + entry.end > extended.end:
            detail = (
                f"logical partition {partition.number} is at sectors {here + entry.start} to {here + entry.end - 1}, "
                f"but extended partition {extended.slot} at {extended.start} to {extended.end - 1}"
            )
            numbers = (extended.slot, partition.number)
            chains.faults.append(TableFault(Fault.LOGICAL_OUTSIDE_EXTENDED, detail, extent.start, numbers))


def _is_garbage(entry: Entry, extended: Entry, here: int, here_sectors: int) -> bool:
    """The kernel believes the third and fourth entry of an EBR only where they fit (OS/2 used them)."""
    if entry.slot <= 2:
        return False
    return entry.end > here_sectors or here + entry.start < extended.start or here + entry.end > extended.end


def dos_partition(entry: Entry, number: int, role: Role, extent: Extent, disk_signature: int) -> Partition:
    return Partition(
        number=number,
        extent=extent,
        role=role,
        type_code=f"0x{entry.code:02x}",
        type_name=mbr_type_name(entry.code),
        uuid=f"{disk_signature:08x}-{number:02x}",  # as the kernel and blkid make the PARTUUID of an MBR partition
        flags=("boot",) if entry.boot & 0x80 else (),
    )
