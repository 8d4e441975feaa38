"""What lies on a partition, told from the bytes alone.

In: a reader of the disk and the place of a partition (or of the whole disk). Out: the layers recognised there,
the most authoritative first, each with its geometry in absolute bytes and with what is inconsistent about it.
The order, and what counts as ambiguous, follow libblkid's safe probing: RAID members and encrypted volumes
before file systems, and two file systems at once are no answer but a question.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from aligntool.inventory import Layer
from aligntool.inventory.layers import missing_bytes
from aligntool.probe.layers import (
    apple,
    bcache,
    btrfs,
    exfat,
    ext,
    f2fs,
    fat,
    firmware_raid,
    images,
    iso9660,
    ldm,
    luks,
    lvm,
    marks,
    md,
    ntfs,
    swap,
    ufs,
    xfs,
    zfs,
)
from aligntool.probe.layers.area import Area, is_damaged, open_area
from aligntool.probe.reader import Reader
from aligntool.units import KIB, Extent

DEEPEST = 6  # layers inside layers; real stacks have four
MOST_AREAS = 48  # looked into for one partition, however a hostile disk nests them
SMALLEST = 1024  # an extended partition's own two sectors hold no file system
FLOPPY = 1440 * KIB  # up to here there is no RAID, and the first answer counts (blkid: tiny devices)

Read = Callable[[Area], Layer | None]

# Formats that take the whole container: what is seen beside them is inside them, or left over from before.
OWNERS: tuple[Read, ...] = (
    *md.READERS,
    firmware_raid.read_ddf,
    firmware_raid.read_intel,
    firmware_raid.read_other_firmware,
    lvm.read_lvm,
    luks.read_luks,
    marks.read_owner,
    ntfs.read_bitlocker,
    ldm.read_ldm,
)
FILE_SYSTEMS: tuple[Read, ...] = (
    bcache.read_bcache,
    bcache.read_bcachefs,
    fat.read_fat,
    swap.read_swap,
    xfs.read_xfs,
    xfs.read_xfs_log,
    ext.read_ext,
    iso9660.read_udf,
    iso9660.read_iso9660,
    zfs.read_zfs,
    apple.read_hfs,
    ufs.read_ufs,
    ntfs.read_ntfs,
    ntfs.read_refs,
    images.read_cramfs,
    images.read_squashfs,
    btrfs.read_btrfs,
    exfat.read_exfat,
    f2fs.read_f2fs,
    apple.read_apfs,
    images.read_erofs,
    marks.read_other,
)
ON_FLOPPIES: tuple[Read, ...] = (
    luks.read_luks,
    ntfs.read_bitlocker,
    ldm.read_ldm,
)  # LDM's own partition has 1 MiB
LAST_RESORT: tuple[Read, ...] = (luks.read_luks_second,)


@dataclass(frozen=True, slots=True)
class _Search:
    sector_size: int
    areas_left: Iterator[int]  # shared by everything found below one partition

    def look(self, reader: Reader, extent: Extent, depth: int) -> tuple[Layer, ...]:
        if extent.start < 0 or extent.length <= SMALLEST or depth > DEEPEST:
            return ()
        if next(self.areas_left, None) is None:
            return ()
        area = open_area(
            reader, extent, self.sector_size, lambda below, part: self.look(below, part, depth + 1)
        )
        return _recognise(area)


def read_layers(reader: Reader, extent: Extent, *, sector_size: int = 512) -> tuple[Layer, ...]:
    """The layers at `extent` of the disk that `reader` reads; none when nothing is recognised.

    Raises OSError when the medium cannot be read, and nothing else whatever the bytes are.
    """
    return _Search(sector_size, iter(range(MOST_AREAS))).look(reader, extent, 0)


def _recognise(area: Area) -> tuple[Layer, ...]:
    if area.size <= FLOPPY:
        owners, others = _found(ON_FLOPPIES, area), _found(FILE_SYSTEMS, area)[:1]
    else:
        owners, others = _found(OWNERS, area), _found(FILE_SYSTEMS, area)
    if not owners:  # blkid believes the second LUKS2 header before any file system and before swap
        owners = _found(LAST_RESORT, area)
    owners = tuple(layer for layer in owners if layer in owners[:1] or not _is_inside(layer, owners[:1]))
    others = tuple(layer for layer in others if not _is_inside(layer, owners))
    layers = tuple(_checked(layer, area) for layer in (*owners, *others))
    return tuple(sorted(layers, key=is_damaged))  # stable: a broken superblock is the weaker claim


def _found(readers: tuple[Read, ...], area: Area) -> tuple[Layer, ...]:
    return tuple(layer for read in readers if (layer := read(area)) is not None)


def _checked(layer: Layer, area: Area) -> Layer:
    """Against the container, which a file system copied to a smaller partition outgrows."""
    room = area.extent.end - layer.extent.start
    if layer.claims_size is None or layer.claims_size <= room:
        return layer
    return replace(layer, problems=(*layer.problems, missing_bytes(layer.kind, layer.claims_size, room)))


def _is_inside(layer: Layer, owners: tuple[Layer, ...]) -> bool:
    """Whether what is seen at the container's start is the content of a RAID whose metadata is at the end.

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
