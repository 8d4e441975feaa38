"""Examine the content of partitions: used blocks, samples, holes."""

import errno
import hashlib
import os
import re
import stat
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from heapq import heappop, heappush, merge
from itertools import chain, groupby, islice, takewhile
from operator import attrgetter, itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from aligntool.claims import is_unwritten
from aligntool.contents.catalogue import kind_named
from aligntool.contents.exfat import exfat_runs_to_keep
from aligntool.contents.ext import EXT_NAMES
from aligntool.contents.fat import FIRST_CLUSTER, BrokenFatError, FatBootSector, fat_entries, parse_fat_boot_sector
from aligntool.contents.kind import has_length
from aligntool.formats.gpt import table_sizes
from aligntool.formats.numbers import be32, be64, le16, le32, le64
from aligntool.formats.reader import LONGEST_READ, MappedReader, Reader
from aligntool.inventory import DENSE, Disk, Layer, Sampled
from aligntool.linux.confined import run_confined
from aligntool.linux.devices import FileReader
from aligntool.linux.process import find_program
from aligntool.linux.sysfs import opened
from aligntool.linux.users import NoLoop, fresh_reader, read_only_loop
from aligntool.units import GIB, KIB, MIB, Extent, align_down, align_up, merged

# Holes in a file. Reading a hole does not measure the drive, and nothing else reveals it.

_MAX_HOLES = 100_000  # the rest of the file is assumed to have the same share


def hole_share(path: str, span: int) -> float | None:
    """Return the share of holes in the first `span` bytes, from 0 to 1 (lseek(2), SEEK_DATA and SEEK_HOLE), or None if
    unknown.

    Most file systems report preallocated blocks (fallocate) as holes; one without holes reports only data.
    """
    try:
        with opened(path, os.O_RDONLY) as descriptor:
            return _hole_share(descriptor, min(span, os.fstat(descriptor).st_size))
    except OSError:
        return None


def _hole_share(descriptor: int, span: int) -> float | None:
    position = holes = 0
    for _ in range(_MAX_HOLES):
        if position >= span:
            break
        try:
            data = min(os.lseek(descriptor, position, os.SEEK_DATA), span)
        except OSError as error:
            if error.errno != errno.ENXIO:  # ENXIO: a hole up to the end
                raise
            data = span
        holes += data - position
        position = min(os.lseek(descriptor, data, os.SEEK_HOLE), span) if data < span else span
    return holes / position if position else None


# Read a drive or partition where an array, a copy or test data is planned, to find data without a signature. Everything
# else is recognised by its signature; content without one (plain dm-crypt, a raw database, a hidden volume) is found
# only here.
#
# What is small is read whole. A file system reports which part of an image was never written, so that of a sparse image
# little remains. Of anything longer, places are read, so close that no area of DENSE bytes is missed; a rotating drive
# takes too long for that, and is read at a fixed number of places. The number does not depend on the time that reads
# take: the same command must find the same.

SAMPLED_EDGE = 128 * KIB  # at either end, read as one place
PLACE = 4 * KIB
READ_WHOLE = 256 * MIB  # two seconds of a hard disk
MOST_ROTATING = 8192  # places: about a minute of a hard disk
_IN_FLIGHT = 64  # places that the drive is asked for at once


