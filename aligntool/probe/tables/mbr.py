"""The MBR (libfdisk's and blkid's "dos" label): is it one, in which sectors does it count, and what does it list.

Comes in: a reader and its sector 0. Goes out: the table with its faults and all partitions: primary, extended, logical,
nested. Alone because the MBR has no checksum: everything here is about when to believe it. Where tools differ, Linux
(block/partitions/msdos.c) is followed: its partitions are the ones that a user has.
"""

from dataclasses import replace

from aligntool.inventory import Fault, Partition, Role, Table, TableCopy, TableFault, TableLabel
from aligntool.probe.reader import Reader
from aligntool.probe.tables.checks import beyond_end, overlaps
from aligntool.probe.tables.content import boot_sector, starts_at
from aligntool.probe.tables.ebr import Chains, dos_partition, follow_chain
from aligntool.probe.tables.in_flight import parked_in_mbr
from aligntool.probe.tables.mbr_sector import Entry, MbrSector
from aligntool.probe.tables.mbr_types import GPT_PROTECTIVE, LDM, mbr_type_name
from aligntool.probe.tables.nested import add_nested
from aligntool.probe.tables.reading import TableReading, peek, thin_out
from aligntool.units import Extent

_ADDRESSABLE = 2**32  # sectors that an entry's 32-bit start can name
_LINUX_TYPES = frozenset({0x05, 0x0F, 0x82, 0x83, 0x85, 0x8E, 0xFD})


def is_partition_table(reader: Reader, sector: bytes, table: MbrSector) -> bool:
    """Whether the 55 AA of sector 0 ends an MBR, and not the boot sector of a file system on the whole disk.

    The kernel and blkid ask for boot flags of 0 or 0x80. A boot sector whose bytes pass that by chance is believed only
    when its entries could be a table; one without entries says nothing, so what follows on the disk decides.
    """
    if not table.boot_flags_plausible or (table.aix and not _linux_on_aix(table)):
        return False
    if boot_sector(sector) is not None:
        return _entries_make_sense(table, reader.size)
    return bool(table.used) or starts_at(reader, 0) is None


def _linux_on_aix(table: MbrSector) -> bool:
    return any(entry.code in _LINUX_TYPES for entry in table.entries)


def _entries_make_sense(table: MbrSector, disk_size: int) -> bool:
    """A USB stick can have a FAT boot sector and a real table in the same sector 0; text makes no such table."""
    end = 1
    for entry in sorted(table.used, key=lambda entry: entry.start):
        if not entry.code or entry.start < end or entry.end * 512 > disk_size:
            return False
        end = entry.end
    return bool(table.used)


def read_mbr(
    reader: Reader,
    table: MbrSector,
    *,
    sector_size: int | None,
    more_faults: tuple[TableFault, ...] = (),
    copies: tuple[TableCopy, ...] = (),
) -> TableReading:
    """`more_faults` and `copies`: what the search for a GPT on the same disk has found."""
    counted_in, faults = _sector_size(reader, table, sector_size)
    assumed = sector_size is None and counted_in == 512 and _may_count_in_4096(reader, table)
    faults += more_faults
    chains = Chains()
    primaries = [_primary(entry, table.disk_signature, counted_in) for entry in table.used]
    for entry in table.used:
        if entry.is_extended:
            follow_chain(
                reader, entry, sector_size=counted_in, disk_signature=table.disk_signature, chains=chains
            )
    nested = add_nested(reader, table, sector_size=counted_in, chains=chains)
    partitions = (*primaries, *chains.logicals, *nested)
    faults += _entry_faults(reader, table)
    faults += chains.faults
    faults += _place_faults(reader, table, primaries, chains, counted_in)
    end = min(_ADDRESSABLE * counted_in, reader.size)
    return TableReading(
        Table(
            TableLabel.DOS,
            counted_in,
            disk_id=f"0x{table.disk_signature:08x}",
            usable=Extent(counted_in, max(0, end - counted_in)),
            copies=copies,
            faults=thin_out(faults),
            in_flight=parked_in_mbr(table, reader.size),
            sector_size_assumed=assumed,
        ),
        partitions,
    )


def _primary(entry: Entry, disk_signature: int, sector_size: int) -> Partition:
    role = Role.EXTENDED if entry.is_extended else Role.PRIMARY
    extent = Extent(entry.start * sector_size, entry.sectors * sector_size)
    return dos_partition(entry, entry.slot, role, extent, disk_signature)


