"""Read bytes of a disk or an image by offset, with bounds for hostile counts; faults and checksums of what
was read.
"""

import errno
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from operator import itemgetter
from typing import Literal, Protocol

from aligntool.formats.numbers import le64, text_at, uuid_at
from aligntool.inventory import Fault, Layer, Partition, Role, Table, TableFault, TableLabel
from aligntool.units import KIB, MIB, Extent

# Bytes of a disk or an image, read by absolute offset, never written.
#
# Every parser of this package takes a `Reader`. A hostile disk can make a parser request any offset and any
# length, so a reader returns at most `LONGEST_READ` bytes for a request, fewer at the end of the disk, and
# never raises because of the request.

LONGEST_READ = 16 * 1024 * 1024  # no structure that aligntool reads is longer


class Reader(Protocol):
    @property
    def size(self) -> int: ...

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes at `offset`: fewer than `length` at the end of the disk, none outside it.

        Raises OSError if the medium cannot be read.
        """
        ...


def read_pieces(reader: Reader, extent: Extent) -> Iterator[bytes]:
    """Yield the bytes of an extent in pieces of 1 MiB. Raises OSError."""
    return (reader.read(at, min(MIB, extent.end - at)) for at in range(extent.start, extent.end, MIB))


def is_blank(reader: Reader, extent: Extent) -> bool:
    """Return whether all bytes of an extent are zero. Raises OSError."""
    return not any(map(has_data, read_pieces(reader, extent)))


def has_data(content: bytes) -> bool:
    """Return whether any byte is not zero: a comparison takes a five-hundredth of the time of `any`."""
    return content != bytes(len(content))


@dataclass(frozen=True, slots=True)
class HeartbeatReader:
    """A reader that calls `beat` after each read of another reader, as proof that the disk still responds."""

    below: Reader
    beat: Callable[[], None]

    @property
    def size(self) -> int:
        return self.below.size

    def read(self, offset: int, length: int) -> bytes:
        content = self.below.read(offset, length)
        self.beat()
        return content


@dataclass(frozen=True, slots=True)
class MappedReader:
    """A volume made of runs of another reader, as assembled by LVM and md.

    `runs` are (offset in the volume, offset below, length), in bytes, in ascending order. A read ends at the
    first byte that no run covers.
    """

    below: Reader
    runs: Sequence[tuple[int, int, int]]
    size: int

    def read(self, offset: int, length: int) -> bytes:
        remaining = readable_length(offset, length, self.size)
        pieces = []
        while remaining > 0:
            at = bisect_right(self.runs, offset, key=itemgetter(0)) - 1
            if at < 0:
                break
            run = self.runs[at]
            if offset >= run[0] + run[2]:
                break
            piece = self.below.read(run[1] + offset - run[0], min(remaining, run[0] + run[2] - offset))
            if not piece:
                break
            pieces.append(piece)
            offset += len(piece)
            remaining -= len(piece)
        return b"".join(pieces)


def readable_length(offset: int, length: int, size: int) -> int:
    """Return how many of the requested bytes exist; 0 or negative if none."""
    return 0 if offset < 0 else min(length, size - offset, LONGEST_READ)


# Faults of the partitions of any table: overlaps, and ends beyond the disk.


def overlaps(partitions: Iterable[Partition]) -> list[TableFault]:
    """Return one fault for each partition that starts before an earlier one has ended.

    This sweep in order of the start names every partition that lies in another, and costs n log n, not n²,
    because a hostile GPT can have thousands of entries with the same place.
    """
    faults = []
    furthest: Partition | None = None  # of the partitions so far, the one that ends last
    for partition in sorted(partitions, key=lambda item: (item.extent.start, item.number)):
        if not partition.extent.length:
            continue
        start = partition.extent.start
        if furthest is not None and start < furthest.extent.end:
            end = furthest.extent.end
            inside = (
                f"partition {partition.number} starts at byte {start}, inside partition {furthest.number}"
            )
            detail = (
                f"{inside}, which ends at byte {end}; they share {min(end, partition.extent.end) - start}"
                " bytes"
            )
            numbers = tuple(sorted((furthest.number, partition.number)))
            faults.append(TableFault(Fault.OVERLAP, detail, start, numbers))
        if furthest is None or partition.extent.end > furthest.extent.end:
            furthest = partition
    return faults


def beyond_end(partitions: Iterable[Partition], disk_size: int) -> list[TableFault]:
    faults = []
    for partition in partitions:
        start, end = partition.extent.start, partition.extent.end
        if end <= disk_size:
            continue
        past = end - disk_size
        detail = (
            f"ends at byte {end}, {past} bytes beyond the disk's end at byte {disk_size}; Linux cuts it short"
        )
        if start >= disk_size:
            detail = f"starts at byte {start}, but the disk ends at byte {disk_size}; Linux leaves it out"
        numbered = f"partition {partition.number} {detail}"
        faults.append(TableFault(Fault.BEYOND_END, numbered, start, (partition.number,)))
    return faults


# The result of reading a partition table, and helpers of all its readers.

MOST_FAULTS = 32  # of one kind in one table: a hostile disk can cause thousands


@dataclass(frozen=True, slots=True)
class TableReading:
    """A partition table and its partitions."""

    table: Table | None  # None: no table found
    partitions: tuple[Partition, ...]


def plain_table(
    reader: Reader,
    label: TableLabel,
    partitions: Sequence[Partition],
    faults: Sequence[TableFault] = (),
    *,
    sector_size: int = 512,
    disk_id: str | None = None,
) -> TableReading:
    """Return a table without copies, its partitions checked against the disk and each other.

    Entries for the whole disk, or for the table itself, overlap others by design.
    """
    found = [*faults, *beyond_end(partitions, reader.size)]
    found += overlaps(item for item in partitions if item.role is not Role.MAP)
    table = Table(label, sector_size, disk_id=disk_id, faults=limit_faults(found))
    return TableReading(table, tuple(partitions))


def read_or_none(reader: Reader, offset: int, length: int) -> bytes | None:
    """Return the bytes at `offset`, fewer at the end of the disk, or None if the medium is unreadable."""
    try:
        return reader.read(offset, length)
    except OSError:
        return None


def unreadable_fault(what: str, at: int) -> TableFault:
    return TableFault(
        Fault.UNREADABLE, f"{what} at byte {at} cannot be read: the medium returned an I/O error", at
    )


def limit_faults(faults: list[TableFault]) -> tuple[TableFault, ...]:
    """Return at most MOST_FAULTS of each kind; the last one states how many are omitted."""
    kept: list[TableFault] = []
    kinds: dict[Fault, list[TableFault]] = {}
    for fault in faults:
        same = kinds.setdefault(fault.fault, [])
        same.append(fault)
        if len(same) < MOST_FAULTS:
            kept.append(fault)
    for same in kinds.values():
        rest = same[MOST_FAULTS - 1 :]
        if rest:
            more = f" (and {len(rest) - 1} more of this kind)" if len(rest) > 1 else ""
            numbers = sorted({number for fault in rest for number in fault.partitions})
            kept.append(replace(rest[0], detail=f"{rest[0].detail}{more}", partitions=tuple(numbers)))
    return tuple(kept)


# A container (disk, partition or volume) for the parsers of its content: offsets count from its start.

HEAD = 68 * KIB  # the last superblock at a fixed offset from the start is btrfs's: 4 KiB at 64 KiB
TAIL = 132 * KIB  # md 0.90 is up to 128 KiB before the end, the older DDF anchor 257 sectors
WHOLE_TAIL = 496 * KIB  # of a disk: Promise's metadata are up to 991 sectors before the end, or 3087
# A partition that ends closer to the disk's end may have the same last place for a superblock, counted in
# units of its length: the longest unit is that of a ZFS label.
LAST_PLACES = 256 * KIB

MAY_BE_SHARED = "it may be shared with another machine, which would expect it at its old place"
# the first word of the problem of a bad superblock checksum, and of no other problem
CHECKSUM_PREFIX = "checksum"

Inside = Callable[[Reader, Extent], tuple[Layer, ...]]

# The budget of one disk. Every number is far above that of any real disk, and so low that a disk that was
# made to be expensive is read in seconds. docs/decisions/0055 has the measurements.

PARTITIONS = "partitions"  # Linux shows 255, a new GPT has room for 128
BYTES = "bytes in search of contents"  # 255 ordinary partitions take a quarter of them
AREAS = "containers"  # partitions, volumes, and what is in them; one disk of a large server has hundreds
LEVELS = "containers inside each other"  # real stacks have four
WORDS = "words of metadata"  # of LVM and LUKS2; a group of 1000 volumes has 50,000
ITEMS = "layers and segments"  # in all partitions together; each becomes output
MOST: Mapping[str, int] = {
    PARTITIONS: 256,
    BYTES: 512 * MIB,
    AREAS: 4096,
    LEVELS: 6,
    WORDS: 1_000_000,
    ITEMS: 16_384,
}


class OverBudgetError(OSError):
    """A disk has more contents than any real disk. As an OSError, it makes contents unreadable, never
    empty.
    """


@dataclass(slots=True)
class Budget:
    """What may still be spent on the contents of one disk."""

    left: dict[str, int] = field(default_factory=lambda: dict(MOST))

    @property
    def is_spent(self) -> bool:
        return min(self.left.values()) < 0

    def spend(self, what: str, amount: int = 1) -> None:
        """Spend `amount` of one of the above. Raises OverBudgetError."""
        self.left[what] -= amount
        if self.is_spent:
            why = f"not everything was looked at: more than {MOST[what]:,} {what}, which no real disk has"
            raise OverBudgetError(errno.EFBIG, why)


@dataclass(frozen=True, slots=True)
class Area:
    """A container whose content is to be recognised, with its first and last bytes already read."""

    reader: Reader
    extent: Extent
    sector_size: int
    head: bytes
    tail: bytes
    inside: Inside  # recognises the layers in a part of it
    # of the last partition of the disk, if this is a disk whose partitions are known
    last_end: int | None = None
    budget: Budget = field(default_factory=Budget)

    @property
    def start(self) -> int:
        return self.extent.start

    @property
    def size(self) -> int:
        return self.extent.length

    @property
    def is_whole(self) -> bool:
        """Return whether this is the whole disk (or a whole image file) and not a part of it."""
        return self.start == 0 and self.extent.end >= self.reader.size

    @property
    def ends_with_a_partition(self) -> bool:
        """Return whether content at the end may belong to a last partition that ends with the disk."""
        if self.last_end is not None:  # beyond the end: the table is that of an array of several such disks
            return self.is_whole and self.size - LAST_PLACES < self.last_end <= self.size
        table = self.head[510:512] == b"\x55\xaa" or b"EFI PART" in (self.head[512:520], self.head[4096:4104])
        return self.is_whole and table

    def layer(self, kind: str, claims: int | None = None, unit: int | None = None) -> Layer:
        """Return a layer whose data begin with this area; it is `claims` bytes long, or as long as the
        area.
        """
        extent = Extent(self.start, self.size if claims is None else claims)
        return Layer(kind, extent, data_start=self.start, data_unit=unit, claims_size=claims)

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes at an offset from the container's start: fewer at its end, none outside it."""
        length = min(length, self.size - offset)
        if offset < 0 or length <= 0:
            return b""
        if offset + length <= len(self.head):
            return self.head[offset : offset + length]
        into_tail = offset - (self.size - len(self.tail))
        if into_tail >= 0 and self.tail:
            return self.tail[into_tail : into_tail + length]
        return self.reader.read(self.start + offset, length)


