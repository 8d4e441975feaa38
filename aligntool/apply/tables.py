"""Partition tables, written by libparted into image files.

Extents in bytes come in, a table counted in sectors goes out; with `probe/tables` this is the only place that knows
sectors. Real disks are not written here: what their tables need (journal, order of writes) is not what an image needs.
"""

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aligntool.inventory import Role
from aligntool.units import Extent

SECTOR = 512
HEADS = 255
SECTORS_PER_TRACK = 63
TRACK = SECTORS_PER_TRACK * SECTOR
CYLINDER = HEADS * TRACK

_DISK_ID_AT = 440
_ENTRIES_AT = 446
_SIGNATURE_AT = 510


@dataclass(frozen=True, slots=True)
class MbrEntry:
    extent: Extent
    role: Role
    libparted_type: str | None  # its file system name, which decides the type byte; None for the container
    active: bool = False


def write_cylinder_mbr(image: Path, entries: Sequence[MbrEntry], *, disk_id: int) -> None:
    """A table as in the days of CHS: 255 heads, 63 sectors a track, each EBR a track before its partition.

    libparted gives an image file a geometry of 4 heads and 32 sectors, and would put the EBRs 32 sectors before their
    partitions. It believes the CHS values of a table that is there already, so a first entry is written for it to read.
    """
    import parted

    _write_seed(image, entries[0])
    device = parted.getDevice(os.fspath(image))
    try:
        disk = parted.newDisk(device)
        disk.deleteAllPartitions()
        for entry in entries:
            _add(parted, disk, entry)
        disk.commitToDevice()
    finally:
        # libparted would answer for the next file of this path with the length of this one.
        device.removeFromCache()
    # libparted draws a random disk signature whenever it installs its boot code; and from 3.6 on it makes every
    # container one for LBA (0x0f), where the partitioners of the day wrote 0x05.
    with image.open("r+b") as file:
        file.seek(_DISK_ID_AT)
        file.write(struct.pack("<I", disk_id))
        for index, entry in enumerate(it for it in entries if it.role is not Role.LOGICAL):
            if entry.role is Role.EXTENDED:
                file.seek(_ENTRIES_AT + index * 16 + 4)
                file.write(b"\x05")


def _add(parted: Any, disk: Any, entry: MbrEntry) -> None:
    geometry = parted.Geometry(
        disk.device, start=entry.extent.start // SECTOR, length=entry.extent.length // SECTOR
    )
    kinds = {
        Role.PRIMARY: parted.PARTITION_NORMAL,
        Role.EXTENDED: parted.PARTITION_EXTENDED,
        Role.LOGICAL: parted.PARTITION_LOGICAL,
    }
    content = parted.FileSystem(entry.libparted_type, geometry) if entry.libparted_type else None
    partition = parted.Partition(disk, kinds[entry.role], geometry=geometry, fs=content)
    disk.addPartition(partition, parted.Constraint(exactGeom=geometry))
    if entry.active:
        partition.setFlag(parted.PARTITION_BOOT)


def _write_seed(image: Path, entry: MbrEntry) -> None:
    start, length = entry.extent.start // SECTOR, entry.extent.length // SECTOR
    raw = struct.pack(
        "<B3sB3sII", 0x80, _chs(start), 0x07, _chs(start + length - 1), start, length
    )  # the type byte is a placeholder; libparted sets the real one
    with image.open("r+b") as file:
        file.seek(_ENTRIES_AT)
        file.write(raw)
        file.seek(_SIGNATURE_AT)
        file.write(b"\x55\xaa")


def _chs(lba: int) -> bytes:
    """Head, sector with the cylinder's top two bits, cylinder; the last cylinder that fits stands for all beyond it."""
    cylinder, rest = divmod(lba, HEADS * SECTORS_PER_TRACK)
    if cylinder > 1023:
        return bytes((HEADS - 1, 0xFF, 0xFF))
    head, sector = divmod(rest, SECTORS_PER_TRACK)
    return bytes((head, sector + 1 | cylinder >> 8 << 6, cylinder & 0xFF))
