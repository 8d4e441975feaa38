"""Recognise the contents of disks and partitions."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from aligntool.contents.catalogue import FILE_SYSTEM_READERS, LAST_RESORT, ON_FLOPPIES, OWNER_READERS
from aligntool.contents.other import DRBD_BLOCK
from aligntool.formats.reader import (
    AREAS,
    BYTES,
    ITEMS,
    LEVELS,
    MOST,
    PARTITIONS,
    Area,
    Budget,
    OverBudgetError,
    Reader,
    TableReading,
    is_damaged,
    open_area,
)
from aligntool.formats.tables import gpt_headers, is_backup_alone, read_table, with_boot_code
from aligntool.inventory import (
    Gap,
    Layer,
    Partition,
    Role,
    Table,
    TableCopy,
    Unseen,
    missing_bytes,
    with_inner,
)
from aligntool.units import KIB, Extent

# The contents of a disk or an image: its table, and the layers on each partition.

TABLE_AND_CONTENTS = "partition table and contents"


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything that was recognised on a disk."""

    table: Table | None = None
    table_read: bool = False
    partitions: tuple[Partition, ...] = ()
    content: tuple[Layer, ...] = ()
    content_read: bool = False
    unseen: tuple[Unseen, ...] = ()
    gpt_headers: tuple[TableCopy, ...] = ()  # of a drive without a table, or in an array as a whole


NOT_READ = Contents()


def read_contents(reader: Reader, *, sector_size: int | None) -> Contents:
    """Return the contents. Never raises: parts that cannot be read are listed in `unseen`, the others are
    returned.
    """
    try:
        reading = read_table(reader, sector_size=sector_size)
    except OSError as error:
        return Contents(
            unseen=(Unseen(TABLE_AND_CONTENTS, f"cannot be read: {error.strerror}", gap=Gap.DISK),)
        )
    search = _Search(reader)
    if reading.table and is_backup_alone(reading.table):
        whole = search.layers(Extent(0, reader.size), sector_size or 512, "the disk as a whole")
        if whole:  # the disk is used without a table; the backup GPT is left over from earlier use
            reading = TableReading(None, ())
    reading = search.without_too_many(with_boot_code(reader, reading))
    table_sector = reading.table.sector_size if reading.table else sector_size or 512
    parked = reading.table.in_flight.partitions if reading.table and reading.table.in_flight else ()
    partitions = []
    for part in reading.partitions:
        if part.number not in parked and part.role not in (Role.EXTENDED, Role.MAP):
            layers = search.layers(part.extent, table_sector, f"partition {part.number}")
            part = replace(part, content=layers or (), content_read=layers is not None)
        partitions.append(part)
    ends = [part.extent.end for part in partitions if part.role not in (Role.EXTENDED, Role.MAP)]
    last_end = max(ends, default=None)
    whole = search.layers(Extent(0, reader.size), table_sector, "the disk as a whole", last_end)
    content = whole or ()
    if reading.table is not None:
        # A member of an array (firmware RAID, md or DRBD below a table), or a hybrid ISO image, which
        # includes the table.
        below = tuple(
            layer for layer in content if layer.kind.endswith("_raid_member") or layer.kind in _UNDER_CONTENT
        )
        # Or the disk is used without its table, which was written by mistake or left over: nothing is in it
        # then.
        unused = bool(partitions) and all(part.content_read and not part.content for part in partitions)
        content = below or (content if unused and not reading.table.in_flight else ())
    headers: tuple[TableCopy, ...] = ()
    if reading.table is None or any(layer.kind == "linux_raid_member" for layer in content):
        headers = gpt_headers(reader, sector_size or table_sector)
    return Contents(
        reading.table, True, tuple(partitions), content, whole is not None, tuple(search.unseen), headers
    )


_UNDER_CONTENT = ("drbd", "iso9660")


@dataclass(slots=True)
class _Search:
    """The search for the layers of one disk, with one budget. Equal extents are searched once: thousands of
    entries of a table can name the same place.
    """

    reader: Reader
    budget: Budget = field(default_factory=Budget)
    unseen: list[Unseen] = field(default_factory=list)
    found: dict[tuple[Extent, int | None], tuple[Layer, ...] | None] = field(default_factory=dict)

    def without_too_many(self, reading: TableReading) -> TableReading:
        """Return the table with as many partitions as the budget has. If it has more, their contents are not
        read.
        """
        try:
            self.budget.spend(PARTITIONS, len(reading.partitions))
        except OverBudgetError as error:
            self.unseen.append(Unseen("partitions", str(error.strerror), gap=Gap.DISK))
        return replace(reading, partitions=reading.partitions[: MOST[PARTITIONS]])

    def layers(
        self, extent: Extent, sector_size: int, what: str, last_end: int | None = None
    ) -> tuple[Layer, ...] | None:
        """Return the layers at `extent`, or None after adding to `unseen` that they cannot be read, or that
        the budget is spent.
        """
        if self.budget.is_spent:
            return None  # reported once, not for each of thousands
        key = extent, last_end
        try:
            if key not in self.found:
                self.found[key] = None
                self.found[key] = read_layers(
                    self.reader, extent, sector_size=sector_size, last_end=last_end, budget=self.budget
                )
            layers = self.found[key]
            self.budget.spend(ITEMS, sum(1 + len(layer.segments) for layer in with_inner(layers or ())))
        except OverBudgetError as error:
            name = f"contents of {what} and everything after it"
            self.unseen.append(Unseen(name, str(error.strerror), gap=Gap.DISK))
            return None
        except OSError as error:
            self.unseen.append(Unseen(f"contents of {what}", f"cannot be read: {error.strerror}"))
            return None
        return layers


