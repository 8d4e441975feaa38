"""BSD disklabels, Sun, SGI, DASD and Atari tables."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise, product
from operator import xor

from aligntool.formats.numbers import be16, be32, be64, le16, le32, text_at
from aligntool.formats.part_types import numbered_types
from aligntool.formats.reader import Reader, TableReading, plain_table, read_or_none, unreadable_fault
from aligntool.inventory import Fault, Partition, Role, TableFault, TableLabel
from aligntool.units import Extent

# The Atari root sector: AHDI with its chain of extended (XGM) partitions, and the ICD variant.
#
# The format has no magic: it is recognised only if sizes, identifiers and the bad-sector list are all
# consistent, as in libblkid, and after all other labels were tried. It is defined for 512-byte sectors only.

_SECTOR = 512
_PRIMARY_AT = 0x1C6
_ICD_AT = 0x156
_SIZE_AT = 0x1C2
_BAD_LIST_AT = 0x1F6
_MOST_LINKS = 100
_EXTENDED = "XGM"
_COMMON = frozenset({"GEM", "BGM", "LNX", "SWP", "RAW"})
_LARGEST = 2**31 - 1  # sectors; the limit of libblkid for an Atari disk


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of a table. Start and size are in sectors."""

    flag: int
    kind: str
    start: int
    sectors: int

    @property
    def active(self) -> bool:
        return bool(self.flag & 1)

    def fits(self, sectors: int) -> bool:
        return self.start > 0 and self.sectors > 0 and self.start + self.sectors <= sectors


