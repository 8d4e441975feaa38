"""exFAT."""

import re
import struct
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from heapq import merge
from itertools import groupby
from operator import attrgetter

from aligntool.contents.fat import (
    BAD_CLUSTER,
    ENTRY,
    FIRST_CLUSTER,
    MEDIUM_ERRORS,
    BrokenFatError,
    cleaning_with,
    directories,
    fat_entries,
    table_pieces,
)
from aligntool.contents.kind import Answers, Kind, StartField, Unit, UnitOf, contains_no_device, unit_of
from aligntool.contents.signatures import magic
from aligntool.contents.used_blocks import NoMap, used_by_partclone
from aligntool.device import Medium
from aligntool.formats.numbers import le32, le64, serial_at, text_at
from aligntool.formats.reader import Area, Reader, checksum_problem, read_pieces, rotating_sum
from aligntool.inventory import Layer
from aligntool.units import MIB, Extent

# Source: Microsoft's exFAT file system specification, section 3 (boot region) and 7.3 (volume label).

CHANGING = (106, 107, 112)  # VolumeFlags and PercentInUse: excluded from the checksum
CHECKED_SECTORS = 11


def read_exfat(area: Area) -> Layer | None:
    boot = area.head[:512]
    if boot[:11] != b"\xeb\x76\x90EXFAT   " or boot[510:512] != b"\x55\xaa" or any(boot[11:64]):
        return None
    hidden, sectors, fat, fat_length, heap, clusters, root = struct.unpack_from("<2Q5I", boot, 64)
    flags, sector_shift, cluster_shift, copies = struct.unpack_from("<H3B", boot, 106)
    if not (9 <= sector_shift <= 12 and cluster_shift <= 25 - sector_shift and copies in (1, 2)):
        return None
    if fat < 24 or heap < fat + fat_length * copies or not 2 <= root <= clusters + 1:
        return None
    sector = 1 << sector_shift
    cluster = 1 << sector_shift + cluster_shift
    unclean = "was not unmounted cleanly (dirty flag set)" if flags & 0x2 else None
    if flags & 0x4:
        unclean = MEDIUM_ERRORS[0]
    root_directory = directories(area, root, fat * sector, heap * sector, cluster, clusters)
    copy = area.read((CHECKED_SECTORS + 1) * sector, 512)
    return replace(
        area.layer("exfat", sectors << sector_shift, cluster),
        version=f"{boot[105]}.{boot[104]}",
        label=_exfat_label(root_directory),
        uuid=serial_at(boot, 100),
        data_start=area.start + heap * sector,
        problems=_exfat_problems(area, sector),
        unclean=unclean,
        hidden_sectors=hidden,
        backup_boot=(CHECKED_SECTORS + 1) * sector,
        backup_hidden_sectors=le64(copy, 64) if copy[:11] == boot[:11] else None,
    )


