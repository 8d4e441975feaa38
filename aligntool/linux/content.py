"""Examine the content of partitions: used blocks, samples, holes."""

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from aligntool.claims import is_unwritten
from aligntool.contents.catalogue import kind_named
from aligntool.contents.kind import has_length
from aligntool.contents.used_blocks import NoMap
from aligntool.device import OTHER_OUTPUT, OUTPUT, Borrowed
from aligntool.formats.gpt import ends_of_table
from aligntool.formats.reader import Reader, is_blank, read_pieces
from aligntool.inventory import DENSE, Disk, Layer, Sampled
from aligntool.linux.confined import run_confined
from aligntool.linux.file_reader import FileReader, fresh_reader
from aligntool.linux.loops import NoLoop, read_only_loop
from aligntool.linux.programs import find_program
from aligntool.linux.sysfs import opened
from aligntool.units import KIB, MIB, Extent, align_down, align_up, merged

# Holes in a file. Reading a hole does not measure the drive, and nothing else reveals it.

_MAX_HOLES = 100_000  # the rest of the file is assumed to have the same share


def hole_share(path: str, span: int) -> float | None:
    """Return the share of holes in the first `span` bytes, from 0 to 1 (lseek(2), SEEK_DATA and SEEK_HOLE),
    or None if unknown.

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


# Read a drive or partition where an array, a copy or test data is planned, to find data without a signature.
# Everything else is recognised by its signature; content without one (plain dm-crypt, a raw database, a
# hidden volume) is found only here.
#
# What is small is read whole. A file system reports which part of an image was never written, so that of a
# sparse image little remains. Of anything longer, places are read, so close that no area of DENSE bytes is
# missed; a rotating drive takes too long for that, and is read at a fixed number of places. The number does
# not depend on the time that reads take: the same command must find the same.

SAMPLED_EDGE = 128 * KIB  # at either end, read as one place
PLACE = 4 * KIB
READ_WHOLE = 256 * MIB  # two seconds of a hard disk
MOST_ROTATING = 8192  # places: about a minute of a hard disk
_IN_FLIGHT = 64  # places that the drive is asked for at once


def sample(
    path: str, extent: Extent, beside: Sequence[int] = (), overwritten: Iterable[Extent] = ()
) -> Sampled:
    """Read an extent, or places of it, and return how many places are written. `beside`: further offsets on
    the disk, where data may have been put deliberately. `overwritten`: what will be, read whole up to
    READ_WHOLE.
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


def _sampled(
    reader: FileReader, extent: Extent, places: Iterable[Extent], count: int, spacing: int | None
) -> Sampled:
    written = unreadable = 0
    digest = hashlib.sha256(f"{extent.start} {extent.length} {spacing}".encode())
    for place, piece in _pieces(reader, places):
        if piece is not None and is_unwritten(piece):
            continue
        written += piece is not None
        unreadable += piece is None
        digest.update(f"{place.start} {piece is None} ".encode() + (piece or b""))
    return Sampled(count, written, unreadable, digest.hexdigest(), spacing)


def find_nonzero(path: str, places: Iterable[Extent]) -> Extent | None:
    """Return the first of these places that cannot be read, or does not read as zeros; None if all do.
    Raises OSError.
    """
    with fresh_reader(path) as reader:
        for place, piece in _pieces(reader, places):
            if piece is None or piece != bytes(len(piece)):
                return place
    return None


def dense_places(extent: Extent) -> tuple[Extent, ...]:
    """Return places so close that no area of DENSE bytes is missed."""
    return tuple(_places(extent, DENSE, ()))


def _pieces(reader: FileReader, places: Iterable[Extent]) -> Iterator[tuple[Extent, bytes | None]]:
    """Yield the bytes of each place, or None if the drive cannot read them. The kernel reads several at
    once.
    """
    remaining = iter(places)
    while ahead := tuple(islice(remaining, _IN_FLIGHT)):
        for place in ahead:
            with suppress(OSError):
                os.posix_fadvise(reader.descriptor, place.start, place.length, os.POSIX_FADV_WILLNEED)
        yield from ((place, _read_place(reader, place)) for place in ahead)


