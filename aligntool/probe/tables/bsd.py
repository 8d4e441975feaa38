"""BSD disklabels: on a whole disk, and inside an MBR partition of FreeBSD, OpenBSD or NetBSD.

Comes in: the place to look. Goes out: the label's entries. Layout: FreeBSD's sys/disk/bsd.h (struct disklabel); the
places: one sector in (PC), 64 or 128 bytes in (Alpha, SPARC). Alone because two tables need it: a label of its own, and
the second pass over an MBR.
"""

import struct
from dataclasses import dataclass

from aligntool.inventory import Partition, Role, Table, TableLabel
from aligntool.probe.reader import Reader
from aligntool.probe.tables.checks import beyond_end, overlaps
from aligntool.probe.tables.reading import TableReading, peek, thin_out
from aligntool.units import Extent

SECTOR = 512  # a BSD label counts in 512 bytes whatever the disk's sector is (kernel msdos.c, libfdisk bsd.c)
_MAGIC = 0x82564557
_MOST = 16
_HEADER = 148  # bytes before the first entry
_PLACES = (512, 64, 128)
_TYPES = {
    0: "unused",
    1: "swap",
    7: "4.2BSD",
    8: "MS-DOS or ext2",
    9: "4.4BSD log-structured",
    10: "unknown",
    11: "HPFS",
    12: "ISO 9660",
    13: "boot",
    15: "HFS",
    16: "AdvFS",
    17: "ext2",
    18: "NTFS",
    19: "RAIDframe",
    20: "concatenated disk",
    27: "ZFS",
}


@dataclass(frozen=True, slots=True)
class Slice:
    index: int  # 0 is "a"
    start: int  # sectors as the label says
    sectors: int
    kind: int

    @property
    def letter(self) -> str:
        return chr(ord("a") + self.index)


def read_slices(reader: Reader, at: int) -> tuple[Slice, ...] | None:
    """The entries of the label at byte `at`, empty ones too; None when both magic numbers of a label are not there."""
    raw = peek(reader, at, _HEADER + _MOST * 16)
    if raw is None or len(raw) < _HEADER:
        return None
    count = struct.unpack_from("<H", raw, 138)[0]
    if struct.unpack_from("<I", raw, 0)[0] != _MAGIC or struct.unpack_from("<I", raw, 132)[0] != _MAGIC:
        return None
    entries = raw[_HEADER : _HEADER + min(count, _MOST) * 16]
    found = []
    for index in range(len(entries) // 16):
        sectors, start, _, kind = struct.unpack_from("<IIIB", entries, index * 16)
        found.append(Slice(index, start, sectors, kind))
    return tuple(found)


def type_name(kind: int) -> str:
    return _TYPES.get(kind, "")


def read_bsd(reader: Reader) -> TableReading | None:
    """A label on the disk itself. Numbers are the letters', as fdisk counts them: a is 1."""
    for at in _PLACES:
        slices = read_slices(reader, at)
        if slices is not None:
            partitions = tuple(_partition(entry) for entry in slices if entry.sectors)
            faults = beyond_end(partitions, reader.size)
            faults += overlaps(item for item in partitions if item.role is Role.PRIMARY)
            return TableReading(Table(TableLabel.BSD, SECTOR, faults=thin_out(faults)), partitions)
    return None


def _partition(entry: Slice) -> Partition:
    return Partition(
        number=entry.index + 1,
        extent=Extent(entry.start * SECTOR, entry.sectors * SECTOR),
        role=Role.PRIMARY if entry.kind else Role.MAP,  # unused with a size: c, the whole disk
        type_code=str(entry.kind),
        type_name=type_name(entry.kind),
    )
