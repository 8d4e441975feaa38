"""What lies on a disk or in an image: its table, and the layers on each partition.

In: a `Reader`. Out: `Contents`. Alone because a live disk and an image file are read in exactly this one way.
"""

import errno
from collections.abc import Sequence
from dataclasses import dataclass, replace

from aligntool.inventory import Gap, Layer, Partition, Role, Table, TableCopy, Unseen
from aligntool.probe.reader import Reader
from aligntool.units import MIB, Extent

MOST_READ = 512 * MIB  # of one disk in search of layers; 255 honest partitions take a quarter of it
WHAT = "partition table and contents"
_EMPTY_ROLES = (Role.EXTENDED, Role.MAP)


@dataclass(frozen=True, slots=True)
class Contents:
    table: Table | None = None
    table_read: bool = False
    partitions: tuple[Partition, ...] = ()
    content: tuple[Layer, ...] = ()
    content_read: bool = False
    unseen: tuple[Unseen, ...] = ()
    gpt_headers: tuple[TableCopy, ...] = ()  # of a drive without a table, or in an array as a whole


NOT_READ = Contents()


@dataclass(slots=True)
class _Rationed:
    """The disk, until too much was read of it: a table can name one place thousands of times, and every one of them may
    hold containers in containers.
    """

    below: Reader
    left: int = MOST_READ

    @property
    def size(self) -> int:
        return self.below.size

    @property
    def spent(self) -> bool:
        return self.left <= 0

    def read(self, offset: int, length: int) -> bytes:
        if self.spent:
            raise OSError(
                errno.EFBIG, f"{MOST_READ // MIB} MiB were read in search of contents, which is enough"
            )
        piece = self.below.read(offset, length)
        self.left -= len(piece)
        return piece


def read_contents(reader: Reader, *, sector_size: int | None) -> Contents:
    """Never raises: what cannot be read is said in `unseen`, and the rest is still there."""
    from aligntool.probe.tables import TableReading, is_backup_alone, read_table, with_boot_code

    try:
        reading = read_table(reader, sector_size=sector_size)
    except OSError as error:
        return Contents(unseen=(Unseen(WHAT, f"cannot be read: {error.strerror}", gap=Gap.DISK),))
    unseen: list[Unseen] = []
    rationed = _Rationed(reader)
    if reading.table and is_backup_alone(reading.table):
        whole = _layers(rationed, Extent(0, reader.size), sector_size or 512, "the disk as a whole", unseen)
        if whole:  # the disk is used without a table; the backup GPT is left over from earlier use
            reading = TableReading(None, ())
    reading = with_boot_code(reader, reading)
    used = reading.table.sector_size if reading.table else sector_size or 512
    parked = reading.table.in_flight.partitions if reading.table and reading.table.in_flight else ()
    partitions = tuple(
        part if part.number in parked else _with_layers(rationed, part, used, unseen)
        for part in reading.partitions
    )
    whole = _layers(rationed, Extent(0, reader.size), used, "the disk as a whole", unseen)
    content = whole or ()
    if reading.table is not None:
        content = _beside_a_table(content)
    headers: tuple[TableCopy, ...] = ()
    if reading.table is None or any(layer.kind == "linux_raid_member" for layer in content):
        from aligntool.probe.tables.stale import gpt_headers

        headers = gpt_headers(reader, sector_size or used)
    return Contents(reading.table, True, partitions, content, whole is not None, tuple(unseen), headers)


def _with_layers(
    reader: _Rationed, partition: Partition, sector_size: int, unseen: list[Unseen]
) -> Partition:
    if partition.role in _EMPTY_ROLES:
        return partition
    layers = _layers(reader, partition.extent, sector_size, f"partition {partition.number}", unseen)
    return replace(partition, content=layers or (), content_read=layers is not None)


def _layers(
    reader: _Rationed, extent: Extent, sector_size: int, what: str, unseen: list[Unseen]
) -> tuple[Layer, ...] | None:
    from aligntool.probe.layers import read_layers

    was_spent = reader.spent
    try:
        return read_layers(reader, extent, sector_size=sector_size)
    except OSError as error:
        if not was_spent:  # said once, not for each of thousands
            rest = " and what comes after it" if reader.spent else ""
            unseen.append(Unseen(f"contents of {what}{rest}", f"cannot be read: {error.strerror}"))
        return None


def _beside_a_table(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """On a disk with a table, only two things can be there as well: a member of an array (firmware RAID, md below a
    table), and a hybrid ISO image, which brought the table with it.
    """
    return tuple(layer for layer in layers if layer.kind.endswith("_raid_member") or layer.kind == "iso9660")