# The layers on a partition, recognised from its bytes alone.
#
# The order and the rule for ambiguity are those of libblkid's safe probing: RAID members and encrypted
# volumes before file systems; two file systems at once are ambiguous.

SMALLEST = 1024  # the two sectors of an extended partition contain no file system
FLOPPY = 1440 * KIB  # no RAID up to this size, and the first match counts (blkid: tiny devices)


def read_layers(
    reader: Reader,
    extent: Extent,
    *,
    sector_size: int = 512,
    last_end: int | None = None,
    budget: Budget | None = None,
) -> tuple[Layer, ...]:
    """Return the layers at `extent` of a disk, empty if nothing is recognised. `last_end`: where the last
    partition ends, if `extent` is a disk whose partitions are known; a superblock at its end may be that of
    the partition. `budget`: of the disk, if more than this extent of it is searched.

    Raises OSError if the medium cannot be read or the budget is spent, and nothing else whatever the bytes
    are.
    """
    budget = budget or Budget()

    def probe(reader: Reader, extent: Extent, depth: int) -> tuple[Layer, ...]:
        if extent.start < 0 or extent.length <= SMALLEST:
            return ()
        budget.spend(AREAS)
        budget.spend(LEVELS, depth if depth > MOST[LEVELS] else 0)
        inside = partial(probe, depth=depth + 1)
        last = None if depth else last_end
        return _recognise(open_area(reader, extent, sector_size, inside, last_end=last, budget=budget))

    return probe(_CountedReader(reader, budget), extent, 0)


@dataclass(frozen=True, slots=True)
class _CountedReader:
    """A reader that takes what is read from a budget."""

    below: Reader
    budget: Budget

    @property
    def size(self) -> int:
        return self.below.size

    def read(self, offset: int, length: int) -> bytes:
        content = self.below.read(offset, length)
        self.budget.spend(BYTES, len(content))
        return content


def _recognise(area: Area) -> tuple[Layer, ...]:
    if area.size <= FLOPPY:
        owners = _read_all(ON_FLOPPIES, area)
        others = _read_all(FILE_SYSTEM_READERS, area)[:1]
    else:
        owners = _read_all(OWNER_READERS, area)
        others = _read_all(FILE_SYSTEM_READERS, area)
    if not owners:  # blkid believes the second LUKS2 header before any file system and before swap
        owners = _read_all(LAST_RESORT, area)
    owners = tuple(layer for layer in owners if layer in owners[:1] or not _is_inside(layer, owners[:1]))
    others = tuple(layer for layer in others if not _is_inside(layer, owners))
    layers = tuple(_with_size_problem(layer, area) for layer in (*owners, *others))
    return tuple(sorted(layers, key=is_damaged))  # stable: a damaged superblock is weaker evidence


def _read_all(readers: tuple[Callable[[Area], Layer | None], ...], area: Area) -> tuple[Layer, ...]:
    return tuple(layer for read in readers if (layer := read(area)) is not None)


def _with_size_problem(layer: Layer, area: Area) -> Layer:
    """Return the layer, with a problem if it exceeds its container, as a file system does that was copied to
    a smaller partition.
    """
    room = area.extent.end - layer.extent.start
    if layer.claims_size is None or layer.claims_size <= room:
        return layer
    return replace(layer, problems=(*layer.problems, missing_bytes(layer.kind, layer.claims_size, room)))


def _is_inside(layer: Layer, owners: tuple[Layer, ...]) -> bool:
    """Return whether the content at the container's start belongs to a RAID or DRBD whose metadata is at the
    end.

    The content of a mirror is also read through its member and must be the same; if it does not fit into the
    mirror, the RAID superblock may be the remnant, so both are reported. Of a striped set only the first
    chunk is visible.
    """
    for owner in owners:
        if owner.kind == "drbd":  # what is as long as the whole container does not know of its metadata
            return layer.extent.start + (layer.claims_size or 0) <= owner.extent.end - DRBD_BLOCK
        at_end = owner.kind.endswith("_raid_member") and owner.data_start == owner.extent.start
        if not at_end or is_damaged(owner):
            continue
        if not owner.inner:
            return True
        for inner in owner.inner:
            if (inner.kind, inner.uuid, inner.extent.start) == (layer.kind, layer.uuid, layer.extent.start):
                return not inner.problems and inner.claims_size == layer.claims_size
    return False
