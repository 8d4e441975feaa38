"""Sector 0 of a GPT disk: the protective or hybrid MBR.

Comes in: sector 0 beside the GPT that was read. Goes out: faults. Alone because tools disagree most here: the kernel
and libfdisk take a GPT only behind a 0xEE entry, the kernel wants it at sector 1, and a few sizes of it are right.
"""

from aligntool.inventory import Fault, Partition, TableFault
from aligntool.probe.tables.mbr_sector import Entry, MbrSector
from aligntool.probe.tables.mbr_types import GPT_PROTECTIVE
from aligntool.units import Extent

_MOST = 0xFFFFFFFF


def hybrid_entries(table: MbrSector | None) -> tuple[Entry, ...]:
    """Entries beside the 0xEE one: what firmware and systems that know no GPT will see."""
    if table is None or table.protective is None:
        return ()
    return tuple(entry for entry in table.entries if entry.code not in (0, GPT_PROTECTIVE))


def protective_faults(
    table: MbrSector | None, partitions: list[Partition], *, sector_size: int, disk_size: int
) -> list[TableFault]:
    guard = table.protective if table else None
    if table is None or guard is None:
        return [_missing(table)]
    others = hybrid_entries(table)
    if others:
        return [_hybrid(others, partitions, sector_size), *_start_fault(guard)]
    return [*_start_fault(guard), *_size_fault(guard, disk_size // sector_size)]


def _missing(table: MbrSector | None) -> TableFault:
    what = "has no 0xEE entry" if table else "is missing"
    detail = (
        f"the protective MBR {what}: Linux ignores this GPT unless it is started with `gpt`, and fdisk and parted "
        "refuse it; other systems may take the disk for an empty one"
    )
    return TableFault(Fault.PROTECTIVE_MBR, detail, 0)


def _start_fault(guard: Entry) -> list[TableFault]:
    if guard.start == 1:
        return []
    detail = (
        f"the 0xEE entry of the protective MBR starts at sector {guard.start}, not 1: Linux ignores this GPT"
    )
    return [TableFault(Fault.PROTECTIVE_MBR, detail, _entry_at(guard))]


def _size_fault(guard: Entry, disk_sectors: int) -> list[TableFault]:
    """UEFI wants the disk's size less one, or 0xFFFFFFFF where that does not fit; many tools always write the latter,
    and the kernel also takes the size cut to 32 bits (is_pmbr_valid)."""
    if guard.sectors in (_MOST, min(disk_sectors - 1, _MOST), (disk_sectors - 1) & _MOST):
        return []
    covers = "less than the disk" if guard.sectors < disk_sectors - 1 else "more than the disk"
    detail = (
        f"the protective MBR covers {guard.sectors} sectors, {covers}, which has {disk_sectors - 1} after the first: "
        "the disk was grown, shrunk or copied from one of another size"
    )
    return [TableFault(Fault.PROTECTIVE_MBR, detail, _entry_at(guard))]


def _hybrid(others: tuple[Entry, ...], partitions: list[Partition], sector_size: int) -> TableFault:
    """Which entries there are, and whether each is the same place as a GPT partition, as it should be."""
    mirrors = {partition.extent: partition.number for partition in partitions}
    told, numbers = [], []
    for entry in others:
        number = mirrors.get(Extent(entry.start * sector_size, entry.sectors * sector_size))
        if number is None:
            told.append(
                f"entry {entry.slot} (0x{entry.code:02x}, sectors {entry.start} to {entry.end - 1}) is no GPT partition"
            )
        else:
            told.append(f"entry {entry.slot} (0x{entry.code:02x}) is GPT partition {number}")
            numbers.append(number)
    detail = (
        f"hybrid MBR: {'; '.join(told)}. Linux uses the GPT, others may use these entries, and most tools update only "
        "one of the two"
    )
    return TableFault(Fault.HYBRID_MBR, detail, _entry_at(others[0]), tuple(numbers))


def _entry_at(entry: Entry) -> int:
    return 0x1BE + 16 * (entry.slot - 1)
