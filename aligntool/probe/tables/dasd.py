"""Volume labels of IBM DASD: CDL (VOL1 with a VTOC), LDL (LNX1) and CMS (CMS1).

Comes in: a reader. Goes out: the volume's partitions. The label is in block 2 of an ECKD disk and in block 1 of an FBA
one; blocks have 512 to 4096 bytes; text is EBCDIC. Alone because its geometry (cylinders, heads, blocks a track)
exists nowhere else. Layout: the kernel's arch/s390/include/uapi/asm/vtoc.h; rules: its block/partitions/ibm.c.

The kernel asks the device for its geometry; here it is taken from the VTOC itself: the format-4 label, which is always
the first record of the second track, tells how many blocks a track has by where it lies, and names the heads.
"""

import struct

from aligntool.inventory import Fault, Partition, Table, TableFault, TableLabel
from aligntool.probe.reader import Reader
from aligntool.probe.tables.checks import beyond_end, overlaps
from aligntool.probe.tables.reading import TableReading, peek, thin_out
from aligntool.units import Extent

_BLOCK_SIZES = (4096, 2048, 1024, 512)
_MOST_BLOCKS_A_TRACK = 64  # a 3390 has 49 of 512 bytes
_MOST_LABELS = 32  # VTOC records looked at; Linux volumes have at most three partitions
_FORMAT_4 = b"\x04" * 44 + b"\xf4"
_PARTITION_FORMATS = (0xF1, 0xF8)
_OTHER_FORMATS = (0xF4, 0xF5, 0xF7, 0xF9)
_LARGE_LDL = 0xF2  # ldl_version from which the label names the formatted size


def read_dasd(reader: Reader, sector_size: int | None) -> TableReading | None:
    sizes = dict.fromkeys((sector_size, *_BLOCK_SIZES)) if sector_size in _BLOCK_SIZES else _BLOCK_SIZES
    for number in (2, 1):  # ECKD first, then FBA
        for block in sizes:
            if block is None:
                continue
            label = peek(reader, number * block, 84 + 8) or b""
            kind = _words(label[:4])
            if len(label) == 92 and kind in ("VOL1", "LNX1", "CMS1"):
                return _read(reader, label, kind, number, block)
    return None


def _words(raw: bytes) -> str:
    return raw.decode("cp037", "replace").rstrip()


def _read(reader: Reader, label: bytes, kind: str, number: int, block: int) -> TableReading:
    if kind == "VOL1":
        serial = _words(label[8:14])
        partitions, faults = _cdl(reader, block)
    else:
        serial = _words(label[4:10])
        partitions, faults = (_ldl if kind == "LNX1" else _cms)(reader, label, number, block), []
    faults += beyond_end(partitions, reader.size)
    faults += overlaps(partitions)
    table = Table(TableLabel.DASD, block, disk_id=serial or None, faults=thin_out(faults))
    return TableReading(table, tuple(partitions))


def _ldl(reader: Reader, label: bytes, number: int, block: int) -> list[Partition]:
    """One partition from the block after the label on; no table says so, the format does."""
    blocks = reader.size // block
    if label[79] >= _LARGE_LDL:
        blocks = int.from_bytes(label[80:88], "big")
    return _single((number + 1) * block, blocks * block)


def _cms(reader: Reader, label: bytes, number: int, block: int) -> list[Partition]:
    """CMS names its own block size and, on a reserved minidisk, where the data starts."""
    size, count, offset = (struct.unpack_from(">I", label, at)[0] for at in (12, 28, 52))
    if size not in _BLOCK_SIZES:
        return []
    if offset:
        return _single(offset * size, (count - 1) * size)
    return _single((number + 1) * block, count * size)


def _single(start: int, end: int) -> list[Partition]:
    return [Partition(1, Extent(start, end - start))] if end > start else []


def _cdl(reader: Reader, block: int) -> tuple[list[Partition], list[TableFault]]:
    for track in range(3, _MOST_BLOCKS_A_TRACK):
        record = peek(reader, track * block, 140) or b""
        if record.startswith(_FORMAT_4) and len(record) == 140:
            heads = struct.unpack_from(">H", record, 64)[0]
            return _vtoc(reader, block, track, heads)
    detail = "this is a DASD volume (CDL), but its VTOC was not found, so its partitions cannot be told"
    return [], [TableFault(Fault.BAD_ENTRY, detail, 2 * block)]


def _vtoc(reader: Reader, block: int, track: int, heads: int) -> tuple[list[Partition], list[TableFault]]:
    partitions: list[Partition] = []
    faults: list[TableFault] = []
    for index in range(track + 1, track + 1 + _MOST_LABELS):
        record = peek(reader, index * block, 140) or b""
        if len(record) < 140 or record[44] not in (*_PARTITION_FORMATS, *_OTHER_FORMATS):
            break
        if record[44] in _OTHER_FORMATS:
            continue
        number = len(partitions) + len(faults) + 1
        start, last = (_track(record[at : at + 4], heads) for at in (107, 111))
        if last < start:
            detail = f"partition {number} starts on track {start} and ends before that, on track {last}"
            faults.append(TableFault(Fault.BAD_ENTRY, detail, index * block, (number,)))
            continue
        extent = Extent(start * track * block, (last - start + 1) * track * block)
        name, _, kind = _words(record[:44]).rpartition(".")
        partitions.append(Partition(number, extent, type_code=kind, name=name or None))
    return partitions, faults


def _track(cchh: bytes, heads: int) -> int:
    """Cylinder and head to track; the upper 12 bits of the head number are the cylinder's upper bits."""
    cylinder, head = int.from_bytes(cchh[:2], "big"), int.from_bytes(cchh[2:], "big")
    return ((head & 0xFFF0) << 12 | cylinder) * heads + (head & 0x000F)
