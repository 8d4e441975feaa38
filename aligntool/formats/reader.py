"""Bytes of a disk or an image, read by absolute offset, never written; bounds for hostile counts."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from aligntool.inventory import Fault, Partition, Role, Table, TableFault, TableLabel

# Bytes of a disk or an image, read by absolute offset, never written.
#
# Every parser in `probe` takes a `Reader`. A hostile disk can make a parser ask for any offset and any
# length, so a reader answers each request with at most `LONGEST_READ` bytes and with less where the disk
# ends, and never raises for that.

LONGEST_READ = 16 * 1024 * 1024  # no structure that aligntool reads is longer


class Reader(Protocol):
    @property
    def size(self) -> int: ...

    def read(self, offset: int, length: int) -> bytes:
        """The bytes at `offset`: fewer than `length` at the end of the disk, none outside it.

        Raises OSError where the medium cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class BeatingReader:
    """Another reader, and a call after each of its answers: whoever waits sees that the disk still gives some."""

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
class BytesReader:
    """Bytes in memory: for tests, fuzzing, and structures that were already read."""

    content: bytes

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self, offset: int, length: int) -> bytes:
        return self.content[offset : offset + length] if clip(offset, length, self.size) > 0 else b""


@dataclass(frozen=True, slots=True)
class MappedReader:
    """A volume made of runs of another reader, as LVM and md put them together.

    `runs` are (offset in the volume, offset below, length), in bytes. What no run covers reads as missing: the answer
    ends there.
    """

    below: Reader
    runs: Sequence[tuple[int, int, int]]
    size: int

    def read(self, offset: int, length: int) -> bytes:
        wanted = clip(offset, length, self.size)
        pieces = []
        while wanted > 0:
            run = next((run for run in self.runs if run[0] <= offset < run[0] + run[2]), None)
            if run is None:
                break
            piece = self.below.read(run[1] + offset - run[0], min(wanted, run[0] + run[2] - offset))
            if not piece:
                break
            pieces.append(piece)
            offset += len(piece)
            wanted -= len(piece)
        return b"".join(pieces)


def clip(offset: int, length: int, size: int) -> int:
    """How many of the bytes asked for there are; 0 or less when none."""
    if offset < 0:
        return 0
    return min(length, size - offset, LONGEST_READ)


# What can be wrong between the partitions of any table: they overlap, or they leave the disk.
#
# Comes in: partitions, as the table's own parser made them. Goes out: faults with the numbers of the
# partitions. Alone because MBR, GPT and the old labels share it.


def overlaps(partitions: Iterable[Partition]) -> list[TableFault]:
    """One fault for each partition that starts before an earlier one has ended.

    A sweep in order of the start: it names every partition that lies in another, and it costs n log n, not n²,
    because a hostile GPT can have thousands of entries on the same place.
    """
    faults = []
    reaching: Partition | None = None  # of those seen, the one that ends last
    for partition in sorted(partitions, key=lambda item: (item.extent.start, item.number)):
        if not partition.extent.length:
            continue
        if reaching is not None and partition.extent.start < reaching.extent.end:
            faults.append(_overlap(reaching, partition))
        if reaching is None or partition.extent.end > reaching.extent.end:
            reaching = partition
    return faults


def _overlap(first: Partition, second: Partition) -> TableFault:
    shared = min(first.extent.end, second.extent.end) - second.extent.start
    return TableFault(
        Fault.OVERLAP,
        f"partition {second.number} starts at byte {second.extent.start}, inside partition {first.number}, which "
        f"ends at byte {first.extent.end}; they share {shared} bytes",
        second.extent.start,
        tuple(sorted((first.number, second.number))),
    )


def beyond_end(partitions: Iterable[Partition], disk_size: int) -> list[TableFault]:
    return [_beyond(partition, disk_size) for partition in partitions if partition.extent.end > disk_size]


def _beyond(partition: Partition, disk_size: int) -> TableFault:
    start, end = partition.extent.start, partition.extent.end
    if start >= disk_size:
        detail = (
            f"partition {partition.number} starts at byte {start}, but the disk ends at byte {disk_size}; "
            "Linux leaves it out"
        )
    else:
        detail = (
            f"partition {partition.number} ends at byte {end}, {end - disk_size} bytes beyond the disk's end at "
            f"byte {disk_size}; Linux cuts it short"
        )
    return TableFault(Fault.BEYOND_END, detail, start, (partition.number,))


# What reading a partition table gives, and the one way bytes are asked for here.
#
# Comes in: a `Reader`. Goes out: bytes that may be fewer than wanted, or None where the medium could not be
# read, so that no parser below needs a try of its own. Alone because every parser of this folder stands on
# it.

MOST_FAULTS = 32  # of one kind in one table: a hostile disk may make thousands, nobody reads more


@dataclass(frozen=True, slots=True)
class TableReading:
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

    Entries for the whole disk, or for the table itself, overlap others on purpose.
    """
    found = [*faults, *beyond_end(partitions, reader.size)]
    found += overlaps(item for item in partitions if item.role is not Role.MAP)
    table = Table(label, sector_size, disk_id=disk_id, faults=thin_out(found))
    return TableReading(table, tuple(partitions))


def peek(reader: Reader, offset: int, length: int) -> bytes | None:
    """The bytes at `offset`, short at the end of the disk, None where the medium cannot be read."""
    try:
        return reader.read(offset, length)
    except OSError:
        return None


def unreadable(what: str, at: int) -> TableFault:
    return TableFault(
        Fault.UNREADABLE, f"{what} at byte {at} cannot be read: the medium gives an I/O error", at
    )


def text_field(raw: bytes, encoding: str = "latin-1") -> str:
    """A fixed-width text field up to its first NUL, without the blanks that pad it."""
    return raw.split(b"\0", 1)[0].decode(encoding, "replace").rstrip()


def thin_out(faults: list[TableFault]) -> tuple[TableFault, ...]:
    """At most MOST_FAULTS of each kind; the last one kept speaks for those left out."""
    kept: list[TableFault] = []
    seen: dict[Fault, int] = {}
    for fault in faults:
        seen[fault.fault] = seen.get(fault.fault, 0) + 1
        if seen[fault.fault] < MOST_FAULTS:
            kept.append(fault)
    for kind, count in seen.items():
        if count >= MOST_FAULTS:
            kept.append(
                _for_the_rest(kind, [fault for fault in faults if fault.fault == kind][MOST_FAULTS - 1 :])
            )
    return tuple(kept)


def _for_the_rest(kind: Fault, rest: list[TableFault]) -> TableFault:
    numbers = sorted({number for fault in rest for number in fault.partitions})
    detail = f"{rest[0].detail} (and {len(rest) - 1} more of this kind)" if len(rest) > 1 else rest[0].detail
    return TableFault(kind, detail, rest[0].at, tuple(numbers))
