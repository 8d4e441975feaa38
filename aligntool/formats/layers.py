"""Recognise the contents of disks and partitions: all readers of superblocks, in the order in which they are tried."""

import errno
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from aligntool.formats import linux_fs, md, other_layers, volumes, windows_fs
from aligntool.formats.reader import Area, Reader, TableReading, is_damaged, open_area
from aligntool.formats.tables import gpt_headers, is_backup_alone, read_table, with_boot_code
from aligntool.inventory import Gap, Layer, Partition, Role, Table, TableCopy, Unseen, missing_bytes
from aligntool.units import KIB, MIB, Extent
from aligntool.values import dataclass

# The contents of a disk or an image: its table, and the layers on each partition.

MOST_READ = 512 * MIB  # of one disk in search of layers; 255 ordinary partitions take a quarter of it
WHAT = "partition table and contents"


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


@dataclass(slots=True)
class _LimitedReader:
    """A reader with a limit on the bytes read: thousands of table entries can name the same place, and each can
    lead to nested containers.
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
            raise OSError(errno.EFBIG, f"{MOST_READ // MIB} MiB were read to recognise contents, which is the limit")
        piece = self.below.read(offset, length)
        self.left -= len(piece)
        return piece


def read_contents(reader: Reader, *, sector_size: int | None) -> Contents:
    """Return the contents. Never raises: parts that cannot be read are listed in `unseen`, the others are returned."""
    try:
        reading = read_table(reader, sector_size=sector_size)
    except OSError as error:
        return Contents(unseen=(Unseen(WHAT, f"cannot be read: {error.strerror}", gap=Gap.DISK),))
    unseen: list[Unseen] = []
    limited = _LimitedReader(reader)
    if reading.table and is_backup_alone(reading.table):
        whole = _layers(limited, Extent(0, reader.size), sector_size or 512, "the disk as a whole", unseen)
        if whole:  # the disk is used without a table; the backup GPT is left over from earlier use
            reading = TableReading(None, ())
    reading = with_boot_code(reader, reading)
    table_sector = reading.table.sector_size if reading.table else sector_size or 512
    parked = reading.table.in_flight.partitions if reading.table and reading.table.in_flight else ()
    partitions = []
    for part in reading.partitions:
        if part.number not in parked and part.role not in (Role.EXTENDED, Role.MAP):
            layers = _layers(limited, part.extent, table_sector, f"partition {part.number}", unseen)
            part = replace(part, content=layers or (), content_read=layers is not None)
        partitions.append(part)
    ends = [part.extent.end for part in partitions if part.role not in (Role.EXTENDED, Role.MAP)]
    last_end = max(ends, default=None)
    extent = Extent(0, reader.size)
    whole = _layers(limited, extent, table_sector, "the disk as a whole", unseen, last_end=last_end)
    content = whole or ()
    if reading.table is not None:
        # A member of an array (firmware RAID, md or DRBD below a table), or a hybrid ISO image, which includes the
        # table.
        below = tuple(layer for layer in content if layer.kind.endswith("_raid_member") or layer.kind in _BELOW)
        # Or the disk is used without its table, which was written by mistake or left over: nothing is in it then.
        unused = bool(partitions) and all(part.content_read and not part.content for part in partitions)
        content = below or (content if unused and not reading.table.in_flight else ())
    headers: tuple[TableCopy, ...] = ()
    if reading.table is None or any(layer.kind == "linux_raid_member" for layer in content):
        headers = gpt_headers(reader, sector_size or table_sector)
    return Contents(reading.table, True, tuple(partitions), content, whole is not None, tuple(unseen), headers)


_BELOW = ("drbd", "iso9660")


def _layers(
    reader: _LimitedReader, extent: Extent, sector: int, what: str, unseen: list[Unseen], last_end: int | None = None
) -> tuple[Layer, ...] | None:
    """Return the layers at `extent`, or None after adding to `unseen` that they cannot be read."""
    was_spent = reader.spent
    try:
        return read_layers(reader, extent, sector_size=sector, last_end=last_end)
    except OSError as error:
        if not was_spent:  # reported once, not for each of thousands
            rest = " and everything after it" if reader.spent else ""
            unseen.append(Unseen(f"contents of {what}{rest}", f"cannot be read: {error.strerror}"))
        return None


# The layers on a partition, recognised from its bytes alone.
#
# The order and the rule for ambiguity are those of libblkid's safe probing: RAID members and encrypted volumes
# before file systems; two file systems at once are ambiguous.

DEEPEST = 6  # layers inside layers; real stacks have four
MOST_AREAS = 48  # probed for one partition, however a hostile disk nests them
MOST_HEADS = 1024  # of further areas: a suspended system prevents every change, in whatever volume it is
SMALLEST = 1024  # the two sectors of an extended partition contain no file system
FLOPPY = 1440 * KIB  # no RAID up to this size, and the first match counts (blkid: tiny devices)

Read = Callable[[Area], Layer | None]

# Formats that own the whole container: anything else found there is inside them or is an old remnant.
OWNER_READERS: tuple[Read, ...] = (
    *md.READERS, md.read_ddf, md.read_intel, md.read_other_firmware, other_layers.read_drbd, volumes.read_lvm,
    volumes.read_luks, other_layers.read_owner, windows_fs.read_bitlocker, windows_fs.read_ldm,
)  # fmt: skip
FILE_SYSTEM_READERS: tuple[Read, ...] = (
    other_layers.read_bcache, other_layers.read_bcachefs, windows_fs.read_fat, linux_fs.read_swap, linux_fs.read_xfs,
    linux_fs.read_xfs_log, linux_fs.read_ext, other_layers.read_udf, other_layers.read_iso9660,
    other_layers.read_zfs, other_layers.read_hfs, other_layers.read_ufs, windows_fs.read_ntfs, windows_fs.read_refs,
    other_layers.read_cramfs, other_layers.read_squashfs, linux_fs.read_btrfs, windows_fs.read_exfat,
    linux_fs.read_f2fs, other_layers.read_apfs, other_layers.read_erofs, other_layers.read_befs,
    other_layers.read_other,
)  # fmt: skip
# LDM's own partition has 1 MiB.
ON_FLOPPIES: tuple[Read, ...] = (volumes.read_luks, windows_fs.read_bitlocker, windows_fs.read_ldm)
LAST_RESORT: tuple[Read, ...] = (volumes.read_luks_second,)


def read_layers(
    reader: Reader, extent: Extent, *, sector_size: int = 512, last_end: int | None = None
) -> tuple[Layer, ...]:
    """Return the layers at `extent` of a disk, empty if nothing is recognised. `last_end`: where the last partition
    ends, if `extent` is a disk whose partitions are known; a superblock at its end may be that of the partition.

    Raises OSError if the medium cannot be read, and nothing else whatever the bytes are.
    """
    areas_left, heads_left = iter(range(MOST_AREAS)), iter(range(MOST_HEADS))  # shared by all nested areas

    def probe(reader: Reader, extent: Extent, depth: int) -> tuple[Layer, ...]:
        if extent.start < 0 or extent.length <= SMALLEST or depth > DEEPEST:
            return ()
        if next(areas_left, None) is None:
            return () if next(heads_left, None) is None else _suspended(reader, extent, sector_size)
        inside = partial(probe, depth=depth + 1)
        return _recognise(open_area(reader, extent, sector_size, inside, last_end=None if depth else last_end))

    return probe(reader, extent, 0)


def _suspended(reader: Reader, extent: Extent, sector_size: int) -> tuple[Layer, ...]:
    """Return the image of a suspended system, and no other layer: one short read shows it."""
    head = reader.read(extent.start, min(linux_fs.PAGES[-1], extent.length))
    layer = linux_fs.read_swap(Area(reader, extent, sector_size, head, b"", lambda *_: ()))
    return (layer,) if layer and layer.kind == "swsuspend" else ()


def _recognise(area: Area) -> tuple[Layer, ...]:
    if area.size <= FLOPPY:
        owners, others = _read_all(ON_FLOPPIES, area), _read_all(FILE_SYSTEM_READERS, area)[:1]
    else:
        owners, others = _read_all(OWNER_READERS, area), _read_all(FILE_SYSTEM_READERS, area)
    if not owners:  # blkid believes the second LUKS2 header before any file system and before swap
        owners = _read_all(LAST_RESORT, area)
    owners = tuple(layer for layer in owners if layer in owners[:1] or not _is_inside(layer, owners[:1]))
    others = tuple(layer for layer in others if not _is_inside(layer, owners))
    layers = tuple(_with_size_problem(layer, area) for layer in (*owners, *others))
    return tuple(sorted(layers, key=is_damaged))  # stable: a damaged superblock is weaker evidence


def _read_all(readers: tuple[Read, ...], area: Area) -> tuple[Layer, ...]:
    return tuple(layer for read in readers if (layer := read(area)) is not None)


def _with_size_problem(layer: Layer, area: Area) -> Layer:
    """Return the layer, with a problem if it exceeds its container, as a file system does that was copied to a smaller
    partition.
    """
    room = area.extent.end - layer.extent.start
    if layer.claims_size is None or layer.claims_size <= room:
        return layer
    return replace(layer, problems=(*layer.problems, missing_bytes(layer.kind, layer.claims_size, room)))


def _is_inside(layer: Layer, owners: tuple[Layer, ...]) -> bool:
    """Return whether the content at the container's start belongs to a RAID or DRBD whose metadata is at the end.

    The content of a mirror is also read through its member and must be the same; if it does not fit into the mirror,
    the RAID superblock may be the remnant, so both are reported. Of a striped set only the first chunk is visible.
    """
    for owner in owners:
        if owner.kind == "drbd":  # what is as long as the whole container does not know of its metadata
            return layer.extent.start + (layer.claims_size or 0) <= owner.extent.end - other_layers.DRBD_BLOCK
        at_end = owner.kind.endswith("_raid_member") and owner.data_start == owner.extent.start
        if not at_end or is_damaged(owner):
            continue
        if not owner.inner:
            return True
        for inner in owner.inner:
            if (inner.kind, inner.uuid, inner.extent.start) == (layer.kind, layer.uuid, layer.extent.start):
                return not inner.problems and inner.claims_size == layer.claims_size
    return False
