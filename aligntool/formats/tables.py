"""Read the partition table of a disk: find its kind, choose the valid copy of a GPT, list the faults."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

from aligntool.formats import gpt as gpts
from aligntool.formats.mbr import MbrSector, hybrid_entries, parse_sector, protective_faults
from aligntool.formats.numbers import le32, le64
from aligntool.formats.other_tables import boot_sector_kind, is_partition_table, kind_at, read_apm, read_mbr
from aligntool.formats.parked import parked_in_gpt
from aligntool.formats.reader import (
    Reader,
    TableReading,
    has_data,
    limit_faults,
    read_or_none,
    unreadable_fault,
)
from aligntool.formats.unix_tables import read_atari, read_bsd, read_dasd, read_sgi, read_sun
from aligntool.inventory import (
    BootCode,
    Fault,
    Role,
    Table,
    TableCopy,
    TableCopyState,
    TableFault,
    TableLabel,
)
from aligntool.units import KIB, MIB, align_down

# GPT: the sector size that it was written for, which of its copies to use, and their differences.
#
# The rules are those of find_valid_gpt() in the kernel's block/partitions/efi.c, except that here a damaged
# primary copy does not hide the partitions.

_SECTOR_SIZES = (512, 4096, 2048, 1024)
_UNREPORTED_ORDER = (4096, 512, 2048, 1024)


@dataclass(frozen=True, slots=True)
class GptPair:
    """The copies of a GPT that were found, valid or not."""

    primary: gpts.CheckedCopy
    backup: gpts.CheckedCopy

    @property
    def copy_in_use(self) -> gpts.CheckedCopy | None:
        """Return the copy to use: the primary if it is valid, otherwise the backup if it is valid; otherwise
        the first damaged copy with plausible entries: at least one, and none that ends before it starts.
        """
        pair = (self.primary, self.backup)
        read = ((copy, *gpts.read_entries(copy)) for copy in pair)
        plausible = (copy for copy, partitions, faults in read if partitions and not faults)
        return next((copy for copy in pair if copy.is_good), None) or next(plausible, None)


def find_gpt(reader: Reader, table: MbrSector | None, sector_size: int | None) -> GptPair | None:
    """Return both copies, in the sector size that the table itself shows, or None if no header has the
    signature.
    """
    size = _gpt_sector_size(reader, sector_size)
    if size is None:
        return None
    guard = table.protective if table else None
    end = guard.end - 1 if guard and 1 < guard.end <= 0xFFFFFFFF else None
    primary = gpts.check_copy(reader, "primary", 1, size)
    return GptPair(primary, _find_backup(reader, primary, end))


def _gpt_sector_size(reader: Reader, reported: int | None) -> int | None:
    """Return the sector size, which follows from the place of a header. The reported size is preferred; a
    valid checksum counts more than a mere signature, the start of the disk more than its end.
    """
    sizes = tuple(dict.fromkeys((reported, *_SECTOR_SIZES))) if reported else _UNREPORTED_ORDER
    start = read_or_none(reader, 0, 2 * max(sizes)) or b""
    sectors = [(size, start[size : 2 * size]) for size in sizes]
    sectors += [(size, read_or_none(reader, (reader.size // size - 1) * size, size) or b"") for size in sizes]
    checked = [size for size, sector in sectors if gpts.header_crc_is_good(sector)]
    signed = (size for size, sector in sectors if sector.startswith(gpts.SIGNATURE))
    return reported if reported in checked else next(iter(checked), None) or next(signed, None)


def _find_backup(reader: Reader, primary: gpts.CheckedCopy, protective_end: int | None) -> gpts.CheckedCopy:
    """Return the backup from the sector that the primary states, from the last sector or, after a copy to a
    larger disk, from the end of the 0xEE entry.
    """
    size = primary.sector_size
    last = reader.size // size - 1
    stated = primary.header.other_lba if primary.header else None
    places = [stated, last] if primary.header_crc_good else [last, stated, protective_end]
    on_disk = [lba for lba in dict.fromkeys(places) if lba is not None and 1 < lba <= last]
    copies = [gpts.check_copy(reader, "backup", lba, size) for lba in on_disk]
    own = [copy for copy in copies if _same_disk(primary, copy)]
    last_resort = gpts.check_copy(reader, "backup", max(last, 2), size) if not copies else copies[0]
    return next(
        (copy for copy in own if copy.is_good), next((copy for copy in own if copy.header), last_resort)
    )


def _same_disk(primary: gpts.CheckedCopy, backup: gpts.CheckedCopy) -> bool:
    """Return whether both belong to the same table. A remnant of an older table, in the last sector with
    another GUID, must not serve to repair a good primary.
    """
    if not primary.header_crc_good or primary.header is None or backup.header is None:
        return True
    return backup.header.disk_guid == primary.header.disk_guid or backup.lba == primary.header.other_lba


def read_gpt(
    reader: Reader, pair: GptPair, table: MbrSector | None, sector_size: int | None
) -> TableReading | None:
    """Return the table, or None if neither copy can be used."""
    copy = pair.copy_in_use
    if copy is None or copy.header is None:
        return None
    other = pair.backup if copy is pair.primary else pair.primary
    partitions, faults = gpts.read_entries(copy)
    size_faults = []
    if sector_size not in (None, copy.sector_size):
        written = f"this GPT was written for sectors of {copy.sector_size} bytes, but the disk has sectors of"
        detail = f"{written} {sector_size}: Linux does not see its partitions here"
        size_faults.append(TableFault(Fault.OTHER_SECTOR_SIZE, detail, copy.at, hides=True))
    faults = [
        *size_faults,
        *copy_faults(pair, reader.size // copy.sector_size - 1),
        *protective_faults(table, partitions, sector_size=copy.sector_size, disk_size=reader.size),
        *faults,
        *gpts.entry_faults(copy, other, partitions, reader.size),
    ]
    found = Table(
        TableLabel.GPT,
        copy.sector_size,
        str(uuid.UUID(bytes_le=copy.header.disk_guid)),
        bool(hybrid_entries(table)),
        copy.header.usable(copy.sector_size),
        (pair.primary.summary(), pair.backup.summary()),
        faults=limit_faults(faults),
        in_flight=parked_in_gpt(copy, other),
    )
    return TableReading(found, tuple(partitions))


def copy_faults(pair: GptPair, last_lba: int) -> list[TableFault]:
    """Return the faults of each copy, and the differences between the two."""
    primary = pair.primary
    backup = pair.backup
    faults = []
    if not primary.is_good:
        unless = " unless it is started with `gpt`" if backup.is_good else ""
        then = f"; Linux then reads none of its partitions{unless}"
        detail = f"the primary GPT header at sector {primary.lba} {primary.why}{then}"
        faults.append(TableFault(Fault.GPT_PRIMARY_DAMAGED, detail, primary.at, hides=True))
    if not backup.is_good:
        detail = f"the backup GPT header at sector {backup.lba} {backup.why}"
        faults.append(TableFault(Fault.GPT_BACKUP_DAMAGED, detail, backup.at))
    faults += _misplaced(primary, backup, last_lba)
    if primary.is_good and backup.is_good and primary.header and backup.header:
        faults += _differences(primary, backup, primary.header, backup.header)
    return faults


def _misplaced(primary: gpts.CheckedCopy, backup: gpts.CheckedCopy, last_lba: int) -> list[TableFault]:
    stated = primary.header.other_lba if primary.header and primary.header_crc_good else backup.lba
    if stated == last_lba and (backup.lba == last_lba or not backup.header):
        return []
    if stated > last_lba:
        why = "beyond the end of the disk, which has shrunk or was copied from a larger one"
    elif stated == last_lba:
        why = f"in the last sector, but it was found at sector {backup.lba}"
    elif backup.lba == last_lba and backup.header:
        why = f"short of the last sector {last_lba}, where it was found"
    else:
        why = (
            f"not in the last sector {last_lba}: the disk has grown or was copied from a smaller one, and the"
        )
        why = f"{why} {(last_lba - stated) * primary.sector_size} bytes after it cannot be used"
    detail = f"the backup GPT should be at sector {stated}, {why}"
    return [TableFault(Fault.GPT_BACKUP_MISPLACED, detail, stated * primary.sector_size)]


def _differences(
    primary: gpts.CheckedCopy, backup: gpts.CheckedCopy, one: gpts.Header, two: gpts.Header
) -> list[TableFault]:
    """Return the differences that compare_gpts() of the kernel warns about."""
    differences = []
    if two.other_lba != primary.lba:
        differences.append(f"the backup names sector {two.other_lba} as the other copy, not {primary.lba}")
    for attribute in ("first_usable", "last_usable", "entry_count", "entry_size"):
        here = getattr(one, attribute)
        there = getattr(two, attribute)
        if here != there:
            differences.append(
                f"{attribute.replace('_', ' ')} is {here} in the primary and {there} in the backup"
            )
    if one.disk_guid != two.disk_guid:
        differences.append("the disk GUIDs differ")
    if primary.entries != backup.entries:
        differences.append("the entries differ")
    detail = (
        f"both copies of the GPT are valid, but they differ: {'; '.join(differences)}. The primary is used"
    )
    numbers = _differing_numbers(primary, backup, one.entry_size) if one.entry_size == two.entry_size else ()
    return [TableFault(Fault.GPT_COPIES_DIFFER, detail, backup.at, tuple(numbers))] if differences else []


def _differing_numbers(primary: gpts.CheckedCopy, backup: gpts.CheckedCopy, step: int) -> list[int]:
    longest = max(len(primary.entries), len(backup.entries))
    pairs = (
        (at, primary.entries[at : at + step], backup.entries[at : at + step])
        for at in range(0, longest, step)
    )
    return [at // step + 1 for at, one, two in pairs if one != two and (any(one) or any(two))]


# Remnants of a GPT: under another table, or at the ends of a drive that became a member of an array.


def old_gpt_faults(gpt: GptPair | None) -> tuple[TableFault, ...]:
    """Return the fault of an old GPT. Only a header with a valid checksum counts: no tool accepts a GPT with
    less.
    """
    if gpt is None or not (gpt.primary.header_crc_good or gpt.backup.header_crc_good):
        return ()
    copy = gpt.primary if gpt.primary.header_crc_good else gpt.backup
    text = f"a GPT ({copy.name} copy at byte {copy.at}) is also on this disk, but the MBR has no 0xEE entry"
    detail = f"{text}: Linux uses the MBR, other systems may use the GPT"
    return (TableFault(Fault.PROTECTIVE_MBR, detail, copy.at),)


def gpt_headers(reader: Reader, sector_size: int) -> tuple[TableCopy, ...]:
    """Return the headers in the second and the last sector that state their own place and have a valid
    checksum: all software then assumes a GPT on the disk (UEFI 5.3.2), with or without entries.
    """
    last = reader.size // sector_size - 1
    if last < 2:
        return ()
    copies = (
        gpts.check_copy(reader, name, lba, sector_size) for name, lba in (("primary", 1), ("backup", last))
    )
    states = (TableCopyState.GOOD, TableCopyState.ENTRIES_CRC_BAD)
    return tuple(copy.summary() for copy in copies if copy.header_crc_good and copy.state in states)


# All partition tables.
#
# Results are in bytes. Many formats use the same sector 0; they are tried in the kernel's order
# (block/partitions/core.c), with two additions: labels with a checksum come first, and a GPT is searched for
# even if Linux would not.


def read_table(reader: Reader, *, sector_size: int | None) -> TableReading:
    """Return the partition table of a disk. `sector_size` None: not reported, so the table itself decides.

    Never raises: neither for any content of the disk nor if the medium cannot be read, which becomes a fault.
    """
    sector = read_or_none(reader, 0, 512)
    if sector is None:
        return _without_sector_0(reader, sector_size)
    checked = read_sgi(reader, sector) or read_sun(reader, sector)
    if checked:
        return checked
    table = parse_sector(sector)
    gpt = find_gpt(reader, table, sector_size)
    listed = read_gpt(reader, gpt, table, sector_size) if gpt else None
    if (
        table
        and table.protective
        and (announced := listed or _damaged_gpt(reader, sector, table, gpt, sector_size))
    ):
        return announced
    if table and table.used and is_partition_table(reader, sector, table):
        return read_mbr(reader, table, sector_size=sector_size, more_faults=old_gpt_faults(gpt))
    if gpt and gpt.primary.header_crc_good and listed and not boot_sector_kind(sector):
        return listed  # no 0xEE entry, but a whole primary copy, and no file system overwrote sector 0
    found = read_apm(reader, sector)
    if found:
        return found
    if table and is_partition_table(reader, sector, table):
        return read_mbr(reader, table, sector_size=sector_size, more_faults=old_gpt_faults(gpt))
    found = read_bsd(reader) or read_dasd(reader, sector_size)
    if not found and sector_size in (None, 512) and not kind_at(reader, 0):
        # it has no magic, so it comes last, and known content takes precedence
        found = read_atari(reader, sector)
    if not found and gpt and gpt.backup.is_good and not boot_sector_kind(sector) and not kind_at(reader, 0):
        # The disk does not begin with recognised content: its start was overwritten. Otherwise the backup
        # copy is a remnant of an older table; see also `is_backup_alone`.
        found = listed
    return found or TableReading(None, ())


def _damaged_gpt(
    reader: Reader, sector: bytes, table: MbrSector, gpt: GptPair | None, sector_size: int | None
) -> TableReading | None:
    """Return the table of an MBR with 0xEE but no valid GPT. Its entries are for display: Linux reads no such
    MBR.
    """
    if not is_partition_table(reader, sector, table):
        return None
    size = gpt.primary.sector_size if gpt else sector_size or 512
    last = reader.size // size - 1
    places = {"primary": 1, "backup": max(2, last)}  # if nothing is left of it
    lost = gpt or GptPair(*(gpts.check_copy(reader, name, lba, size) for name, lba in places.items()))
    return read_mbr(
        reader,
        table,
        sector_size=size,
        more_faults=tuple(copy_faults(lost, last)),
        copies=(lost.primary.summary(), lost.backup.summary()),
    )


def is_backup_alone(table: Table) -> bool:
    """Return whether the backup copy of a GPT is the only evidence of a table.

    The caller, which can read the superblocks of the whole disk, decides whether the disk is used without a
    table.
    """
    lost = bool(table.copies) and table.copies[0].state is TableCopyState.MISSING
    faults = {fault.fault for fault in table.faults}
    return lost and Fault.PROTECTIVE_MBR in faults and Fault.UNREADABLE not in faults


def _without_sector_0(reader: Reader, sector_size: int | None) -> TableReading:
    fault = replace(unreadable_fault("the disk's first sector", 0), hides=True)
    gpt = find_gpt(reader, None, sector_size)
    reading = read_gpt(reader, gpt, None, sector_size) if gpt else None
    if reading and reading.table:
        table = replace(reading.table, faults=(fault, *reading.table.faults))
        return TableReading(table, reading.partitions)
    return TableReading(Table(TableLabel.UNKNOWN, sector_size or 512, faults=(fault,)), ())


# Boot programs that are found by their place on the disk, and the used part of the gap before the first
# partition: a move of partitions must neither overwrite nor leave them behind. Sources: U-Boot's doc/board
# (allwinner, amlogic, nxp, rockchip), doc/README.mediatek, include/sunxi_image.h, include/imximage.h,
# tools/rkcommon.c, tools/omapimage.c;
# TI SPRUH73 26.1.8.5; GRUB's include/grub/i386/pc/boot.h; GRUB Legacy's stage1/stage1.h; LILO's first.S;
# zipl's src/install.c (s390-tools: update_scsi_mbr); Ventoy's grub-core/ventoy/ventoy_cmd.c
# (ventoy_check_official_device); Haiku's src/apps/bootmanager/bootman.S; syslinux's core/diskstart.inc; The
# Sleuth Kit's tsk/util/detect_encryption.c.

GAP_READ = 64 * MIB  # of the gap; the boot programs of known boards end at 16 MiB
_SECTOR = 512
_HEAD = 512 * KIB
# magic 0x0FF0AA55 and four zeros, in RC4 with the boot ROM's key
_ROCKCHIP = bytes.fromhex("3b8cdcfcbe9f9d51")
# (start of the program, offset of the magic in it, magic, name)
_MAGICS = (
    *((at * KIB, 4, b"eGON.BT0", "Allwinner boot loader") for at in (8, 128, 256)),
    *((at * KIB, 0, b"TOC0.GLH", "Allwinner boot loader") for at in (8, 128, 256)),
    *((32 * KIB, 0, magic, "Rockchip boot loader") for magic in (_ROCKCHIP, b"RKNS")),
    *(
        (at * KIB, 0, b"\xd1\0\x20%c" % version, "i.MX boot loader")
        for at in (1, 32, 33)
        for version in b"@ABC"
    ),
    (512, 16, b"@AML", "Amlogic boot loader"),
    (512, 0, b"BRLYT\0", "MediaTek boot loader"),
    *((at * KIB, 20, b"CHSETTINGS", "OMAP boot loader") for at in (0, 128, 256, 384)),
)
# Disk encryption of PCs, which depends on sector numbers: (range in sector 0 where a mark begins, name,
# marks)
_ENCRYPTION = (
    (0, 400, "VeraCrypt", (b"VeraCrypt",)),
    (0, 400, "TrueCrypt", (b"TrueCrypt",)),
    (3, 4, "PGP Whole Disk Encryption", (b"PGPGUARD",)),
    (0, 32, "SafeBoot", (b"SafeBoot", b"Safeboot")),
    (110, 150, "SafeGuard", (b"SGM400", b"SGE400")),
    (0, 32, "GuardianEdge", (b"PCGM",)),
    (80, 100, "Check Point Full Disk Encryption", (b"Protect",)),
    (236, 256, "SecureDoc", (b"WMSD",)),
)
_GRUB = b"Geom\0Hard Disk\0Read\0 Error"
_SYSLINUX = bytes.fromhex("fe02b23e")
_VENTOY = b"VT\0Ge\0HD\0Rd\0 Er\r"


def with_boot_code(reader: Reader, reading: TableReading) -> TableReading:
    """Return the reading, its table with the boot programs found by their place and the used part of the
    gap.
    """
    if reading.table is None:
        return reading
    head = read_or_none(reader, 0, _HEAD) or b""
    by_magic = (
        BootCode(kind, at) for at, offset, magic, kind in _MAGICS if head.startswith(magic, at + offset)
    )
    found = (*_in_sector_0(head[:_SECTOR]), *by_magic, *_in_partitions(reader, reading))
    used_to = _gap_used_to(reader, reading)
    return replace(reading, table=replace(reading.table, boot_code=found, gap_used_to=used_to))


def _in_sector_0(sector: bytes) -> Iterator[BootCode]:
    for first, last, kind, marks in _ENCRYPTION:
        if any(sector.find(mark, first, last + len(mark)) >= 0 for mark in marks):
            yield BootCode(kind, 0, encrypts=True)
    yield from _lists_of_sectors(sector, None)
    if sector.startswith(b"zIPL"):
        yield BootCode("zipl", 0)
    if sector.startswith(_VENTOY, 0x190):
        yield BootCode("Ventoy", 0)
    if b"Haiku Boot Manager\0" in sector:
        yield BootCode("Haiku Boot Manager", 0)


def _in_partitions(reader: Reader, reading: TableReading) -> Iterator[BootCode]:
    """Yield the boot programs with lists of sectors that start from a partition or from the first EBR of a
    container, where another boot program loads them.
    """
    for part in reading.partitions:
        if part.role is not Role.NESTED:
            yield from _lists_of_sectors(read_or_none(reader, part.extent.start, _SECTOR) or b"", part.number)


def _lists_of_sectors(sector: bytes, partition: int | None) -> Iterator[BootCode]:
    """Yield the boot program of a boot sector that keeps sectors of the disk."""
    if sector.startswith(b"LILO", 6):
        yield BootCode("LILO", 0, partition=partition)
    elif sector.startswith(_SYSLINUX, 0x1F8):
        yield BootCode("syslinux", 0, partition=partition)
    elif _GRUB in sector[0x170:0x1B8] and not sector.startswith(_VENTOY, 0x190):
        is_legacy = sector.startswith(b"\x03\x02", 0x3E)  # its version
        kind, at = ("GRUB Legacy", le32(sector, 0x44)) if is_legacy else ("GRUB", le64(sector, 0x5C))
        yield BootCode(kind, at * _SECTOR, partition=partition)


def _gap_used_to(reader: Reader, reading: TableReading) -> int | None:
    """Return the end of the last nonzero byte in the gap, searched from its end; unreadable bytes count as
    used.

    An extended partition is part of the gap: its logical partitions may begin far after its first sector.
    """
    data_partitions = (part for part in reading.partitions if part.role not in (Role.NESTED, Role.EXTENDED))
    first = min((part.extent.start for part in data_partitions), default=0)
    end = min(first, GAP_READ, reader.size)
    while end > MIB:
        start = max(MIB, align_down(end - 1, MIB))
        piece = read_or_none(reader, start, end - start)
        if piece is None or len(piece) < end - start:
            return end
        if has_data(piece):
            return start + len(piece.rstrip(b"\0"))
        end = start
    return None