def read_atari(reader: Reader, sector: bytes) -> TableReading | None:
    sectors = be32(sector, _SIZE_AT)
    if len(sector) < _SECTOR or not 2 <= sectors <= min(reader.size // _SECTOR, _LARGEST):
        return None
    bad_start, bad_count = struct.unpack_from(">II", sector, _BAD_LIST_AT)
    if (bad_start or bad_count) and not _Entry(1, "", bad_start, bad_count).fits(sectors):
        return None
    entries = _atari_entries(sector, _PRIMARY_AT, 4)
    active = [entry for entry in entries if entry.active]
    names = "".join(entry.kind for entry in active)
    if not names.isascii() or not names.isalnum() or not all(entry.fits(sectors) for entry in active):
        return None
    return _atari_reading(reader, sector, entries)


def _atari_entries(sector: bytes, at: int, count: int) -> list[_Entry]:
    rows = struct.iter_unpack(">B3sII", sector[at : at + 12 * count])
    return [_Entry(flag, kind.decode("latin-1"), start, sectors) for flag, kind, start, sectors in rows]


def _atari_reading(reader: Reader, sector: bytes, entries: list[_Entry]) -> TableReading:
    partitions: list[Partition] = []
    faults: list[TableFault] = []
    number = 1
    extended = False
    for entry in entries:
        if entry.active and entry.kind == _EXTENDED:
            extended = True
            number = _add_logicals(reader, entry, number, partitions, faults)
        elif entry.active:
            _add_partition(partitions, entry, entry.start, number, Role.PRIMARY)
        number += 1
    icd = _atari_entries(sector, _ICD_AT, 8)
    if not extended and icd[0].kind in _COMMON:
        for entry in icd:
            if entry.active and entry.kind in _COMMON:
                _add_partition(partitions, entry, entry.start, number, Role.PRIMARY)
            number += 1
    return plain_table(reader, TableLabel.ATARI, partitions, faults)


def _add_logicals(
    reader: Reader, extended: _Entry, number: int, partitions: list[Partition], faults: list[TableFault]
) -> int:
    """Add the logical partitions of an XGM partition. Return the last number used, or `number` if none
    was.
    """
    here = extended.start
    seen = {0}
    while len(seen) <= _MOST_LINKS:
        at = here * _SECTOR
        if here in seen:
            detail = f"the chain of XGM sectors returns to sector {here}: it is a loop"
            faults.append(TableFault(Fault.EBR_LOOP, detail, at))
            return number
        seen.add(here)
        raw = read_or_none(reader, at, _SECTOR)
        if raw is None:
            faults.append(unreadable_fault("an XGM sector", at))
            return number
        pair = _data_and_link(raw)
        if pair is None:
            detail = f"the XGM sector {here} contains no partition"
            faults.append(TableFault(Fault.EBR_BROKEN, detail, at))
            return number
        data, link = pair
        _add_partition(partitions, data, here + data.start, number, Role.LOGICAL)
        if not (link.active and link.kind == _EXTENDED):
            return number
        here = extended.start + link.start
        number += 1
    detail = f"the chain of XGM sectors continues after {_MOST_LINKS} of them"
    faults.append(TableFault(Fault.IMPLAUSIBLE_COUNT, detail, here * _SECTOR))
    return number


def _data_and_link(raw: bytes) -> tuple[_Entry, _Entry] | None:
    """Return the first active entry as the partition, and the entry after it as the link onwards, as in
    libblkid.
    """
    entries = _atari_entries(raw, _PRIMARY_AT, 4) if len(raw) >= _SECTOR else []
    found = next((pair for pair in pairwise(entries) if pair[0].active), None)
    return None if found is None or found[0].kind == _EXTENDED else found


def _add_partition(partitions: list[Partition], entry: _Entry, start: int, number: int, role: Role) -> None:
    if not entry.sectors:
        return
    extent = Extent(start * _SECTOR, entry.sectors * _SECTOR)
    flags = ("boot",) if entry.flag & 0x80 else ()
    partitions.append(Partition(number, extent, role, type_code=entry.kind, flags=flags))


# BSD disklabels: on a whole disk, and inside an MBR partition of FreeBSD, OpenBSD or NetBSD.
#
# Layout: FreeBSD's sys/disk/bsd.h (struct disklabel); offsets: one sector (PC), 64 or 128 bytes (Alpha,
# SPARC).

_MAGIC = 0x82564557
_MOST = 16
_HEADER = 148  # bytes before the first entry
_PLACES = (512, 64, 128)
_BSD_TYPES = numbered_types(
    "0 unused; 1 swap; 7 4.2BSD; 8 MS-DOS or ext2; 9 4.4BSD log-structured; A unknown; B HPFS; C ISO 9660; D"
    " boot; F HFS; 10 AdvFS; 11 ext2; 12 NTFS; 13 RAIDframe; 14 concatenated disk; 1B ZFS"
)


def read_slices(reader: Reader, at: int) -> tuple[Partition, ...] | None:
    """Return the entries of the label at byte `at`, including empty ones; None if one of its magic numbers is
    missing.

    Numbers follow the letters, as in fdisk: a is 1. Places are as the label states them, in units of 512
    bytes whatever the disk's sector size (kernel msdos.c, libfdisk bsd.c). An entry without a type is c, the
    whole disk, or unused.
    """
    raw = read_or_none(reader, at, _HEADER + _MOST * 16) or b""
    if len(raw) < _HEADER or (le32(raw, 0), le32(raw, 132)) != (_MAGIC, _MAGIC):
        return None
    found = []
    for index in range(min(le16(raw, 138), _MOST, (len(raw) - _HEADER) // 16)):
        sectors, start, _, kind = struct.unpack_from("<IIIB", raw, _HEADER + index * 16)
        extent = Extent(start * _SECTOR, sectors * _SECTOR)
        role = Role.PRIMARY if kind else Role.MAP
        found.append(Partition(index + 1, extent, role, str(kind), _BSD_TYPES.get(kind, "")))
    return tuple(found)


def read_bsd(reader: Reader, places: Iterable[int] = _PLACES) -> TableReading | None:
    """Return the first label at one of these bytes; those of a disk, not of a partition, are the default."""
    slices = next((found for at in places if (found := read_slices(reader, at)) is not None), None)
    used = [entry for entry in slices or () if entry.extent.length]
    return None if slices is None else plain_table(reader, TableLabel.BSD, used)


# Volume labels of IBM DASD: CDL (VOL1 with a VTOC), LDL (LNX1) and CMS (CMS1).
#
# The label is in block 2 of an ECKD disk and in block 1 of an FBA one; blocks have 512 to 4096 bytes; text is
# EBCDIC. Layout: the kernel's arch/s390/include/uapi/asm/vtoc.h; rules: its block/partitions/ibm.c.
#
# The kernel gets the geometry from the device; here it comes from the VTOC itself: the format-4 label is
# always the first record of the second track, so its place shows the number of blocks per track, and it
# states the heads.

_BLOCK_SIZES = (4096, 2048, 1024, 512)
_MOST_BLOCKS_A_TRACK = 64  # a 3390 has 49 of 512 bytes
_MOST_LABELS = 32  # VTOC records that are read; Linux volumes have at most three partitions
_FORMAT_4 = b"\x04" * 44 + b"\xf4"
_PARTITION_FORMATS = (0xF1, 0xF8)
_OTHER_FORMATS = (0xF4, 0xF5, 0xF7, 0xF9)
_LARGE_LDL = 0xF2  # ldl_version from which the label states the formatted size


def read_dasd(reader: Reader, sector_size: int | None) -> TableReading | None:
    sizes = sorted(_BLOCK_SIZES, key=lambda size: size != sector_size)
    for number, block in product((2, 1), sizes):  # ECKD first, then FBA
        label = read_or_none(reader, number * block, 84 + 8) or b""
        kind = _ebcdic(label[:4])
        if len(label) == 92 and kind in ("VOL1", "LNX1", "CMS1"):
            at = 8 if kind == "VOL1" else 4
            partitions, faults = (
                _cdl(reader, block) if kind == "VOL1" else (_ldl_cms(reader, label, number, block), [])
            )
            serial = _ebcdic(label[at : at + 6]) or None
            return plain_table(reader, TableLabel.DASD, partitions, faults, sector_size=block, disk_id=serial)
    return None


def _ebcdic(raw: bytes) -> str:
    return raw.decode("cp037", "replace").rstrip()


def _ldl_cms(reader: Reader, label: bytes, number: int, block: int) -> list[Partition]:
    """Return the one partition of LDL and CMS, which starts at the block after the label: it follows from the
    format, not from a table. CMS states its own block size and, on a reserved minidisk, where the data
    starts.
    """
    start, end = (number + 1) * block, reader.size // block * block
    if _ebcdic(label[:4]) == "CMS1":
        size, count, offset = (be32(label, at) for at in (12, 28, 52))
        if size not in _BLOCK_SIZES:
            return []
        start, end = (offset * size, (count - 1) * size) if offset else (start, count * size)
    elif label[79] >= _LARGE_LDL:
        end = be64(label, 80) * block
    return [Partition(1, Extent(start, end - start))] if end > start else []


def _cdl(reader: Reader, block: int) -> tuple[list[Partition], list[TableFault]]:
    for track in range(3, _MOST_BLOCKS_A_TRACK):
        record = read_or_none(reader, track * block, 140) or b""
        if record.startswith(_FORMAT_4) and len(record) == 140:
            return _vtoc(reader, block, track, be16(record, 64))
    detail = "this is a DASD volume (CDL), but its VTOC was not found: its partitions are unknown"
    return [], [TableFault(Fault.BAD_ENTRY, detail, 2 * block)]


def _vtoc(reader: Reader, block: int, track: int, heads: int) -> tuple[list[Partition], list[TableFault]]:
    partitions: list[Partition] = []
    faults: list[TableFault] = []
    for index in range(track + 1, track + 1 + _MOST_LABELS):
        record = read_or_none(reader, index * block, 140) or b""
        if len(record) < 140 or record[44] not in (*_PARTITION_FORMATS, *_OTHER_FORMATS):
            break
        if record[44] in _OTHER_FORMATS:
            continue
        number = len(partitions) + len(faults) + 1
        # The upper 12 bits of a head number are the upper bits of the cylinder.
        places = ((be16(record, at), be16(record, at + 2)) for at in (107, 111))
        start, last = (((head & 0xFFF0) << 12 | cylinder) * heads + (head & 0xF) for cylinder, head in places)
        if last < start:
            detail = f"partition {number} starts on track {start} and ends before that, on track {last}"
            faults.append(TableFault(Fault.BAD_ENTRY, detail, index * block, (number,)))
            continue
        extent = Extent(start * track * block, (last - start + 1) * track * block)
        name, _, kind = _ebcdic(record[:44]).rpartition(".")
        partitions.append(Partition(number, extent, type_code=kind, name=name or None))
    return partitions, faults


# The Sun and SGI disk labels: one sector, checksummed, big-endian.
#
# The unit of both is 512 bytes, and both have a slice for the whole disk. Layouts: the kernel's
# block/partitions/sun.c and sgi.c, util-linux's pt-sun.h and pt-sgi.h.

_SUN_MAGIC = 0xDABE
_SUN_VTOC_SANE = 0x600DDEEE
_SUN_WHOLE_DISK = 5
_SGI_MAGIC = 0x0BE5A941
_SGI_VOLUME_HEADER = 0
_SGI_WHOLE_DISK = 6
_LINUX_TYPES = "82 Linux swap; 83 Linux; 8E Linux LVM; FD Linux RAID autodetect"
_SUN_TYPES = numbered_types(
    "0 Unassigned; 1 Boot; 2 SunOS root; 3 SunOS swap; 4 SunOS usr; 5 Whole disk; 6 SunOS stand; 7 SunOS var;"
    f" 8 SunOS home; 9 SunOS alternate sectors; A SunOS cachefs; B SunOS reserved; {_LINUX_TYPES}"
)
_SGI_TYPES = numbered_types(
    "0 SGI volume header; 1 SGI track replacements; 2 SGI sector replacements; 3 SGI swap; 4 SGI BSD; 5 SGI"
    " System V; 6 SGI volume; 7 SGI EFS; 8 SGI logical volume; 9 SGI raw logical volume; A SGI XFS; B SGI XFS"
    f" log; C SGI XLV; D SGI XVM; {_LINUX_TYPES}"
)


def read_sun(reader: Reader, sector: bytes) -> TableReading | None:
    if len(sector) < _SECTOR or be16(sector, 508) != _SUN_MAGIC:
        return None
    if reduce(xor, struct.unpack(">256H", sector[:_SECTOR])):
        return None
    heads, sectors_per_track = struct.unpack_from(">HH", sector, 436)
    version, slots = struct.unpack_from(">I8xH", sector, 128)
    sanity = be32(sector, 188)
    has_vtoc = sanity == _SUN_VTOC_SANE and version == 1 and slots <= 8
    # Old Linux labels have a VTOC with all these fields zero, but with types: the kernel makes the same
    # exception.
    has_types = has_vtoc or not (sanity or version or slots)
    found = []
    for slot in range(slots if has_vtoc else 8):
        cylinder, sectors = struct.unpack_from(">II", sector, 444 + slot * 8)
        kind, bits = struct.unpack_from(">HH", sector, 142 + slot * 4) if has_types else (0, 0)
        start = cylinder * heads * sectors_per_track
        flags = (("unmountable",) if bits & 0x01 else ()) + (("read-only",) if bits & 0x10 else ())
        role = Role.MAP if kind == _SUN_WHOLE_DISK else Role.PRIMARY
        found.append(_slot(slot, start, sectors, role, kind, _SUN_TYPES.get(kind, ""), flags))
    return plain_table(reader, TableLabel.SUN, [item for item in found if item.extent.length])


def read_sgi(reader: Reader, sector: bytes) -> TableReading | None:
    if len(sector) < _SECTOR or be32(sector, 0) != _SGI_MAGIC:
        return None
    if sum(struct.unpack(">128I", sector[:_SECTOR])) & 0xFFFFFFFF:
        return None
    root, swap = struct.unpack_from(">HH", sector, 4)
    boots = text_at(sector, 8, 16, "latin-1") is not None
    found = []
    for slot in range(16):
        sectors, start, kind = struct.unpack_from(">III", sector, 312 + slot * 12)
        flags = (("boot",) if slot == root and boots else ()) + (("swap",) if slot == swap else ())
        role = Role.MAP if kind in (_SGI_VOLUME_HEADER, _SGI_WHOLE_DISK) else Role.PRIMARY
        found.append(_slot(slot, start, sectors, role, kind, _SGI_TYPES.get(kind, ""), flags))
    return plain_table(reader, TableLabel.SGI, [item for item in found if item.extent.length])


def _slot(
    slot: int, start: int, sectors: int, role: Role, kind: int, name: str, flags: tuple[str, ...]
) -> Partition:
    extent = Extent(start * _SECTOR, sectors * _SECTOR)
    return Partition(slot + 1, extent, role, f"0x{kind:02x}", name, flags=flags)
