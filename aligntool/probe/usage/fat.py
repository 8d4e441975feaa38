"""Used clusters of FAT12, FAT16 and FAT32, from the allocation table itself.

In: a reader and the place of the file system. Out: its used runs. Alone because the table is simple enough to be read
here, so that neither root nor another program is needed: entry 0 is free, anything else (a next cluster, the end of a
chain, a bad cluster) is not. Source: Microsoft's FAT specification 1.03, "FAT Data Structure".
"""

from array import array
from collections.abc import Iterable
from itertools import islice
from sys import byteorder

from aligntool.probe.layers.area import le16
from aligntool.probe.layers.fat import Boot, read_boot
from aligntool.probe.reader import LONGEST_READ, Reader
from aligntool.probe.usage.used_map import NoMap
from aligntool.units import Extent

FIRST = 2  # the number of the first cluster
NOT_MIRRORED = 0x80  # in BPB_ExtFlags: only one copy of the table is kept up to date


def read_fat(reader: Reader, start: int) -> tuple[Extent, ...]:
    """Runs counted from the file system's start. Raises NoMap, and OSError where the medium cannot be read."""
    sector = reader.read(start, 512)
    boot = read_boot(sector)
    if boot is None:
        raise NoMap("its boot sector makes no sense")
    if boot.bits == 32 and le16(sector, 40) & NOT_MIRRORED:
        raise NoMap("only one copy of its allocation table is kept up to date")
    copy_length = boot.fats // boot.copies * boot.sector
    table_start = start + boot.reserved * boot.sector
    length = -(-(boot.clusters + FIRST) * boot.bits // 8)
    if length > copy_length:
        raise NoMap(f"its allocation table of {copy_length} bytes is too short for {boot.clusters} clusters")
    table = _read(reader, table_start, length)
    for copy in range(1, boot.copies):
        if _read(reader, table_start + copy * copy_length, length) != table:
            raise NoMap("the copies of its allocation table differ")
    return _runs(boot, table)


def _read(reader: Reader, at: int, length: int) -> bytes:
    pieces = [
        reader.read(at + done, min(LONGEST_READ, length - done)) for done in range(0, length, LONGEST_READ)
    ]
    table = b"".join(pieces)
    if len(table) != length:
        raise NoMap("its allocation table is cut off")
    return table


def _runs(boot: Boot, table: bytes) -> tuple[Extent, ...]:
    """Everything before the clusters, then each run of clusters that are not free."""
    runs: list[Extent] = [Extent(0, boot.data_start)]
    begin: int | None = None
    entries = islice(_entries(boot.bits, table), FIRST, boot.clusters + FIRST)
    for number, entry in enumerate(entries, start=FIRST):
        if entry and begin is None:
            begin = number
        elif not entry and begin is not None:
            runs.append(_clusters(boot, begin, number))
            begin = None
    if begin is not None:
        runs.append(_clusters(boot, begin, boot.clusters + FIRST))
    return tuple(runs)


def _clusters(boot: Boot, first: int, end: int) -> Extent:
    return Extent(boot.data_start + (first - FIRST) * boot.cluster, (end - first) * boot.cluster)


def _entries(bits: int, table: bytes) -> Iterable[int]:
    if bits == 12:
        return (
            (le16(table, at * 3 // 2) >> (4 if at % 2 else 0)) & 0xFFF for at in range(len(table) * 2 // 3)
        )
    words = array("H" if bits == 16 else "I")
    words.frombytes(table)
    if byteorder == "big":
        words.byteswap()
    return words if bits == 16 else (word & 0x0FFFFFFF for word in words)
