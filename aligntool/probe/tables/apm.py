"""The Apple partition map (blkid's "mac").

Comes in: a reader. Goes out: the map's entries. It counts in the block size that its driver descriptor in block 0
names (512, on discs 2048), whatever the disk's sector is. Alone because of that block size. Layout: Inside Macintosh:
Devices, chapter 3; numbering as the kernel's block/partitions/mac.c: by place in the map.
"""

import struct

from aligntool.inventory import Fault, Partition, Role, Table, TableFault, TableLabel
from aligntool.probe.reader import Reader
from aligntool.probe.tables.checks import beyond_end, overlaps
from aligntool.probe.tables.reading import TableReading, peek, text_field, thin_out, unreadable
from aligntool.units import Extent

_MOST_ENTRIES = 255  # DISK_MAX_PARTS of the kernel
_BLOCK_SIZES = (512, 1024, 2048, 4096)
_ENTRY = 136  # bytes of an entry that are read
_BOOTABLE = 0x8
_OF_THE_MAP = (
    "apple_partition_map",
    "apple_free",
    "apple_void",
    "apple_extra",
    "apple_patches",
    "apple_fwdriver",
)
_TYPE_NAMES = {
    "Apple_partition_map": "Apple partition map",
    "Apple_Free": "Free space",
    "Apple_HFS": "Apple HFS/HFS+",
    "Apple_HFSX": "Apple HFSX",
    "Apple_UFS": "Apple UFS",
    "Apple_UNIX_SVR2": "Unix or Linux file system",
    "Apple_Bootstrap": "New World boot",
    "Apple_Boot": "Apple boot",
    "Apple_RAID": "Apple RAID",
    "Apple_CoreStorage": "Apple Core Storage",
    "Apple_APFS": "Apple APFS",
}


def read_apm(reader: Reader, sector: bytes) -> TableReading | None:
    """None without a driver descriptor ("ER") and a first map entry ("PM")."""
    if len(sector) < 512 or not sector.startswith(b"ER"):
        return None
    named = int.from_bytes(sector[2:4], "big")
    for block in dict.fromkeys((named, 512)):  # discs for old Macs name 2048 and keep the map in 512
        if block in _BLOCK_SIZES and (peek(reader, block, 2) or b"") == b"PM":
            return _read_map(reader, block)
    return None


def _read_map(reader: Reader, block: int) -> TableReading:
    first = peek(reader, block, _ENTRY) or b""
    count = int.from_bytes(first[4:8], "big")
    partitions: list[Partition] = []
    faults: list[TableFault] = []
    if count > _MOST_ENTRIES:
        detail = f"the Apple partition map claims {count} entries; {_MOST_ENTRIES} are read"
        faults.append(TableFault(Fault.IMPLAUSIBLE_COUNT, detail, block))
    for number in range(1, min(count, _MOST_ENTRIES) + 1):
        entry = peek(reader, number * block, _ENTRY)
        if entry is None:
            faults.append(unreadable(f"entry {number} of the Apple partition map", number * block))
            break
        if len(entry) < _ENTRY or not entry.startswith(b"PM"):
            detail = (
                f"the Apple partition map should have {count} entries, but breaks off before entry {number}"
            )
            faults.append(TableFault(Fault.BAD_ENTRY, detail, number * block))
            break
        if any(entry[12:16]):  # an entry without blocks is a place kept free
            partitions.append(_partition(entry, number, block))
    faults += beyond_end(partitions, reader.size)
    faults += overlaps(item for item in partitions if not _is_map(item))
    return TableReading(Table(TableLabel.APM, block, faults=thin_out(faults)), tuple(partitions))


def _partition(entry: bytes, number: int, block: int) -> Partition:
    start, blocks = struct.unpack_from(">II", entry, 8)
    kind = text_field(entry[48:80])
    status = struct.unpack_from(">I", entry, 88)[0]
    of_the_map = kind.casefold() in _OF_THE_MAP or kind.casefold().startswith("apple_driver")
    return Partition(
        number=number,
        extent=Extent(start * block, blocks * block),
        role=Role.MAP if of_the_map else Role.PRIMARY,
        type_code=kind,
        type_name=_TYPE_NAMES.get(kind, ""),
        name=text_field(entry[16:48]) or None,
        flags=("boot",) if status & _BOOTABLE and not of_the_map else (),
    )


def _is_map(partition: Partition) -> bool:
    return partition.role is Role.MAP
