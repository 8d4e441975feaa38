"""The Sun and SGI disk labels: one sector, checksummed, big-endian.

Comes in: sector 0. Goes out: the label's slices, numbered by their slot. Both count in 512 bytes and keep a slice that
stands for the whole disk. Alone because they are alike, and like nothing else. Layouts: the kernel's
block/partitions/sun.c and sgi.c, util-linux's pt-sun.h and pt-sgi.h.
"""

import struct

from aligntool.inventory import Partition, Role, Table, TableLabel
from aligntool.probe.reader import Reader
from aligntool.probe.tables.checks import beyond_end, overlaps
from aligntool.probe.tables.reading import TableReading, text_field, thin_out
from aligntool.units import Extent

_SECTOR = 512
_SUN_MAGIC, _SUN_VTOC_SANE, _SUN_WHOLE_DISK = 0xDABE, 0x600DDEEE, 5
_SGI_MAGIC, _SGI_VOLUME_HEADER, _SGI_WHOLE_DISK = 0x0BE5A941, 0, 6
_SUN_TYPES = {
    0: "Unassigned",
    1: "Boot",
    2: "SunOS root",
    3: "SunOS swap",
    4: "SunOS usr",
    5: "Whole disk",
    6: "SunOS stand",
    7: "SunOS var",
    8: "SunOS home",
    9: "SunOS alternate sectors",
    10: "SunOS cachefs",
    11: "SunOS reserved",
    0x82: "Linux swap",
    0x83: "Linux",
    0x8E: "Linux LVM",
    0xFD: "Linux RAID autodetect",
}
_SGI_TYPES = {
    0: "SGI volume header",
    1: "SGI track replacements",
    2: "SGI sector replacements",
    3: "SGI swap",
    4: "SGI BSD",
    5: "SGI System V",
    6: "SGI volume",
    7: "SGI EFS",
    8: "SGI logical volume",
    9: "SGI raw logical volume",
    10: "SGI XFS",
    11: "SGI XFS log",
    12: "SGI XLV",
    13: "SGI XVM",
    0x82: "Linux swap",
    0x83: "Linux",
    0x8E: "Linux LVM",
    0xFD: "Linux RAID autodetect",
}


def read_sun(reader: Reader, sector: bytes) -> TableReading | None:
    if len(sector) < _SECTOR or int.from_bytes(sector[508:510], "big") != _SUN_MAGIC:
        return None
    checksum = 0
    for word in struct.unpack(">256H", sector[:_SECTOR]):
        checksum ^= word
    if checksum:
        return None
    heads, sectors_per_track = struct.unpack_from(">HH", sector, 436)
    version, slots = struct.unpack_from(">I8xH", sector, 128)
    sanity = struct.unpack_from(">I", sector, 188)[0]
    has_vtoc = sanity == _SUN_VTOC_SANE and version == 1 and slots <= 8
    # Old Linux labels left the whole VTOC zero and still kept types in it: the kernel's own exception.
    has_types = has_vtoc or not (sanity or version or slots)
    partitions = []
    for slot in range(slots if has_vtoc else 8):
        cylinder, sectors = struct.unpack_from(">II", sector, 444 + slot * 8)
        kind, flags = struct.unpack_from(">HH", sector, 142 + slot * 4) if has_types else (0, 0)
        if sectors:
            start = cylinder * heads * sectors_per_track
            partitions.append(_sun_partition(slot + 1, start, sectors, kind, flags))
    return _reading(reader, TableLabel.SUN, partitions)


def _sun_partition(number: int, start: int, sectors: int, kind: int, flags: int) -> Partition:
    return Partition(
        number=number,
        extent=Extent(start * _SECTOR, sectors * _SECTOR),
        role=Role.MAP if kind == _SUN_WHOLE_DISK else Role.PRIMARY,
        type_code=f"0x{kind:02x}",
        type_name=_SUN_TYPES.get(kind, ""),
        flags=(("unmountable",) if flags & 0x01 else ()) + (("read-only",) if flags & 0x10 else ()),
    )


def read_sgi(reader: Reader, sector: bytes) -> TableReading | None:
    if len(sector) < _SECTOR or int.from_bytes(sector[:4], "big") != _SGI_MAGIC:
        return None
    if sum(struct.unpack(">128I", sector[:_SECTOR])) & 0xFFFFFFFF:
        return None
    root, swap = struct.unpack_from(">HH", sector, 4)
    boot_file = text_field(sector[8:24])
    partitions = []
    for slot in range(16):
        sectors, start, kind = struct.unpack_from(">III", sector, 312 + slot * 12)
        if sectors:
            flags = (("boot",) if slot == root and boot_file else ()) + (("swap",) if slot == swap else ())
            partitions.append(_sgi_partition(slot + 1, start, sectors, kind, flags))
    return _reading(reader, TableLabel.SGI, partitions)


def _sgi_partition(number: int, start: int, sectors: int, kind: int, flags: tuple[str, ...]) -> Partition:
    return Partition(
        number=number,
        extent=Extent(start * _SECTOR, sectors * _SECTOR),
        role=Role.MAP if kind in (_SGI_VOLUME_HEADER, _SGI_WHOLE_DISK) else Role.PRIMARY,
        type_code=f"0x{kind:02x}",
        type_name=_SGI_TYPES.get(kind, ""),
        flags=flags,
    )


def _reading(reader: Reader, label: TableLabel, partitions: list[Partition]) -> TableReading:
    faults = beyond_end(partitions, reader.size)
    faults += overlaps(item for item in partitions if item.role is Role.PRIMARY)
    return TableReading(Table(label, _SECTOR, faults=thin_out(faults)), tuple(partitions))