def sample(path: str, extent: Extent, beside: Sequence[int] = (), overwritten: Iterable[Extent] = ()) -> Sampled:
    """Read an extent, or places of it, and return how many places are written. `beside`: further offsets on the disk,
    where data may have been put deliberately. `overwritten`: what will be, read whole up to READ_WHOLE.
    """
    blocks = -(-extent.length // PLACE)
    try:
        with fresh_reader(path) as reader:
            runs = _unknown_runs(reader.descriptor, extent)
            if sum(run.length for run in runs) <= READ_WHOLE:
                return _sampled(reader, extent, _blocks(extent, runs), blocks, None)
            spacing = DENSE
            if _is_rotating(reader.descriptor):
                spacing = max(spacing, align_up(-(-extent.length // MOST_ROTATING), PLACE))
            places = tuple(_places(extent, spacing, beside))
            lost = merged(overwritten, extent, PLACE)
            whole = sum(run.length for run in lost)
            if whole > READ_WHOLE:
                whole = 0
            if whole:
                places = tuple(dict.fromkeys((*_blocks(extent, lost), *_blocks(extent, places))))
            return replace(_sampled(reader, extent, places, len(places), spacing), whole=whole)
    except OSError:
        return Sampled(blocks, 0, blocks, "")


def _sampled(reader: FileReader, extent: Extent, places: Iterable[Extent], count: int, spacing: int | None) -> Sampled:
    written = unreadable = 0
    digest = hashlib.sha256(f"{extent.start} {extent.length} {spacing}".encode())
    for place, piece in _pieces(reader, places):
        if piece is not None and is_unwritten(piece):
            continue
        written += piece is not None
        unreadable += piece is None
        digest.update(f"{place.start} {piece is None} ".encode() + (piece or b""))
    return Sampled(count, written, unreadable, digest.hexdigest(), spacing)


def _pieces(reader: FileReader, places: Iterable[Extent]) -> Iterator[tuple[Extent, bytes | None]]:
    """Yield the bytes of each place, or None if the drive cannot read them. The kernel reads several at once."""
    remaining = iter(places)
    while ahead := tuple(islice(remaining, _IN_FLIGHT)):
        for place in ahead:
            with suppress(OSError):
                os.posix_fadvise(reader.descriptor, place.start, place.length, os.POSIX_FADV_WILLNEED)
        yield from ((place, _read_place(reader, place)) for place in ahead)


def _unknown_runs(descriptor: int, extent: Extent) -> tuple[Extent, ...]:
    """Return the extent without the holes of a file, which read as zero, in whole blocks counted from its start."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return (extent,)
    runs: list[Extent] = []
    position = extent.start
    while position < extent.end:
        data, end = position, extent.end
        if len(runs) < _MAX_HOLES:
            data = _next_data(descriptor, position, status.st_size)
            if data < status.st_size:  # what follows the end of a file cannot be read
                end = min(end, os.lseek(descriptor, data, os.SEEK_HOLE))
        if data >= extent.end:
            break
        start = max(position, extent.start + align_down(data - extent.start, PLACE))
        position = min(extent.start + align_up(end - extent.start, PLACE), extent.end)
        runs.append(Extent(start, position - start))
    return tuple(runs)


def _next_data(descriptor: int, position: int, size: int) -> int:
    """Return where the next data begins. A hole ends with the file at the latest."""
    try:
        return os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return max(position, size)


def _blocks(extent: Extent, runs: Iterable[Extent]) -> Iterator[Extent]:
    for run in runs:
        yield from (Extent(at, min(PLACE, extent.end - at)) for at in range(run.start, run.end, PLACE))


def _is_rotating(descriptor: int) -> bool:
    """Return whether reads at many places would take hours; unknown counts as that."""
    status = os.fstat(descriptor)
    number = status.st_dev if stat.S_ISREG(status.st_mode) else status.st_rdev
    folder = Path("/sys/dev/block", f"{os.major(number)}:{os.minor(number)}")
    for queue in (folder / "queue", folder.resolve().parent / "queue"):  # a partition has the queue of its disk
        with suppress(OSError):
            return (queue / "rotational").read_text().strip() != "0"
    return True


def places_for_data(disk: Disk) -> Extent:
    """Return the disk, without the ends that an empty table takes, as of a disk whose partitions were deleted."""
    size = disk.size or 0
    if disk.table is None or disk.partitions:
        return Extent(0, size)
    head, tail = table_sizes(disk.table.sector_size)
    return Extent(head, max(size - head - tail, 0))


def _places(extent: Extent, spacing: int, beside: Sequence[int]) -> Iterator[Extent]:
    """Yield the ends, the offsets `beside`, and places no further apart than `spacing`."""
    edge = min(SAMPLED_EDGE, extent.length)
    wanted = [Extent(extent.start, edge), Extent(extent.end - edge, edge)]
    starts = range(align_up(extent.start + spacing // 2, PLACE), extent.end, spacing)
    wanted += [Extent(align_down(at, PLACE), PLACE) for at in (*beside, *starts)]
    yield from dict.fromkeys(place for place in wanted if place.start >= extent.start and place.end <= extent.end)


def _read_place(reader: Reader, place: Extent) -> bytes | None:
    """Return the bytes, or None if the drive cannot read them."""
    try:
        found = reader.read(place.start, place.length)
    except OSError:
        return None
    return found if len(found) == place.length else None


# The bytes of a partition that a move has to copy, and the checks of every map of them. All safety margins are added
# here: a byte that is missing from the map is lost.

EDGE = MIB  # of both ends is always copied: boot sectors, their copies, RAID and LVM remains
SMALLEST_GAP = 64 * KIB  # a shorter one costs more to skip than to copy
MOST_RUNS = 65536


class NoMap(Exception):
    """There is no map of used blocks; the message is the reason."""


@dataclass(frozen=True, slots=True)
class UsedMap:
    """The used blocks. `runs` are counted from the partition's start, sorted, separate, multiples of its sector
    size.
    """

    runs: tuple[Extent, ...]
    by: str  # "dumpe2fs", "everything: no map for crypto_LUKS"

    @property
    def bytes(self) -> int:
        return sum(run.length for run in self.runs)


def whole_partition_map(length: int, why: str) -> UsedMap:
    """Return a map that covers the whole partition of `length` bytes, with the reason."""
    return UsedMap((Extent(0, length),), f"everything: {why}")


def with_edges(
    used: Iterable[Extent], length: int, *, sector_size: int, by: str, most_runs: int = MOST_RUNS
) -> UsedMap:
    """Return the map of a partition of `length` bytes, with both edges as used. `used`: in ascending order.

    It has at most `most_runs` runs: the shortest gaps are filled. Only the longest gaps are kept in memory, whatever
    their number. Raises NoMap if a run is outside the partition or out of order.
    """
    gaps: list[tuple[int, int]] = []  # a heap of lengths and starts
    last = align_down(max(length - EDGE, 0), sector_size)
    position, earliest = min(EDGE, length), 0
    for run in chain(used, [Extent(last, length - last)]):
        if not earliest <= run.start <= run.end <= length:
            raise NoMap(f"the run from {run.start} to {run.end} is outside the partition or out of order")
        earliest = min(run.start, last)  # the edge may begin before the end of the last run
        start = align_down(earliest, sector_size)
        if start - position >= SMALLEST_GAP:
            heappush(gaps, (start - position, position))
            if len(gaps) >= most_runs:
                heappop(gaps)
        position = max(position, align_up(run.end, sector_size))
    runs, position = [], 0
    for gap, start in sorted(gaps, key=itemgetter(1)):
        runs.append(Extent(position, start - position))
        position = start + gap
    return UsedMap((*runs, Extent(position, length - position)), by)


# The conditions under which a map of a btrfs is accepted. partclone.btrfs 0.3.23 lost the second copy of data with the
# DUP profile (a copy of only the mapped runs was damaged): a map is accepted only if data has the profile single.

SUPERBLOCKS = (64 * KIB, 64 * MIB, 256 * GIB)  # btrfs_sb_offset(), linux/fs/btrfs/disk-io.h
ROOM = 64 * KIB  # kept for each of them
BYTES_USED, NUM_DEVICES = 120, 136  # in struct btrfs_super_block
PATIENCE_S = 300.0

_CHUNK = re.compile(r"\blength (\d+) .* type (\S+)")
_STRIPE = re.compile(r"\bstripe \d+ devid \d+ offset (\d+)")
_PROFILES = {"DATA", "METADATA", "single"}


def check_devices(reader: Reader, start: int) -> None:
    """Raise NoMap for a file system on several devices: the used blocks of one are known only from all of them."""
    devices = le64(reader.read(start + SUPERBLOCKS[0] + NUM_DEVICES, 8), 0)
    if devices != 1:
        raise NoMap(f"this btrfs has {devices} devices")


def tree_chunks(device: str) -> tuple[Extent, ...]:
    """Return the chunks of the trees, which also contain older trees.

    partclone maps only the current trees; `mount -o usebackuproot` falls back to older ones that
    are not yet overwritten.

    Raises NoMap if data has any other profile than single, or the output is not understood.
    """
    words = ("btrfs", "inspect-internal", "dump-tree", "-t", "chunk", device)
    with opened(device) as disk:
        answer = run_confined(*words, disks=(disk,), limit_s=PATIENCE_S)
    if answer.code != 0:
        raise NoMap(f"btrfs inspect-internal failed: {answer.last_lines}")
    chunks, length = [], 0
    for line in answer.output.splitlines():
        if chunk := _CHUNK.search(line):
            kinds = set(chunk[2].split("|"))
            if "DATA" in kinds and kinds - _PROFILES:
                raise NoMap(f"this btrfs stores data as {chunk[2]}, and partclone maps only one copy of it")
            length = int(chunk[1]) if kinds & {"METADATA", "SYSTEM"} else 0
        elif (stripe := _STRIPE.search(line)) and length:
            chunks.append(Extent(int(stripe[1]), length))
    if not chunks:
        raise NoMap("btrfs inspect-internal lists no metadata chunk")
    return tuple(chunks)


# Used blocks of ext2, ext3 and ext4, from the free ones that dumpe2fs lists. dumpe2fs accepts an offset into an image:
# neither root nor a loop device is required. Clusters of bigalloc are listed by their first block, groups without a
# bitmap (BLOCK_UNINIT) as the library computes them.

DUMPE2FS = "dumpe2fs"
MAP_S = 1800.0  # the bitmaps of a full disk of 16 TiB are 512 MiB, all over the disk

_FREE_BLOCKS = "  Free blocks: "


def read_ext(path: str, start: int, claims: int) -> Iterator[Extent]:
    """Yield the used runs, counted from the file system's start. Raises NoMap."""
    with (
        fresh_reader(path) as reader,
        _named_for_e2fsprogs(path, reader.descriptor, start) as (name, folder),
        _output_of(DUMPE2FS, name, disk=reader.descriptor, folder=folder) as lines,
    ):
        yield from used_in_dumpe2fs(lines, claims)


def least_ext(path: str, start: int) -> int:
    """Return the bytes that resize2fs leaves at least; 0 if it does not print them. It writes nothing for that, and
    opens the disk only for reading (resize/main.c, print_min_size).
    """
    block_at = start + 1024 + 24  # s_log_block_size: linux/fs/ext4/ext4.h
    with (
        suppress(NoMap, OSError),
        fresh_reader(path) as reader,
        _named_for_e2fsprogs(path, reader.descriptor, start) as (name, folder),
    ):
        with _output_of("resize2fs", "-P", name, disk=reader.descriptor, folder=folder) as lines:
            found = re.search(r": (\d+)$", "".join(lines).rstrip())
        return int(found[1]) * (KIB << min(le32(reader.read(block_at, 4), 0), 6)) if found else 0
    return 0


@contextmanager
def _named_for_e2fsprogs(path: str, disk: int, start: int) -> Iterator[tuple[str, Path]]:
    """Yield a name by which e2fsprogs open the file system at `start` of a descriptor, and its folder. `path`: of the
    disk, for messages.

    From 1.47.1 on, dumpe2fs takes `disk.img?offset=0` for a tag such as LABEL=root, which it looks for on every disk,
    and then for a file, if there is one of that name. No disk is searched for a tag with an unfinished quotation.
    e2fsprogs, lib/support/devname.c; util-linux, libblkid/src/read.c, blkid_parse_tag_string.
    """
    with TemporaryDirectory(prefix="aligntool-") as folder:
        link, name = Path(folder, "='"), Path(folder, f"='?offset={start}")
        link.symlink_to(f"/proc/self/fd/{disk}")
        name.touch()
        try:
            yield str(name), Path(folder)
        except NoMap as reason:
            raise NoMap(str(reason).replace(str(link), path)) from reason


@contextmanager
def _output_of(program: str, *words: str, disk: int, folder: Path | None = None) -> Iterator[Iterable[str]]:
    """Yield the output of a program line by line: it can be hundreds of megabytes. `disk`, `folder`: see
    `run_confined`. Raises NoMap.
    """
    if find_program(program) is None:
        raise NoMap(f"{program} is not installed")
    with TemporaryFile("w+", encoding="ascii", errors="replace") as output:
        answer = run_confined(program, *words, disks=(disk,), folder=folder, limit_s=MAP_S, output=output)
        if answer.code != 0:
            raise NoMap(f"{program} failed: {answer.last_lines}")
        yield output


def used_in_dumpe2fs(report: Iterable[str], claims: int) -> Iterator[Extent]:
    """Yield the used runs from the output of dumpe2fs. Raises NoMap if it is inconsistent.

    The number of listed free blocks must be the superblock's.
    """
    lines = iter(report)
    header = "".join(takewhile(lambda line: not line.startswith("Group 0:"), lines))
    block, count, expected = (_header_number(header, name) for name in ("Block size", "Block count", "Free blocks"))
    cluster = _header_number(header, "Cluster size", missing=block)
    if count * block != claims or cluster % block:
        raise NoMap(f"{DUMPE2FS} counts {count} blocks of {block} bytes, but the superblock {claims} bytes")
    lists = (line.removeprefix(_FREE_BLOCKS).split(",") for line in lines if line.startswith(_FREE_BLOCKS))
    items = (item.strip().partition("-") for items in lists for item in items)
    runs = (_parse_run(first, last or first, cluster // block) for first, _, last in items if first)
    free = ((first, min(end, count)) for first, end in runs)  # the last cluster may be cut short
    listed = yield from _used_between(free, count, block, DUMPE2FS)
    if listed != expected:
        raise NoMap(f"{DUMPE2FS} lists {listed} free blocks, the superblock counts {expected}")


def _parse_run(first: str, last: str, ratio: int) -> tuple[int, int]:
    if not (first.isdecimal() and last.isdecimal()) or int(first) > int(last):
        raise NoMap(f"{DUMPE2FS} prints {first!r}-{last!r}, which is not a run of blocks")
    return int(first), int(last) + ratio


def _header_number(report: str, name: str, *, missing: int | None = None) -> int:
    if found := re.search(rf"^{name}: +(\d+)$", report, re.MULTILINE):
        return int(found[1])
    if missing is None:
        raise NoMap(f"{DUMPE2FS} does not print its {name.lower()}")
    return missing


def _used_between(
    free: Iterable[tuple[int, int]], count: int, block: int, program: str
) -> Generator[Extent, None, int]:
    """Yield the bytes between free runs of blocks; return the number of free blocks. Raises NoMap if the runs overlap
    or are out of order.
    """
    position = listed = 0
    for first, end in chain(free, [(count, count)]):
        if first < position:
            raise NoMap(f"{program} lists block {first} twice or out of order")
        if first > position:
            yield Extent(position * block, (first - position) * block)
        listed += end - first
        position = end
    return listed


# Used blocks of XFS, from the free ones that xfs_db lists in each allocation group. It keeps nothing in memory:
# partclone.xfs has a bit for each block, 512 MiB for 16 TiB, and searches the tree for every block.

XFS_DB = "xfs_db"
XFS_LOG_AT, XFS_GROUP_AT, XFS_FREE_AT = 48, 84, 144  # sb_logstart, sb_agblocks, sb_fdblocks in struct xfs_dsb


def read_xfs(reader: Reader, device: str, start: int, layer: Layer) -> Iterator[Extent]:
    """Yield the used runs, counted from the file system's start. Raises NoMap."""
    if not be64(reader.read(start + XFS_LOG_AT, 8), 0):  # xfs_db does not replay it
        raise NoMap("its log is external, and may hold changes")
    group, expected = be32(reader.read(start + XFS_GROUP_AT, 4), 0), be64(reader.read(start + XFS_FREE_AT, 8), 0)
    block = layer.data_unit or 0
    with opened(device) as disk, _output_of(XFS_DB, "-r", "-c", "freesp -d", device, disk=disk) as lines:
        count = (layer.claims_size or 0) // block
        listed = yield from _used_between(_free_in_freesp(lines, group), count, block, XFS_DB)
    if listed > expected:
        raise NoMap(f"{XFS_DB} lists {listed} free blocks, the superblock counts {expected}")


def _free_in_freesp(report: Iterable[str], group: int) -> Iterator[tuple[int, int]]:
    """Yield the free runs of blocks, up to the histogram at the end. Raises NoMap for any other line.

    A single block counts as used: the blocks of a group's free list come first, unordered (db/freesp.c, scan_ag).
    """
    lines = (line.split() for line in report)
    if next(lines, None) != ["agno", "agbno", "len"]:
        raise NoMap(f"{XFS_DB} lists no free blocks")
    for words in takewhile(lambda words: words[:1] != ["from"], lines):
        if len(words) != 3 or not all(word.isdecimal() for word in words):
            raise NoMap(f"{XFS_DB} prints {' '.join(words)!r}, which is not a run of blocks")
        number, first, count = map(int, words)
        if first + count > group:
            raise NoMap(f"{XFS_DB} lists blocks beyond the end of group {number}")
        if count > 1:
            yield number * group + first, number * group + first + count


# Used clusters of FAT12, FAT16 and FAT32, from the allocation table itself. The table is simple enough to be read
# here, so neither root nor another program is required: an entry of 0 is free, anything else (a next cluster, the end
# of a chain, a bad cluster) is used. Source: Microsoft's FAT specification 1.03, "FAT Data Structure".

NOT_MIRRORED = 0x80  # in BPB_ExtFlags: only one copy of the table is up to date


def read_fat(reader: Reader, start: int) -> Iterator[Extent]:
    """Yield the used runs, counted from the file system's start. Raises NoMap, and OSError if a read fails."""
    sector = reader.read(start, 512)
    boot = parse_fat_boot_sector(sector)
    if boot is None:
        raise NoMap("its boot sector is invalid")
    if boot.bits == 32 and le16(sector, 40) & NOT_MIRRORED:
        raise NoMap("only one copy of its allocation table is kept up to date")
    if boot.bits == 32 and boot.directory:  # mtools takes the clusters to begin before it, Linux and Windows behind it
        raise NoMap(
            "it is a FAT32 with a root directory of fixed size, as in FAT16: systems differ on where its clusters begin"
        )
    length, copy_length = -(-(boot.clusters + FIRST_CLUSTER) * boot.bits // 8), boot.fats // boot.copies * boot.sector
    if length > copy_length:
        raise NoMap(f"its allocation table of {copy_length} bytes is too short for {boot.clusters} clusters")
    yield Extent(0, boot.data_start)
    position = boot.data_start
    table = _read_table(reader, start + boot.reserved * boot.sector, boot, length, copy_length)
    entries = islice(fat_entries(boot.bits, table), FIRST_CLUSTER, boot.clusters + FIRST_CLUSTER)
    for used, alike in groupby(entries, key=bool):
        run = Extent(position, sum(1 for _ in alike) * boot.cluster)
        if used:
            yield run
        position = run.end


def _read_table(reader: Reader, start: int, boot: FatBootSector, length: int, copy_length: int) -> Iterator[bytes]:
    """Yield the table in pieces. Raises NoMap if it is cut off, or if its copies differ."""
    for done in range(0, length, LONGEST_READ):
        size = min(LONGEST_READ, length - done)
        piece, *others = (reader.read(start + copy * copy_length + done, size) for copy in range(boot.copies))
        if len(piece) != size:
            raise NoMap("its allocation table is truncated")
        if any(other != piece for other in others):
            raise NoMap("the copies of its allocation table differ")
        yield piece


# Used blocks as partclone maps them for ddrescue. "+" is used, "?" is free, anything else counts as used, and the lines
# must cover the file system without a hole. Format: GNU ddrescue manual, "Mapfile structure".

FREE = "?"


def read_partclone(program: str, device: str, layer: Layer, least: int, *, shrunk: bool = False) -> Iterator[Extent]:
    """Yield the used runs, `least` bytes at least, and the bytes that the map does not cover. Raises NoMap.

    It runs without --force: partclone must fail on a file system that is mounted, or not clean unless it was `shrunk`.
    """
    if find_program(program) is None:
        raise NoMap(f"{program} is not installed")
    with TemporaryDirectory(prefix="aligntool-") as folder:
        target, log = Path(folder, "map"), Path(folder, "log")
        words = ("-D", "-q", "-B", "-s", device, "-o", str(target), "-L", str(log), *(("-I",) if shrunk else ()))
        with opened(device) as disk:
            answer = run_confined(program, *words, disks=(disk,), folder=Path(folder), limit_s=MAP_S)
        if answer.code != 0:
            raise NoMap(f"{program} failed: {answer.last_lines}")
        try:
            with target.open(encoding="ascii") as lines:
                known, mapped = yield from used_in_mapfile(lines)
        except (OSError, UnicodeDecodeError) as error:
            raise NoMap(f"{program} wrote no map: {error}") from error
    claims = layer.claims_size or 0
    if not claims - 2 * (layer.data_unit or 0) <= known <= claims:
        raise NoMap(f"{program} maps {known} bytes, the superblock counts {claims}")
    if mapped < least:
        raise NoMap(f"{program} finds {mapped} used bytes, but the superblock {least}")
    yield Extent(known, claims - known)


def used_in_mapfile(text: Iterable[str]) -> Generator[Extent, None, tuple[int, int]]:
    """Yield the used runs of a mapfile; return its end and the number of used bytes. Raises NoMap if it has a hole or
    an invalid line.
    """
    lines = (line.split() for line in text if line.strip() and not line.startswith("#"))
    mapped_to = used = 0
    for words in islice(lines, 1, None):  # the first line is the current position
        try:
            position, size, status = words
            run = Extent(int(position, 16), int(size, 16))
        except ValueError as error:
            raise NoMap(f"its map has an invalid line: {' '.join(words)}") from error
        if run.start != mapped_to or run.length <= 0:
            raise NoMap(f"its map has a hole or an overlap at byte {mapped_to}")
        if status != FREE:
            used += run.length
            yield run
        mapped_to = run.end
    if not used:
        raise NoMap("its map has no used blocks")
    return mapped_to, used


# The used blocks of a partition, so that a move copies nothing else. If a map is in doubt, everything is copied
# and the reason reported: copying too much costs time, copying too little costs data.


def read_used(
    path: str, extent: Extent, layer: Layer | None, *, sector_size: int, shrunk: bool = False
) -> UsedMap:  # fmt: skip
    """Return the runs to copy of the partition at `extent` of the disk or image `path`. `layer`: its content.

    A tool that fails raises nothing: the map is then `whole_partition_map`. Nothing may write to the partition.
    `shrunk`: an NTFS that ntfsresize has just shrunk and checked, and marked for a check by Windows.
    """
    if shrunk and layer and layer.kind == "ntfs":
        layer = replace(layer, unclean=None)
    else:
        shrunk = False
    if layer is None:
        return whole_partition_map(extent.length, "its content is unknown")
    if layer.kind == "swap" and _why_unknown(extent, layer) is None:
        return _swap_map(extent.length, layer, sector_size)
    why = _why_no_map(extent, layer)
    if why:
        return whole_partition_map(extent.length, why)
    try:
        with fresh_reader(path) as reader, closing(_yield_used(path, reader, extent, layer, shrunk)) as runs:
            claims, free = layer.claims_size or 0, is_free_behind(reader, extent, layer)
            used = chain(runs, [Extent(claims, 0 if free else extent.length - claims)])
            return with_edges(used, extent.length, sector_size=sector_size, by=kind_named(layer.kind).map_source)
    except (NoMap, NoLoop) as reason:
        return whole_partition_map(extent.length, str(reason))
    except OSError as error:
        return whole_partition_map(extent.length, f"it cannot be read: {error.strerror}")


def _swap_map(length: int, layer: Layer, sector_size: int) -> UsedMap:
    """Return the map of a swap area: what the pages hold is not needed, what follows them may be anything."""
    end, header = align_down(layer.claims_size or 0, sector_size), Extent(0, layer.data_unit or PLACE)
    if end == length:
        return UsedMap((header,), "swap: header only")  # a small journal saves only some sectors of it
    return UsedMap((header, Extent(end, length - end)), "swap: header, and what follows")


# A shrink leaves a mark in the last sector of the partition: until the move has begun, nothing else shows that what
# follows the file system belonged to it, and is free.

_MARK_LENGTH = 512


def shrink_mark(length: int) -> bytes:
    """Return the mark of a file system that was shrunk to `length` bytes."""
    text = f"aligntool: this file system was shrunk to {length} bytes; all that follows it is free\n"
    return text.encode().ljust(_MARK_LENGTH, b"\0")


def is_free_behind(reader: Reader, extent: Extent, layer: Layer) -> bool:
    """Return whether a shrink was interrupted before the move: what follows the file system belonged to it."""
    sector = reader.read(extent.end - _MARK_LENGTH, _MARK_LENGTH)
    number = re.search(rb"\d+", sector)
    length = int(number[0]) if number else 0
    return sector == shrink_mark(length) and has_length(layer, length)


def _why_no_map(extent: Extent, layer: Layer) -> str | None:
    """Return why no map of this content is accepted, or None."""
    if not kind_named(layer.kind).map_source:
        return f"no map for {layer.kind}"
    return _why_unknown(extent, layer)


def _why_unknown(extent: Extent, layer: Layer) -> str | None:
    """Return why the superblock does not prove what is in use, or None."""
    if layer.unclean:
        return f"the {layer.kind} is unclean: {layer.unclean}"
    if layer.problems:
        return f"the {layer.kind} is in doubt: {layer.problems[0]}"
    if layer.extent.start != extent.start or not layer.claims_size:
        return f"the length of the {layer.kind} is unknown"
    return None


def _yield_used(path: str, reader: Reader, extent: Extent, layer: Layer, shrunk: bool) -> Generator[Extent]:
    """Yield the used runs of the file system in ascending order. Raises NoMap, NoLoop, OSError."""
    if layer.kind in EXT_NAMES:
        yield from read_ext(path, extent.start, layer.claims_size or 0)
    elif layer.kind == "vfat":
        yield from read_fat(reader, extent.start)
    else:
        with read_only_loop(path, extent) as device:
            if layer.kind == "xfs":
                yield from read_xfs(reader, device, extent.start, layer)
            elif layer.kind == "btrfs":
                yield from _read_btrfs(reader, device, extent.start, layer)
            elif layer.kind == "exfat":
                yield from _read_exfat(reader, device, extent, layer)
            else:
                yield from read_partclone(kind_named(layer.kind).map_source, device, layer, 0, shrunk=shrunk)


def _read_btrfs(reader: Reader, device: str, start: int, layer: Layer) -> Iterator[Extent]:
    """Yield the runs that partclone maps, chunks of trees, and superblocks. Raises NoMap if partclone maps fewer bytes
    than the superblock counts.
    """
    check_devices(reader, start)
    least = le64(reader.read(start + SUPERBLOCKS[0] + BYTES_USED, 8), 0)
    rooms = (Extent(at, ROOM) for at in SUPERBLOCKS if at + ROOM <= (layer.claims_size or 0))
    more = sorted((*tree_chunks(device), *rooms))
    used = read_partclone(kind_named(layer.kind).map_source, device, layer, least)
    return merge(used, more, key=attrgetter("start"))


def _read_exfat(reader: Reader, device: str, extent: Extent, layer: Layer) -> Iterator[Extent]:
    """Yield the runs that partclone maps, and those that it may omit. Raises NoMap."""
    whole = MappedReader(reader, ((0, extent.start, extent.length),), extent.length)
    used = read_partclone(kind_named(layer.kind).map_source, device, layer, 0)
    try:
        return merge(used, sorted(exfat_runs_to_keep(whole)), key=attrgetter("start"))
    except BrokenFatError as error:
        raise NoMap(str(error)) from error