@dataclass(frozen=True, slots=True)
class Magic:
    """A format that is recognised by a magic and not decoded, except for a label, a UUID and a version."""

    kind: str
    # offset of the magic; a negative offset, here and below, counts from the end of the last whole sector
    at: int
    magic: bytes
    label: tuple[int, int] | None = None  # offset and length
    uuid: int | None = None
    version: str | None = None
    version_at: tuple[int, int] | None = None  # offset and length of a little-endian number

    def layer(self, area: Area) -> Layer | None:
        if _read_from(area, self.at, len(self.magic)) != self.magic:
            return None
        version = (
            str(int.from_bytes(_read_from(area, *self.version_at), "little"))
            if self.version_at
            else self.version
        )
        return Layer(
            kind=self.kind,
            extent=area.extent,
            version=version,
            label=text_at(_read_from(area, *self.label), 0, self.label[1]) if self.label else None,
            uuid=uuid_at(_read_from(area, self.uuid, 16), 0) if self.uuid is not None else None,
        )


def _read_from(area: Area, place: int, length: int) -> bytes:
    return area.read(place if place >= 0 else area.size // 512 * 512 + place, length)


def open_area(
    reader: Reader,
    extent: Extent,
    sector_size: int,
    inside: Inside,
    *,
    last_end: int | None = None,
    budget: Budget | None = None,
) -> Area:
    """Return the area, with both ends read in advance: nearly all signatures are there."""
    head = reader.read(extent.start, min(HEAD, extent.length))
    is_whole = extent.start == 0 and extent.end >= reader.size
    tail_start = max(extent.length - (WHOLE_TAIL if is_whole else TAIL), 0)
    tail = reader.read(extent.start + tail_start, extent.length - tail_start)
    if len(tail) < extent.length - tail_start:
        tail = b""  # the disk ends before the container: the last bytes are not the container's end
    return Area(reader, extent, sector_size, head, tail, inside, last_end, budget or Budget())


def checksum_problem(of: str, stored: int | str, computed: int | str) -> tuple[str, ...]:
    """Return the problem of a bad checksum, or an empty tuple if it is right."""
    if stored == computed:
        return ()
    stored, computed = (f"{value:#x}" if isinstance(value, int) else value for value in (stored, computed))
    return (f"{CHECKSUM_PREFIX} of {of} is wrong: stored {stored}, computed {computed}",)


def is_damaged(layer: Layer) -> bool:
    return any(problem.startswith(CHECKSUM_PREFIX) for problem in layer.problems)


# Checksums of superblocks that Python's library lacks.
#
# Tables are computed at first use, so that an audit that needs none does not compute any.

CASTAGNOLI = 0x82F63B78  # CRC-32C, reflected
ECMA_182 = 0x42F0E1EBA9EA3693  # CRC-64, not reflected
_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF


@cache
def _crc32c_table() -> tuple[int, ...]:
    table = list(range(256))
    for _ in range(8):
        table = [rest >> 1 ^ (CASTAGNOLI if rest & 1 else 0) for rest in table]
    return tuple(table)


@cache
def _crc64_table() -> tuple[int, ...]:
    table = [byte << 56 for byte in range(256)]
    for _ in range(8):
        table = [rest << 1 & _MASK64 ^ (ECMA_182 if rest >> 63 else 0) for rest in table]
    return tuple(table)


def crc32c(data: bytes, seed: int = _MASK32) -> int:
    """Return CRC-32C without the final inversion, as ext4 stores it; btrfs and XFS store the inverse."""
    table = _crc32c_table()
    crc = seed
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc


def crc32c_inverted(data: bytes) -> int:
    return crc32c(data) ^ _MASK32


def crc32_seeded(data: bytes, seed: int) -> int:
    """Return CRC-32 with another initial value and without inversions, as in LVM (0xf597a6cf) and f2fs
    (0xf2f52010).
    """
    return zlib.crc32(data, seed ^ _MASK32) ^ _MASK32


def crc64(data: bytes) -> int:
    """Return CRC-64/WE, as in bcache."""
    table = _crc64_table()
    crc = _MASK64
    for byte in data:
        crc = crc << 8 & _MASK64 ^ table[crc >> 56 ^ byte]
    return crc ^ _MASK64


def folded_sum(data: bytes, order: Literal["little", "big"] = "little") -> int:
    """Return md's checksum: the sum of 32-bit words, and of a last half-word, with the carries added once."""
    total = sum(int.from_bytes(data[at : at + 4], order) for at in range(0, len(data), 4))
    return ((total & _MASK32) + (total >> 32)) & _MASK32


def fletcher64(data: bytes) -> int:
    """Return the checksum of APFS: Apple File System Reference, Object Checksum."""
    low = high = 0
    for at in range(0, len(data) & ~3, 4):
        low += int.from_bytes(data[at : at + 4], "little")
        high += low
    first = ~((low + high) % _MASK32) & _MASK32
    second = ~((low + first) % _MASK32) & _MASK32
    return second << 32 | first


def rotating_sum(data: bytes, skipped: tuple[int, ...]) -> int:
    """Return the boot checksum of exFAT (specification 3.4). `skipped` are the bytes that change while
    mounted.
    """
    total = 0
    for at, byte in enumerate(data):
        if at not in skipped:
            total = ((total & 1) << 31) + (total >> 1) + byte & _MASK32
    return total


_XXH = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


def xxh64(data: bytes) -> int:
    """Return xxHash, 64 bits, seed 0 (github.com/Cyan4973/xxHash, doc/xxhash_spec.md), as in btrfs."""
    one, two, three, four, five = _XXH
    total = five
    striped = len(data) & ~31
    if striped:
        lanes = [(one + two) & _MASK64, two, 0, -one & _MASK64]
        for at in range(0, striped, 32):
            lanes = [_xxh_round(lane, le64(data, at + 8 * index)) for index, lane in enumerate(lanes)]
        total = sum(_rotated(lane, turn) for lane, turn in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK64
        for lane in lanes:
            total = ((total ^ _xxh_round(0, lane)) * one + four) & _MASK64
    total = (total + len(data)) & _MASK64
    for at in range(striped, len(data) - 7, 8):
        total = (_rotated(total ^ _xxh_round(0, le64(data, at)), 27) * one + four) & _MASK64
    rest = data[len(data) & ~7 :]
    if len(rest) >= 4:
        total = (
            _rotated(total ^ int.from_bytes(rest[:4], "little") * one & _MASK64, 23) * two + three
        ) & _MASK64
    for byte in rest[len(rest) & 4 :]:
        total = _rotated(total ^ byte * five & _MASK64, 11) * one & _MASK64
    total = (total ^ total >> 33) * two & _MASK64
    total = (total ^ total >> 29) * three & _MASK64
    return total ^ total >> 32


def _xxh_round(lane: int, word: int) -> int:
    return _rotated((lane + word * _XXH[1]) & _MASK64, 31) * _XXH[0] & _MASK64


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> 64 - bits) & _MASK64
