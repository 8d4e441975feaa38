"""Read MBRs with their nested tables, and Apple partition maps: tables that span more than one sector."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace

from aligntool.formats import reader as readers
from aligntool.formats.mbr import ADDRESSABLE, Chains, MbrSector, dos_partition, parse_sector
from aligntool.formats.numbers import be16, be32, le16, le32, text_at
from aligntool.formats.parked import parked_in_mbr
from aligntool.formats.part_types import GPT_PROTECTIVE, LDM, mbr_type_name
from aligntool.formats.reader import Reader, TableReading, read_or_none
from aligntool.formats.unix_tables import read_slices
from aligntool.inventory import Fault, Partition, Role, Table, TableCopy, TableFault, TableLabel
from aligntool.units import Extent, is_power_of_two

# The Apple partition map (blkid's "mac").
#
# Its unit is the block size that the driver descriptor in block 0 states (512, on optical discs 2048),
# whatever the disk's sector size. Layout: Inside Macintosh: Devices, chapter 3; numbering as in the kernel's
# block/partitions/mac.c: by position in the map.

_MOST_ENTRIES = 255  # DISK_MAX_PARTS of the kernel
_BLOCK_SIZES = (512, 1024, 2048, 4096)
_ENTRY = 136  # bytes of an entry that are read
_BOOTABLE = 0x8
_MAP_TYPES = (
    "apple_partition_map",
    "apple_free",
    "apple_void",
    "apple_extra",
    "apple_patches",
    "apple_fwdriver",
)
_TYPE_NAMES = {
    "Apple_partition_map": "Apple partition map", "Apple_Free": "Free space", "Apple_HFS": "Apple HFS/HFS+",
    "Apple_HFSX": "Apple HFSX", "Apple_UFS": "Apple UFS", "Apple_UNIX_SVR2": "Unix or Linux file system",
    "Apple_Bootstrap": "New World boot", "Apple_Boot": "Apple boot", "Apple_RAID": "Apple RAID",
    "Apple_CoreStorage": "Apple Core Storage", "Apple_APFS": "Apple APFS",
}  # fmt: skip


def read_apm(reader: Reader, sector: bytes) -> TableReading | None:
    """Return the map, or None if the driver descriptor ("ER") or the first map entry ("PM") is missing."""
    if len(sector) < 512 or not sector.startswith(b"ER"):
        return None
    # discs for old Macs state 2048, with the map in units of 512
    for block in dict.fromkeys((be16(sector, 2), 512)):
        if block in _BLOCK_SIZES and read_or_none(reader, block, 2) == b"PM":
            return _read_map(reader, block)
    return None


def _read_map(reader: Reader, block: int) -> TableReading:
    first = read_or_none(reader, block, _ENTRY) or b""
    count = be32(first, 4)
    partitions: list[Partition] = []
    faults: list[TableFault] = []
    if count > _MOST_ENTRIES:
        detail = f"the Apple partition map claims {count} entries; {_MOST_ENTRIES} are read"
        faults.append(TableFault(Fault.IMPLAUSIBLE_COUNT, detail, block))
    for number in range(1, min(count, _MOST_ENTRIES) + 1):
        entry = read_or_none(reader, number * block, _ENTRY)
        if entry is None:
            faults.append(
                readers.unreadable_fault(f"entry {number} of the Apple partition map", number * block)
            )
            break
        if len(entry) < _ENTRY or not entry.startswith(b"PM"):
            detail = f"the Apple partition map should have {count} entries, but ends before entry {number}"
            faults.append(TableFault(Fault.BAD_ENTRY, detail, number * block))
            break
        if any(entry[12:16]):  # an entry without blocks is unused
            partitions.append(_apm_partition(entry, number, block))
    return readers.plain_table(reader, TableLabel.APM, partitions, faults, sector_size=block)


def _apm_partition(entry: bytes, number: int, block: int) -> Partition:
    start, blocks = struct.unpack_from(">II", entry, 8)
    kind = text_at(entry, 48, 32, "latin-1") or ""
    belongs_to_map = kind.casefold() in _MAP_TYPES or kind.casefold().startswith("apple_driver")
    return Partition(
        number=number,
        extent=Extent(start * block, blocks * block),
        role=Role.MAP if belongs_to_map else Role.PRIMARY,
        type_code=kind,
        type_name=_TYPE_NAMES.get(kind, ""),
        name=text_at(entry, 16, 32, "latin-1"),
        flags=("boot",) if be32(entry, 88) & _BOOTABLE and not belongs_to_map else (),
    )


# Distinguish the start of a file system from that of a partitioned disk.
#
# FAT, NTFS, exFAT and BitLocker boot sectors have 55 AA in the same place as an MBR, and their error messages
# are where an MBR has its entries (util-linux issue 4103). The file system itself is not checked.

_SECTOR_SIZES = (512, 1024, 2048, 4096)
# Boot sectors: (offset, magic, name)
_BOOT_SECTOR_MAGICS = (
    (3, b"NTFS    ", "ntfs"),
    (3, b"EXFAT   ", "exfat"),
    (3, b"-FVE-FS-", "BitLocker"),
    (3, b"ReFS\0\0\0\0", "ReFS"),
    (3, b"HPFS", "hpfs"),
    (0, b"XFSB", "xfs"),
    (0, b"LUKS\xba\xbe", "crypto_LUKS"),
)
# The same for other content at the start of a partition or of a disk without partitions
_MAGICS = (
    *((at, b"LABELONE", "LVM2_member") for at in (0x200, 0, 0x400, 0x600)),
    (0x438, b"\x53\xef", "ext"),
    (0x400, b"\x10\x20\xf5\xf2", "f2fs"),
    (0x400, b"H+\0\x04", "hfsplus"),
    (0x400, b"HX\0\x05", "hfsplus"),
    (0x400, b"BD", "hfs"),
    (0x20, b"NXSB", "apfs"),
    (0x220, b"1SFB", "befs"),
    (0, b"\xfc\x4e\x2b\xa9", "linux_raid_member"),
    (0x1000, b"\xfc\x4e\x2b\xa9", "linux_raid_member"),
    (0x1018, bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81"), "bcache"),
    (0xFF6, b"SWAPSPACE2", "swap"),
    (0xFF6, b"SWAP-SPACE", "swap"),
    (0x8001, b"CD001", "iso9660"),
    (0x10040, b"_BHRfS_M", "btrfs"),
)
_READ_AT_ONCE = 0x1100  # one read covers all magics below this offset


def boot_sector_kind(sector: bytes) -> str | None:
    """Return the kind of file system that a boot sector belongs to, or None."""
    if len(sector) < 512:
        return None
    kind = next((kind for at, magic, kind in _BOOT_SECTOR_MAGICS if sector.startswith(magic, at)), None)
    return kind or ("vfat" if _is_fat(sector) else None)


def _is_fat(sector: bytes) -> bool:
    """Return whether the fields of a BIOS parameter block are valid (Microsoft's FAT specification, section
    3.1).

    GRUB's MBR reserves space for such a block but leaves it zero, so these fields distinguish the two.
    """
    size, per_cluster, reserved, fats, _, total16, media = struct.unpack_from("<HBHBHHB", sector, 11)
    return (
        size in _SECTOR_SIZES
        and is_power_of_two(per_cluster)
        and reserved > 0
        and 0 < fats <= 4
        and (media == 0xF0 or media >= 0xF8)
        and (total16 > 0 or le32(sector, 32) > 0 or sector.startswith(b"FAT32", 82))
    )


def kind_at(reader: Reader, offset: int) -> str | None:
    """Return the kind of content at `offset`, or None: a file system, a RAID or LVM member, swap, LUKS. Does
    at most three short reads.
    """
    near = read_or_none(reader, offset, _READ_AT_ONCE) or b""
    kind = boot_sector_kind(near[:512])
    if kind:
        return kind
    for at, magic, name in _MAGICS:
        found = (
            near[at : at + len(magic)]
            if at < _READ_AT_ONCE
            else read_or_none(reader, offset + at, len(magic))
        )
        if found == magic:
            return name
    return None


# Tables inside an MBR partition: BSD disklabels, Solaris and UnixWare slices, Minix subpartitions.
#
# The unit of all of them is 512 bytes, also on a disk with other sectors.

_SECTOR = 512
_FREEBSD = 0xA5
_OPENBSD = 0xA6
_NETBSD = 0xA9
_MINIX = 0x81
_VTOC_SANE = 0x600DDEEE
_UNIXWARE = 0xCA5E600D
_WHOLE_DISK = 5  # Solaris tag V_BACKUP, UnixWare's whole-disk tag
_VTOC_TAGS = {1: "boot", 2: "root", 3: "swap", 4: "usr", 5: "whole disk", 6: "stand", 7: "var", 8: "home"}


def read_nested(table: MbrSector, chains: Chains) -> list[Partition]:
    """Return the nested partitions of all primary partitions. Numbers continue from `chains`, which gets the
    faults.
    """
    found: list[Partition] = []
    for entry in table.used:
        read = _READERS.get(entry.code)
        parent = entry.extent(chains.sector_size)
        for nested in read(chains.reader, parent, entry.code) if read else ():
            place = nested.extent
            if place == parent or not place.length:
                continue  # an entry for the parent itself
            if parent.contains(place):
                if not chains.full:
                    found.append(replace(nested, number=chains.next_number))
                    chains.next_number += 1
            elif entry.code not in (_OPENBSD, _NETBSD):  # their labels describe the whole disk by design
                where = f"at bytes {place.start} to {place.end - 1}, outside that partition"
                detail = f"a nested entry of partition {entry.slot} is {where}; Linux leaves it out"
                chains.faults.append(TableFault(Fault.BAD_ENTRY, detail, place.start, (entry.slot,)))
    return found


def _bsd(reader: Reader, parent: Extent, code: int) -> Iterator[Partition]:
    slices = read_slices(reader, parent.start + _SECTOR) or ()
    # On FreeBSD, entries are relative to the partition if entry c, the whole partition, starts at 0;
    # otherwise, and on the others, to the disk.
    relative = code == _FREEBSD and len(slices) > 2 and slices[2].extent.start == 0
    base = parent.start if relative else 0
    for entry in slices:
        if entry.role is not Role.MAP:
            yield replace(entry, role=Role.NESTED, extent=entry.extent.moved_to(base + entry.extent.start))


def _solaris(reader: Reader, parent: Extent, code: int) -> Iterator[Partition]:
    """Yield the Solaris slices. Type 0x82 is also Linux swap; only the sanity word shows that it is
    Solaris.
    """
    raw = read_or_none(reader, parent.start + _SECTOR, _SECTOR) or b""
    if len(raw) < _SECTOR or struct.unpack_from("<II", raw, 12) != (_VTOC_SANE, 1):
        return
    for index in range(16 if le16(raw, 30) > 8 else 8):
        tag, _, start, sectors = struct.unpack_from("<HHII", raw, 72 + index * 12)
        yield _vtoc_slice(tag, Extent(parent.start + start * _SECTOR, sectors * _SECTOR))


def _unixware(reader: Reader, parent: Extent, code: int) -> Iterator[Partition]:
    raw = read_or_none(reader, parent.start + 29 * _SECTOR, _SECTOR) or b""
    if len(raw) < _SECTOR or (le32(raw, 4), le32(raw, 156)) != (_UNIXWARE, _VTOC_SANE):
        return
    for index in range(1, 16):
        tag, _, start, sectors = struct.unpack_from("<HHII", raw, 216 + index * 12)
        if tag:
            yield _vtoc_slice(tag, Extent(start * _SECTOR, sectors * _SECTOR))


def _vtoc_slice(tag: int, extent: Extent) -> Partition:
    role = Role.MAP if tag == _WHOLE_DISK else Role.NESTED
    return Partition(0, extent, role, f"0x{tag:02x}", _VTOC_TAGS.get(tag, ""))


def _minix(reader: Reader, parent: Extent, code: int) -> Iterator[Partition]:
    table = parse_sector(read_or_none(reader, parent.start, _SECTOR))
    if table is None or table.entries[0].code != _MINIX:
        return
    for entry in table.entries:
        if entry.code == _MINIX:
            yield Partition(0, entry.extent(_SECTOR), Role.NESTED, f"0x{_MINIX:02x}", mbr_type_name(_MINIX))


_READERS: dict[int, Callable[[Reader, Extent, int], Iterator[Partition]]] = {
    _FREEBSD: _bsd,
    _OPENBSD: _bsd,
    _NETBSD: _bsd,
    _MINIX: _minix,
    0x63: _unixware,
    0x82: _solaris,
    0xBF: _solaris,
}


# The MBR (the "dos" label of libfdisk and blkid): whether sector 0 is one, its sector size, its partitions.
#
# The MBR has no checksum, so most of the code below decides whether it is one. Where tools differ, the rules
# are those of Linux (block/partitions/msdos.c), whose partitions are the ones in use.

_PC98 = (b"IPL1", b"Linux 98", b"GRUB/98 ")  # NEC's, with a table in sector 1: libparted/labels/pc98.c
_LINUX_TYPES = frozenset({0x05, 0x0F, 0x82, 0x83, 0x85, 0x8E, 0xFD})


def is_partition_table(reader: Reader, sector: bytes, table: MbrSector) -> bool:
    """Return whether the 55 AA of sector 0 ends an MBR, and not the boot sector of a file system on the whole
    disk.

    The kernel and blkid require boot flags of 0 or 0x80. A boot sector whose bytes pass that test by chance
    counts as an MBR only if its entries can be a table; an MBR without entries proves nothing, so the content
    after it decides.
    """
    flags_pass = all(entry.boot in (0, 0x80) for entry in table.entries)
    if not flags_pass or (table.aix and not _LINUX_TYPES & {entry.code for entry in table.entries}):
        return False
    if boot_sector_kind(sector) is not None:
        return _entries_are_plausible(table, reader.size)
    return bool(table.used) or not (sector.startswith(_PC98, 4) or kind_at(reader, 0))


def _entries_are_plausible(table: MbrSector, disk_size: int) -> bool:
    """Return whether the four entries can be a table. A USB stick can have a FAT boot sector and a real table
    in the same sector 0; the text of a boot sector does not pass.
    """
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
    """Return the table. `more_faults` and `copies` are the results of the search for a GPT on the same
    disk.
    """
    used_size, faults = _sector_size(reader, table, sector_size)
    assumed = sector_size is None and used_size == 512 and _may_use_4096(reader, table)
    faults += more_faults
    chains = Chains(reader, used_size, table.disk_signature)
    primaries = []
    for entry in table.used:
        role = Role.EXTENDED if entry.is_extended else Role.PRIMARY
        extent = entry.extent(used_size)
        primaries.append(dos_partition(entry, entry.slot, role, extent, table.disk_signature))
        if entry.is_extended:
            chains.follow(entry)
    nested = read_nested(table, chains)
    partitions = (*primaries, *chains.logicals, *nested)
    faults += [*_entry_faults(reader, table), *chains.faults, *_place_faults(table, primaries, chains)]
    end = min(ADDRESSABLE * used_size, reader.size)
    usable = Extent(used_size, max(0, end - used_size))
    parked = parked_in_mbr(table, reader.size)
    found = Table(
        TableLabel.DOS,
        used_size,
        f"0x{table.disk_signature:08x}",
        usable=usable,
        copies=copies,
        faults=readers.limit_faults(faults),
        in_flight=parked,
        sector_size_assumed=assumed,
        empty_records=tuple(chains.empty),
    )
    return TableReading(found, partitions)


def _sector_size(reader: Reader, table: MbrSector, reported: int | None) -> tuple[int, list[TableFault]]:
    """Return the sector size of an MBR, which does not state it: the reported one unless the disk contradicts
    it.

    The disk contradicts it if partitions lie beyond its end that fit in the other size, or if more of them
    start with recognised content in the other size: at an eighth of the offset there can be another
    partition.
    """
    own = reported or 512
    other = 4096 if own == 512 else 512
    if not table.used or not _fits(reader, table, other):
        return own, []
    other_is_likelier = _recognised_starts(reader, table, other) > _recognised_starts(reader, table, own)
    if _fits(reader, table, own) and not other_is_likelier:
        return own, []
    if reported is None:
        return other, []
    detail = (
        f"this partition table was written for sectors of {other} bytes, but the disk has sectors of {own}"
    )
    detail += ": Linux finds its partitions in the wrong places"
    return other, [
        TableFault(Fault.OTHER_SECTOR_SIZE, detail, 0, tuple(entry.slot for entry in table.used), hides=True)
    ]


def _may_use_4096(reader: Reader, table: MbrSector) -> bool:
    """Return whether nothing shows that the entries are in sectors of 512 bytes: not the content at their
    starts, nor their ends, nor a start that tools choose for such sectors (63, or a whole number of MiB).
    """
    if not table.used or not _fits(reader, table, 4096) or _recognised_starts(reader, table, 512):
        return False
    return not any(entry.start == 63 or (entry.start and entry.start % 2048 == 0) for entry in table.used)


def _fits(reader: Reader, table: MbrSector, sector_size: int) -> bool:
    return all(entry.end * sector_size <= reader.size for entry in table.used)


def _recognised_starts(reader: Reader, table: MbrSector, sector_size: int) -> int:
    """Return the number of entries that start with recognised content."""
    count = 0
    for entry in table.used:
        at = entry.start * sector_size
        if entry.is_extended:
            count += read_or_none(reader, at + 510, 2) == b"\x55\xaa"
        else:
            count += bool(entry.start and kind_at(reader, at) is not None)
    return count


def _entry_faults(reader: Reader, table: MbrSector) -> list[TableFault]:
    faults = []
    for entry in table.entries:
        if entry.code and not entry.sectors:
            detail = (
                f"entry {entry.slot} has type 0x{entry.code:02x} ({mbr_type_name(entry.code)}) but no sectors"
            )
            faults.append(TableFault(Fault.BAD_ENTRY, detail, entry.at, (entry.slot,)))
        elif entry.sectors and not entry.start and not _is_hybrid_iso(reader, table):
            detail = f"partition {entry.slot} starts at sector 0: it covers the partition table itself"
            faults.append(TableFault(Fault.BAD_ENTRY, detail, entry.at, (entry.slot,)))
    dynamic = tuple(entry.slot for entry in table.used if entry.code == LDM)
    if dynamic:
        detail = (
            "this is a Windows dynamic disk: the real volumes are in the LDM database at its end, not in the"
            " MBR"
        )
        faults.append(TableFault(Fault.DYNAMIC_DISK, detail, 0, dynamic))
    return faults


def _is_hybrid_iso(reader: Reader, table: MbrSector) -> bool:
    """Return whether this is a hybrid ISO image: isohybrid and xorriso make an entry, often of type 0, that
    covers the image from sector 0 on.
    """
    whole = [entry for entry in table.used if not entry.start]
    return any(not entry.code for entry in whole) or (
        bool(whole) and read_or_none(reader, 0x8001, 5) == b"CD001"
    )


def _place_faults(table: MbrSector, primaries: list[Partition], chains: Chains) -> list[TableFault]:
    """Return overlaps, ends beyond the disk, and EBRs inside partitions. A 0xEE entry is not a partition."""
    protective = f"0x{GPT_PROTECTIVE:02x}"
    primaries = [item for item in primaries if item.type_code != protective]
    data_partitions = [item for item in primaries if item.role is Role.PRIMARY] + chains.logicals
    containers = {item.number for item in primaries if item.role is Role.EXTENDED}
    faults = readers.overlaps(data_partitions)
    whole = {entry.slot for entry in table.used if not entry.start}
    if faults and _is_hybrid_iso(chains.reader, table):
        why = "; hybrid ISO images do so on purpose: the first entry covers the whole image"
        faults = [
            fault if whole.isdisjoint(fault.partitions) else replace(fault, detail=fault.detail + why)
            for fault in faults
        ]
    faults += [fault for fault in readers.overlaps(primaries) if containers.intersection(fault.partitions)]
    faults += readers.beyond_end([*primaries, *chains.logicals], chains.reader.size)
    for sector, slot in chains.places.items():
        at = sector * chains.sector_size
        for item in data_partitions:
            if item.extent.start <= at < item.extent.end:
                inside = f"is inside partition {item.number}: writing there destroys the table"
                detail = f"the EBR at byte {at}, of extended partition {slot}, {inside}"
                faults.append(TableFault(Fault.EBR_INSIDE_PARTITION, detail, at, (item.number,)))
    return faults
