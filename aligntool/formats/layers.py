"""Recognise the content of a partition: the table of all readers of superblocks, in their order."""

import errno
from collections.abc import Callable
from dataclasses import replace

from aligntool.formats import linux_fs, md, other_layers, volumes, windows_fs
from aligntool.formats.reader import Area, Reader, TableReading, is_damaged, open_area
from aligntool.formats.tables import gpt_headers, is_backup_alone, read_table, with_boot_code
from aligntool.inventory import Gap, Layer, Partition, Role, Table, TableCopy, Unseen, missing_bytes
from aligntool.units import KIB, MIB, Extent
from aligntool.values import dataclass

# What lies on a disk or in an image: its table, and the layers on each partition.

MOST_READ = 512 * MIB  # of one disk in search of layers; 255 honest partitions take a quarter of it
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
class _Rationed:
    """A reader with a limit: a table can name one place thousands of times, and every one of them may hold containers
    in containers.
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
            raise OSError(errno.EFBIG, f"{MOST_READ // MIB} MiB were read in search of contents, which is enough")
        piece = self.below.read(offset, length)
        self.left -= len(piece)
        return piece


def read_contents(reader: Reader, *, sector_size: int | None) -> Contents:
    """Return the contents. Never raises: what cannot be read is listed in `unseen`, and the rest is returned."""
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
    partitions = []
    for part in reading.partitions:
        if part.number not in parked and part.role not in (Role.EXTENDED, Role.MAP):
            layers = _layers(rationed, part.extent, used, f"partition {part.number}", unseen)
            part = replace(part, content=layers or (), content_read=layers is not None)
        partitions.append(part)
    whole = _layers(rationed, Extent(0, reader.size), used, "the disk as a whole", unseen)
    content = whole or ()
    if reading.table is not None:
        # A member of an array (firmware RAID, md below a table), or a hybrid ISO image, which includes the table.
        content = tuple(one for one in content if one.kind.endswith("_raid_member") or one.kind == "iso9660")
    headers: tuple[TableCopy, ...] = ()
    if reading.table is None or any(layer.kind == "linux_raid_member" for layer in content):
        headers = gpt_headers(reader, sector_size or used)
    return Contents(reading.table, True, tuple(partitions), content, whole is not None, tuple(unseen), headers)


def _layers(
    reader: _Rationed, extent: Extent, sector_size: int, what: str, unseen: list[Unseen]
) -> tuple[Layer, ...] | None:

    was_spent = reader.spent
    try:
        return read_layers(reader, extent, sector_size=sector_size)
    except OSError as error:
        if not was_spent:  # said once, not for each of thousands
            rest = " and what comes after it" if reader.spent else ""
            unseen.append(Unseen(f"contents of {what}{rest}", f"cannot be read: {error.strerror}"))
        return None


# What lies on a partition, told from the bytes alone.
#
# The order, and what counts as ambiguous, follow libblkid's safe probing: RAID members and encrypted volumes
# before file systems, and two file systems at once are ambiguous.

DEEPEST = 6  # layers inside layers; real stacks have four
MOST_AREAS = 48  # looked into for one partition, however a hostile disk nests them
SMALLEST = 1024  # an extended partition's own two sectors hold no file system
FLOPPY = 1440 * KIB  # up to here there is no RAID, and the first answer counts (blkid: tiny devices)

Read = Callable[[Area], Layer | None]

# Formats that take the whole container: what is seen beside them is inside them, or left over from before.
OWNER_READERS: tuple[Read, ...] = (
    *md.READERS, md.read_ddf, md.read_intel, md.read_other_firmware, volumes.read_lvm, volumes.read_luks,
    other_layers.read_owner, windows_fs.read_bitlocker, windows_fs.read_ldm,
)  # fmt: skip
FILE_SYSTEM_READERS: tuple[Read, ...] = (
    other_layers.read_bcache, other_layers.read_bcachefs, windows_fs.read_fat, linux_fs.read_swap, linux_fs.read_xfs,
    linux_fs.read_xfs_log, linux_fs.read_ext, other_layers.read_udf, other_layers.read_iso9660,
    other_layers.read_zfs, other_layers.read_hfs, other_layers.read_ufs, windows_fs.read_ntfs, windows_fs.read_refs,
    other_layers.read_cramfs, other_layers.read_squashfs, linux_fs.read_btrfs, windows_fs.read_exfat,
    linux_fs.read_f2fs, other_layers.read_apfs, other_layers.read_erofs, other_layers.read_other,
)  # fmt: skip
# LDM's own partition has 1 MiB.
ON_FLOPPIES: tuple[Read, ...] = (volumes.read_luks, windows_fs.read_bitlocker, windows_fs.read_ldm)
LAST_RESORT: tuple[Read, ...] = (volumes.read_luks_second,)


def read_layers(reader: Reader, extent: Extent, *, sector_size: int = 512) -> tuple[Layer, ...]:
    """Return the layers at `extent` of the disk that `reader` reads; none when nothing is recognised.

    Raises OSError when the medium cannot be read, and nothing else whatever the bytes are.
    """
    areas_left = iter(range(MOST_AREAS))  # shared by everything that is found

    def look(reader: Reader, extent: Extent, depth: int) -> tuple[Layer, ...]:
        if extent.start < 0 or extent.length <= SMALLEST or depth > DEEPEST or next(areas_left, None) is None:
            return ()
        return _recognise(open_area(reader, extent, sector_size, lambda below, part: look(below, part, depth + 1)))

    return look(reader, extent, 0)


def _recognise(area: Area) -> tuple[Layer, ...]:
    if area.size <= FLOPPY:
        owners, others = _found(ON_FLOPPIES, area), _found(FILE_SYSTEM_READERS, area)[:1]
    else:
        owners, others = _found(OWNER_READERS, area), _found(FILE_SYSTEM_READERS, area)
    if not owners:  # blkid believes the second LUKS2 header before any file system and before swap
        owners = _found(LAST_RESORT, area)
    owners = tuple(layer for layer in owners if layer in owners[:1] or not _is_inside(layer, owners[:1]))
    others = tuple(layer for layer in others if not _is_inside(layer, owners))
    layers = tuple(_checked(layer, area) for layer in (*owners, *others))
    return tuple(sorted(layers, key=is_damaged))  # stable: a broken superblock is the weaker claim


def _found(readers: tuple[Read, ...], area: Area) -> tuple[Layer, ...]:
    return tuple(layer for read in readers if (layer := read(area)) is not None)


def _checked(layer: Layer, area: Area) -> Layer:
    """Return the layer compared with its container, which a file system copied to a smaller partition exceeds."""
    room = area.extent.end - layer.extent.start
    if layer.claims_size is None or layer.claims_size <= room:
        return layer
    return replace(layer, problems=(*layer.problems, missing_bytes(layer.kind, layer.claims_size, room)))


def _is_inside(layer: Layer, owners: tuple[Layer, ...]) -> bool:
    """Return whether the content at the container's start belongs to a RAID whose metadata is at the end.

    A mirror's content is read through it and looks the same; when it does not fit into the mirror, the RAID superblock
    may be the one that is left over, so both are told. Of a striped set only the first chunk is seen.
    """
    for owner in owners:
        at_end = owner.kind.endswith("_raid_member") and owner.data_start == owner.extent.start
        if not at_end or is_damaged(owner):
            continue
        if not owner.inner:
            return True
        for inner in owner.inner:
            if (inner.kind, inner.uuid, inner.extent.start) == (layer.kind, layer.uuid, layer.extent.start):
                return not inner.problems and inner.claims_size == layer.claims_size
    return False
