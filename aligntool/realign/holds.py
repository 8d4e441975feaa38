"""What of a partition the journal keeps while the rest is copied: everything by which blkid would know it.

In: a partition's layers and its length. Out: ranges and keystones. Alone because it is a table of facts: where the
superblocks of each kind lie.

Offsets from the kernel's headers and libblkid/src/superblocks/ of util-linux. Heads and tails are taken generously:
128 KiB at either end hold every superblock but those of ZFS, and of kinds that nobody has looked into.
"""

from collections.abc import Iterable, Iterator

from aligntool.inventory import Layer, Partition
from aligntool.plan import Held
from aligntool.units import KIB, MIB, Extent, align_down, align_up

UNKNOWN = "unknown"
_END = 128 * KIB
_ZFS_LABEL = 256 * KIB  # two at either end; those at the end aligned to their own size
_UNKNOWN_HEAD = MIB // 2

# Where blkid looks for the second LUKS2 header when the first is gone (LUKS2 on-disk format 1.1, 2.1: hdr_size).
_LUKS_SECOND = tuple(16 * KIB << step for step in range(9))
_SWAP = (4086, 8182, 16374, 32758, 65526)  # the last ten bytes of the first page, for each size of page
_ANY = (0, 512, 1024, 4096, 32 * KIB, 64 * KIB)
_KEYSTONES: dict[str, tuple[int, ...]] = {
    "ext2": (1024,),
    "ext3": (1024,),
    "ext4": (1024,),
    "jbd": (1024,),
    "xfs": (0,),
    "btrfs": (64 * KIB,),
    "ntfs": (0,),
    "vfat": (0,),
    "exfat": (0,),
    "f2fs": (1024, 5120),
    "swap": _SWAP,
    "swsuspend": _SWAP,
    "crypto_LUKS": (0, *_LUKS_SECOND),
    "LVM2_member": (512, 0, 1024, 1536),
    "bcache": (4096,),
    "iso9660": (32 * KIB,),
    "squashfs": (0,),
    "bcachefs": (4096, 2 * MIB),
    "ufs": (8 * KIB, 64 * KIB, 256 * KIB),
    "VMFS": (2 * MIB,),
    "VMFS_volume_member": (MIB,),
    "linux_raid_member": (0, 4096),  # 1.1 and 1.2; 0.90 and 1.0 are at the end
}


def kind_of(partition: Partition) -> str:
    """blkid's word for what lies there; "unknown" when nothing was recognised."""
    return partition.content[0].kind if partition.content else UNKNOWN


def hold(partition: Partition, length: int, sector_size: int, more: Iterable[int] = ()) -> Held:
    """`length`: bytes of the partition when it moves. `more`: bytes whose sectors are held as well.

    The ranges are whole sectors of the table, in order and apart. What lies on the boundary of a short partition is
    clipped; a partition shorter than head and tail is held whole.
    """
    keystones = tuple(dict.fromkeys(at for at in _keystones(partition, length) if 0 <= at < length))
    ranges = [*_ends(kind_of(partition), length), *(Extent(at, 1) for at in (*keystones, *more))]
    return Held(_merged(ranges, length, sector_size), keystones)


def _ends(kind: str, length: int) -> Iterator[Extent]:
    head, tail = _END, _END
    if kind == "zfs_member":
        head, tail = 2 * _ZFS_LABEL, 3 * _ZFS_LABEL
    elif kind not in _KEYSTONES:
        head = _UNKNOWN_HEAD
    yield Extent(0, head)
    yield Extent(max(0, length - tail), tail)


def _keystones(partition: Partition, length: int) -> Iterator[int]:
    if not partition.content:
        yield from _ANY
    for layer in partition.content:
        yield from _of_layer(layer, partition.extent.start, length)


def _of_layer(layer: Layer, start: int, length: int) -> Iterator[int]:
    """Counted from `start`, the partition's first byte; with what lies inside, which is seen once the outer is gone."""
    shift = layer.extent.start - start
    if layer.kind == "linux_raid_member":
        yield from _md_first(layer.version, length)
    yield from (shift + at for at in _KEYSTONES.get(layer.kind, _ANY))
    if layer.kind == "linux_raid_member":
        yield from _md_at_the_end(length)
        yield from _ANY  # of a mirror with its superblock at the end, the file system begins here
    if layer.kind == "zfs_member":
        yield from _zfs(length)
    for inner in layer.inner:
        yield from (at for at in _of_layer(inner, start, length) if at < _END)


def _md_first(version: str | None, length: int) -> Iterator[int]:
    """Where the superblock of this version is; those of the others come after it."""
    newer, older = _md_at_the_end(length)
    places = {"1.2": 4096, "1.1": 0, "1.0": newer, "0.90": older}
    if version in places:
        yield places[version]


def _md_at_the_end(length: int) -> tuple[int, int]:
    """Version 1.0: the last 4 KiB boundary at least 8 KiB before the end. 0.90: the last whole 64 KiB. linux/md_p.h."""
    return align_down(length, 4 * KIB) - 8 * KIB, align_down(length, 64 * KIB) - 64 * KIB


def _zfs(length: int) -> Iterator[int]:
    """The pairs and every uberblock of all four labels; any four uberblocks are enough for blkid (zfs.c)."""
    end = align_down(length, _ZFS_LABEL)
    for label in (0, _ZFS_LABEL, end - 2 * _ZFS_LABEL, end - _ZFS_LABEL):
        yield label + 16 * KIB
        yield from range(label + 128 * KIB, label + _ZFS_LABEL, KIB)


def _merged(ranges: Iterable[Extent], length: int, sector_size: int) -> tuple[Extent, ...]:
    merged: list[Extent] = []
    for one in sorted(ranges):
        start = align_down(max(0, one.start), sector_size)
        end = min(align_up(one.end, sector_size), length)
        if start >= end:
            continue
        if merged and start <= merged[-1].end:
            start = merged[-1].start
            end = max(end, merged[-1].end)
            merged.pop()
        merged.append(Extent(start, end - start))
    return tuple(merged)