def _sector_size(reader: Reader, table: MbrSector, reported: int | None) -> tuple[int, list[TableFault]]:
    """An MBR does not say which sectors it counts in. What is reported holds unless the disk itself objects.

    It objects when partitions would lie beyond its end that fit in the other size, or when nothing known starts where
    the reported size puts them and something does where the other size would.
    """
    own = reported or 512
    other = 4096 if own == 512 else 512
    if not table.used or not _fits(reader, table, other):
        return own, []
    if _fits(reader, table, own) and (
        _starts_something(reader, table, own) or not _starts_something(reader, table, other)
    ):
        return own, []
    if reported is None:
        return other, []
    detail = (
        f"this partition table was written for sectors of {other} bytes, but the disk has sectors of {own}: Linux "
        "finds its partitions in the wrong places"
    )
    return other, [TableFault(Fault.OTHER_SECTOR_SIZE, detail, 0, tuple(entry.slot for entry in table.used))]


def _may_count_in_4096(reader: Reader, table: MbrSector) -> bool:
    """Return whether nothing shows that the entries count in sectors of 512 bytes: what lies at their starts, their
    ends, or a start that tools choose for such sectors (63, or a whole number of MiB).
    """
    if not table.used or not _fits(reader, table, 4096) or _starts_something(reader, table, 512):
        return False
    return not any(entry.start == 63 or (entry.start and entry.start % 2048 == 0) for entry in table.used)


def _fits(reader: Reader, table: MbrSector, sector_size: int) -> bool:
    return all(entry.end * sector_size <= reader.size for entry in table.used)


def _starts_something(reader: Reader, table: MbrSector, sector_size: int) -> bool:
    for entry in table.used:
        at = entry.start * sector_size
        if entry.is_extended:
            if (peek(reader, at + 510, 2) or b"") == b"\x55\xaa":
                return True
        elif entry.start and starts_at(reader, at) is not None:
            return True
    return False


def _entry_faults(reader: Reader, table: MbrSector) -> list[TableFault]:
    faults = []
    for entry in table.entries:
        at = 0x1BE + 16 * (entry.slot - 1)
        if entry.code and not entry.sectors:
            detail = (
                f"entry {entry.slot} has type 0x{entry.code:02x} ({mbr_type_name(entry.code)}) but no sectors"
            )
            faults.append(TableFault(Fault.BAD_ENTRY, detail, at, (entry.slot,)))
        elif entry.sectors and not entry.start and not _is_hybrid_iso(reader, table):
            detail = f"partition {entry.slot} starts at sector 0: it covers the partition table itself"
            faults.append(TableFault(Fault.BAD_ENTRY, detail, at, (entry.slot,)))
    dynamic = tuple(entry.slot for entry in table.used if entry.code == LDM)
    if dynamic:
        detail = "this is a Windows dynamic disk: the real volumes are in the LDM database at its end, not in the MBR"
        faults.append(TableFault(Fault.DYNAMIC_DISK, detail, 0, dynamic))
    return faults


def _is_hybrid_iso(reader: Reader, table: MbrSector) -> bool:
    """isohybrid and xorriso make an entry, often of type 0, that covers the image from sector 0 on."""
    whole = [entry for entry in table.used if not entry.start]
    return any(not entry.code for entry in whole) or (bool(whole) and peek(reader, 0x8001, 5) == b"CD001")


def _overlap_faults(reader: Reader, table: MbrSector, partitions: list[Partition]) -> list[TableFault]:
    faults = overlaps(partitions)
    if not faults or not _is_hybrid_iso(reader, table):
        return faults
    whole = {entry.slot for entry in table.used if not entry.start}
    why = "; hybrid ISO images have it so on purpose, the first covering the whole image"
    return [
        replace(fault, detail=fault.detail + why) if whole.intersection(fault.partitions) else fault
        for fault in faults
    ]


def _place_faults(
    reader: Reader, table: MbrSector, primaries: list[Partition], chains: Chains, sector_size: int
) -> list[TableFault]:
    """Overlaps, ends beyond the disk, EBRs in the way. A 0xEE entry guards a place and holds none."""
    guard = f"0x{GPT_PROTECTIVE:02x}"
    primaries = [item for item in primaries if item.type_code != guard]
    holding = [item for item in primaries if item.role is Role.PRIMARY] + chains.logicals
    containers = {item.number for item in primaries if item.role is Role.EXTENDED}
    faults = _overlap_faults(reader, table, holding)
    faults += [fault for fault in overlaps(primaries) if containers.intersection(fault.partitions)]
    faults += beyond_end([*primaries, *chains.logicals], reader.size)
    for sector, slot in chains.places.items():
        at = sector * sector_size
        for item in holding:
            if item.extent.start <= at < item.extent.end:
                detail = (
                    f"the EBR at byte {at}, of extended partition {slot}, lies inside partition {item.number}: writing "
                    "there destroys the table"
                )
                faults.append(TableFault(Fault.EBR_INSIDE_PARTITION, detail, at, (item.number,)))
    return faults