def _unknown_runs(descriptor: int, extent: Extent) -> tuple[Extent, ...]:
    """Return the extent without the holes of a file, which read as zero, in whole blocks counted from its
    start.
    """
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return (extent,)
    runs: list[Extent] = []
    position = extent.start
    while position < extent.end:
        data = position
        end = extent.end
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
    # a partition has the queue of its disk
    for queue in (folder / "queue", folder.resolve().parent / "queue"):
        with suppress(OSError):
            return (queue / "rotational").read_text().strip() != "0"
    return True


def places_for_data(disk: Disk) -> Extent:
    """Return the disk, without the ends that an empty table takes, as of a disk whose partitions were
    deleted: those of a GPT, or one sector.
    """
    size = disk.size or 0
    if disk.table is None or disk.partitions:
        return Extent(0, size)
    head, tail = ends_of_table(disk.table.label, disk.table.sector_size)
    return Extent(head, max(size - head - tail, 0))


def _places(extent: Extent, spacing: int, beside: Sequence[int]) -> Iterator[Extent]:
    """Yield the ends, the offsets `beside`, and places no further apart than `spacing`."""
    edge = min(SAMPLED_EDGE, extent.length)
    wanted = [Extent(extent.start, edge), Extent(extent.end - edge, edge)]
    starts = range(align_up(extent.start + spacing // 2, PLACE), extent.end, spacing)
    wanted += [Extent(align_down(at, PLACE), PLACE) for at in (*beside, *starts)]
    yield from dict.fromkeys(
        place for place in wanted if place.start >= extent.start and place.end <= extent.end
    )


def _read_place(reader: Reader, place: Extent) -> bytes | None:
    """Return the bytes, or None if the drive cannot read them."""
    try:
        found = reader.read(place.start, place.length)
    except OSError:
        return None
    return found if len(found) == place.length else None


# The bytes of a partition that a move has to copy, and the checks of every map of them. All safety margins
# are added here: a byte that is missing from the map is lost.

EDGE = MIB  # of both ends is always copied: boot sectors, their copies, RAID and LVM remains
SMALLEST_GAP = 64 * KIB  # a shorter one costs more to skip than to copy
MOST_RUNS = 65536


@dataclass(frozen=True, slots=True)
class UsedMap:
    """The used blocks. `runs` are counted from the partition's start, sorted, separate, multiples of its
    sector size.
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

    It has at most `most_runs` runs: the shortest gaps are filled. Only the longest gaps are kept in memory,
    whatever their number. Raises NoMap if a run is outside the partition or out of order.
    """
    gaps: list[tuple[int, int]] = []  # a heap of lengths and starts
    last = align_down(max(length - EDGE, 0), sector_size)
    position = min(EDGE, length)
    earliest = 0
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
    runs = []
    position = 0
    for gap, start in sorted(gaps, key=itemgetter(1)):
        runs.append(Extent(position, start - position))
        position = start + gap
    return UsedMap((*runs, Extent(position, length - position)), by)


# A content for the functions of its kind, and the programs that they start.

MAP_S = 1800.0  # the bitmaps of a full disk of 16 TiB are 512 MiB, all over the disk


@dataclass(frozen=True, slots=True)
class _Borrowed:
    """A content under a name by which programs open it. `folder`: where they may write files."""

    name: str
    descriptor: int
    folder: Path | None = None

    @contextmanager
    def lines_of(self, *words: str, title: str = "", limit_s: float | None = None) -> Iterator[Iterable[str]]:
        title = title or words[0]
        if find_program(words[0]) is None:
            raise NoMap(f"{words[0]} is not installed")
        if OUTPUT in words:
            with self._file_of(words, title) as lines:
                yield lines
            return
        with TemporaryFile("w+", encoding="ascii", errors="replace") as output:
            answer = run_confined(
                *words, disks=(self.descriptor,), folder=self.folder, limit_s=limit_s or MAP_S, output=output
            )
            if answer.code != 0:
                raise NoMap(f"{title} failed: {answer.last_lines}")
            yield output

    @contextmanager
    def _file_of(self, words: Sequence[str], title: str) -> Iterator[Iterable[str]]:
        """Yield the lines of the file that a program writes."""
        with TemporaryDirectory(prefix="aligntool-") as folder:
            files = {OUTPUT: Path(folder, "map"), OTHER_OUTPUT: Path(folder, "log")}
            named = (str(files.get(word, word)) for word in words)
            answer = run_confined(*named, disks=(self.descriptor,), folder=Path(folder), limit_s=MAP_S)
            if answer.code != 0:
                raise NoMap(f"{title} failed: {answer.last_lines}")
            try:
                lines = files[OUTPUT].open(encoding="ascii")
            except OSError as error:
                raise NoMap(f"{title} wrote no map: {error}") from error
            with lines:
                yield lines


@dataclass(frozen=True, slots=True)
class PartitionMedium:
    """The content at an extent of a disk or image, with a reader that is open."""

    path: str
    extent: Extent
    reader: FileReader

    @property
    def size(self) -> int:
        return self.extent.length

    def read(self, offset: int, length: int) -> bytes:
        return self.reader.read(self.extent.start + offset, max(0, min(length, self.size - offset)))

    @contextmanager
    def device(self) -> Iterator[Borrowed]:
        with read_only_loop(self.path, self.extent) as device, opened(device) as descriptor:
            yield _Borrowed(device, descriptor)

    @contextmanager
    def at_offset(self) -> Iterator[Borrowed]:
        """Yield the descriptor with a name by which e2fsprogs open the content.

        From 1.47.1 on, dumpe2fs takes `disk.img?offset=0` for a tag such as LABEL=root, which it looks for on
        every disk, and then for a file, if there is one of that name. No disk is searched for a tag with an
        unfinished quotation. e2fsprogs, lib/support/devname.c; util-linux, libblkid/src/read.c,
        blkid_parse_tag_string.
        """
        with TemporaryDirectory(prefix="aligntool-") as folder:
            link = Path(folder, "='")
            name = Path(folder, f"='?offset={self.extent.start}")
            link.symlink_to(f"/proc/self/fd/{self.reader.descriptor}")
            name.touch()
            try:
                yield _Borrowed(str(name), self.reader.descriptor, Path(folder))
            except NoMap as reason:
                raise NoMap(str(reason).replace(str(link), self.path)) from reason


@contextmanager
def open_medium(path: str, extent: Extent) -> Iterator[PartitionMedium]:
    """Yield the content at `extent` of the disk or image `path`, after dropping the cache of earlier reads.
    Raises OSError.
    """
    with fresh_reader(path) as reader:
        yield PartitionMedium(path, extent, reader)


# The used blocks of a partition, so that a move copies nothing else. If a map is in doubt, everything is
# copied and the reason reported: copying too much costs time, copying too little costs data.


def read_used(
    path: str, extent: Extent, layer: Layer | None, *, sector_size: int, shrunk: bool = False
) -> UsedMap:
    """Return the runs to copy of the partition at `extent` of the disk or image `path`. `layer`: its content.

    A tool that fails raises nothing: the map is then `whole_partition_map`. Nothing may write to the
    partition. `shrunk`: an NTFS that ntfsresize has just shrunk and checked, and marked for a check by
    Windows.
    """
    if layer is None:
        return whole_partition_map(extent.length, "its content is unknown")
    kind = kind_named(layer.kind)
    if shrunk and kind.is_unclean_after_shrink:
        layer = replace(layer, unclean=None)
    why = _why_unknown(extent, layer)
    if kind.only_header_matters and why is None:
        return _header_map(extent.length, layer, sector_size)
    if kind.used_blocks is None:
        why = f"no map for {layer.kind}"
    if why or kind.used_blocks is None:
        return whole_partition_map(extent.length, why or "")
    try:
        with open_medium(path, extent) as medium:
            claims = layer.claims_size or 0
            free = is_free_behind(medium.reader, extent, layer)
            behind = Extent(claims, 0 if free else extent.length - claims)
            with closing(kind.used_blocks(medium, layer, shrunk and kind.is_unclean_after_shrink)) as runs:
                used = chain(runs, [behind])
                return with_edges(used, extent.length, sector_size=sector_size, by=kind.map_source)
    except (NoMap, NoLoop) as reason:
        return whole_partition_map(extent.length, str(reason))
    except OSError as error:
        return whole_partition_map(extent.length, f"it cannot be read: {error.strerror}")


def _header_map(length: int, layer: Layer, sector_size: int) -> UsedMap:
    """Return the map of a swap area: what the pages hold is not needed, what follows them may be anything."""
    end = align_down(layer.claims_size or 0, sector_size)
    header = Extent(0, layer.data_unit or PLACE)
    if end == length:
        return UsedMap((header,), "swap: header only")  # a small journal saves only some sectors of it
    return UsedMap((header, Extent(end, length - end)), "swap: header, and what follows")


# A shrink leaves a mark in the last sector of the partition: until the move has begun, nothing else shows
# that what follows the file system belonged to it, and is free. It vouches only for the bytes that were there
# when it was written: another program may have put a hash tree or anything else there since. The mark of an
# older version has no digest, and vouches for nothing.

_MARK_LENGTH = 512
_MARK = (
    rb"aligntool: this file system was shrunk to (\d+) bytes; all that follows it is free"
    rb"(?: while its SHA-256 is ([0-9a-f]{64}))?\n\0+"
)


def shrink_mark(length: int, digest: str) -> bytes:
    """Return the mark of a file system that was shrunk to `length` bytes. `digest`: of `freed_bytes`."""
    freed = f"all that follows it is free while its SHA-256 is {digest}"
    text = f"aligntool: this file system was shrunk to {length} bytes; {freed}\n"
    return text.encode().ljust(_MARK_LENGTH, b"\0")


def freed_bytes(extent: Extent, claims: int) -> Extent:
    """Return the bytes between a file system of `claims` bytes at the start of an extent and the mark."""
    return Extent(extent.start + claims, extent.length - claims - _MARK_LENGTH)


def digest_of(reader: Reader, extent: Extent) -> str:
    """Return the digest of an extent that the mark of a shrink has. Raises OSError."""
    found = hashlib.sha256()
    for piece in read_pieces(reader, extent):
        found.update(piece)
    return found.hexdigest()


def is_free_behind(reader: Reader, extent: Extent, layer: Layer) -> bool:
    """Return whether a shrink was interrupted before the move: what follows the file system belonged to it,
    and is unchanged since, or reads as zero. Raises OSError.
    """
    mark = re.fullmatch(_MARK, reader.read(extent.end - _MARK_LENGTH, _MARK_LENGTH))
    freed = freed_bytes(extent, layer.claims_size or 0)
    if mark is None or freed.length < 0 or not has_length(layer, int(mark[1])):
        return False
    return is_blank(reader, freed) or mark[2] == digest_of(reader, freed).encode()


def _why_unknown(extent: Extent, layer: Layer) -> str | None:
    """Return why the superblock does not prove what is in use, or None."""
    if layer.unclean:
        return f"the {layer.kind} is unclean: {layer.unclean}"
    if layer.problems:
        return f"the {layer.kind} is in doubt: {layer.problems[0]}"
    if layer.extent.start != extent.start or not layer.claims_size:
        return f"the length of the {layer.kind} is unknown"
    return None