def _exfat_problems(area: Area, sector: int) -> tuple[str, ...]:
    region = area.read(0, (CHECKED_SECTORS + 1) * sector)
    stored = region[CHECKED_SECTORS * sector :]
    computed = rotating_sum(region[: CHECKED_SECTORS * sector], CHANGING)
    if stored == computed.to_bytes(4, "little") * (sector // 4):
        return ()
    first = next((at for at in range(0, len(stored), 4) if le32(stored, at) != computed), 0)
    return checksum_problem("the exFAT boot region", le32(stored, first), computed) or (
        f"the boot region of exFAT ends after {len(region)} bytes",
    )


def _exfat_label(directories: Iterator[bytes]) -> str | None:
    for directory in directories:
        for at in range(0, len(directory) - ENTRY + 1, ENTRY):
            if directory[at] == 0:
                return None
            if directory[at] == 0x83:  # the entry of the volume label
                return text_at(directory, at + 2, min(directory[at + 1], 11) * 2, "utf-16-le")
    return None


# exFAT: specification, sections 3.1 (boot sector), 4.1 (allocation table), 7.1 and 7.2 (bitmap and up-case
# table).

_SYSTEM_FILE = re.compile(rb"[\x81\x82]")  # types of entries of the root directory: bitmap, up-case table
_MOST_SYSTEM_FILES = 16  # two bitmaps and one table are valid
# the longest directory; the bitmap of a volume of 16 TiB with clusters of 32 KiB has 64 MiB
_MOST_KEPT = 256 * MIB
_ENTRIES = 1024  # of the allocation table are read at once


def exfat_table(reader: Reader) -> Extent:
    """Return the first allocation table of an exFAT, up to the entry of its last cluster."""
    boot = reader.read(0, 512)
    return Extent(le32(boot, 80) << boot[108], 4 * (le32(boot, 92) + FIRST_CLUSTER))


def exfat_runs_to_keep(reader: Reader) -> Iterator[Extent]:
    """Yield the clusters of an exFAT that partclone may omit: its root directory, allocation bitmap and
    up-case table, if the bitmap lists them as free, which fsck.exfat 1.2.0 does not report; and the last two.
    partclone 0.3.23 ends its search at the number of clusters, but numbers begin with 2 (libexfat/cluster.c,
    find_used_clusters).

    Raises BrokenFatError if there are more than a volume has.
    """
    boot = reader.read(0, 512)
    heap = le32(boot, 88) << boot[108]
    cluster = 1 << boot[108] + boot[109]
    count = le32(boot, 92)
    kept = min(count, 2)
    yield Extent(heap + (count - kept) * cluster, kept * cluster)
    numbers: set[int] = set()
    _add_chain(reader, le32(boot, 96), numbers, cluster)
    first_clusters: set[int] = set()
    for piece in (
        piece for run in _cluster_runs(numbers, heap, cluster) for piece in read_pieces(reader, run)
    ):
        for at in (found.start() * ENTRY for found in _SYSTEM_FILE.finditer(piece[::ENTRY])):
            first = le32(piece, at + 20)
            if 0 <= first - FIRST_CLUSTER < count and first not in first_clusters:
                first_clusters.add(first)
                # as Linux reads it
                yield Extent(heap + (first - FIRST_CLUSTER) * cluster, le64(piece, at + 24))
                _add_chain(reader, first, numbers, cluster)
            if len(first_clusters) > _MOST_SYSTEM_FILES:
                raise BrokenFatError("its root directory lists too many bitmaps and up-case tables")
    yield from _cluster_runs(numbers, heap, cluster)


def _add_chain(reader: Reader, number: int, numbers: set[int], cluster: int) -> None:
    """Add the clusters of a chain, up to one that is already in `numbers`: a damaged chain may have a cycle.
    Raises BrokenFatError if that makes too many.
    """
    table = exfat_table(reader)
    entries = b""
    start = 0
    while FIRST_CLUSTER <= number < table.length // 4 and number not in numbers:
        numbers.add(number)
        if len(numbers) * cluster > _MOST_KEPT:
            raise BrokenFatError("the chains of its root directory, bitmap and up-case table are too long")
        if not start <= number < start + len(entries) // 4:
            start = number - number % _ENTRIES
            entries = reader.read(table.start + 4 * start, 4 * _ENTRIES)
        number = le32(entries, 4 * (number - start))


def _cluster_runs(numbers: Iterable[int], heap: int, cluster: int) -> Iterator[Extent]:
    """Yield the runs of clusters, in ascending order."""
    for _, alike in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in alike]
        yield Extent(heap + (run[0] - FIRST_CLUSTER) * cluster, len(run) * cluster)


def _bad_blocks(area: Area) -> int:
    table = exfat_table(area)
    # A search is much faster than a comparison of each entry, of which a large volume has 100 million.
    pieces = table_pieces(area, table.start, table.length)
    marked = (piece for piece in pieces if b"\xf7\xff\xff\xff" in piece)
    return sum(map(BAD_CLUSTER[32].__eq__, fat_entries(32, marked)))


def _smallest_unit(reader: Reader, layer: Layer, unit_of_inner: UnitOf) -> Unit:
    shift = reader.read(layer.extent.start, 512)[108:109]  # the binary logarithm of bytes per sector
    return replace(unit_of(1 << min(int.from_bytes(shift), 16)), exact=True)


_PARTCLONE = "partclone.exfat"


def _used_blocks(medium: Medium, layer: Layer, shrunk: bool) -> Generator[Extent]:
    """Yield the runs that partclone maps, and those that it may omit. Raises NoMap."""
    with medium.device() as device:
        used = used_by_partclone(_PARTCLONE, device, layer, 0)
        try:
            kept = sorted(exfat_runs_to_keep(medium))
        except BrokenFatError as error:
            raise NoMap(str(error)) from error
        yield from merge(used, kept, key=attrgetter("start"))


EXFAT = Kind(
    "exfat",
    readers=(read_exfat,),
    signatures=(magic("exfat", b"EXFAT   ", heads=(3,)),),
    checker=("fsck.exfat", "-n"),
    answers=Answers(unable="unsupported FAT count: "),  # fsck.exfat 1.2.0, for two
    cleaning=cleaning_with("fsck.exfat"),
    list_clearer="mkfs.exfat",
    recreator="mkfs.exfat",
    map_source=_PARTCLONE,
    used_blocks=_used_blocks,
    why_not_shrinkable="no tool here shrinks an exFAT",
    is_mountable=True,
    works_anywhere=True,
    role="windows",
    # specification, 3.1
    start_field=StartField(0x40, 8, "exFAT partition offset", checksum="exFAT boot checksum"),
    bad_blocks=_bad_blocks,
    smallest_unit=_smallest_unit,
    has_clusters=True,
    is_seen_through=contains_no_device,
    used_by_windows=True,
    states_length=True,
)
