"""The file systems that aligntool moves, and the programs of each: its checker, its map of used blocks, its resizer."""

from dataclasses import dataclass

from aligntool.inventory import Layer
from aligntool.units import KIB, MIB


@dataclass(frozen=True, slots=True)
class FileSystem:
    """The programs of a file system. Empty: there is none."""

    # The command that checks everything and writes nothing, but for the device; e2fsck also takes "IMAGE?offset=BYTES".
    checker: tuple[str, ...] = ()
    map_source: str = ""  # the program that lists the used blocks, or the structure that is read
    cleaner: str = ""  # repairs what an unclean shutdown left; else a mount does
    list_clearer: str = ""  # clears the list of bad blocks of the medium
    shrinkable: bool = False
    why_not_shrinkable: str = ""
    least_size: int = 0  # bytes that its resizer leaves at least
    recreate: str = ""  # makes it anew for sectors of another size


_EXT4 = FileSystem(
    checker=("e2fsck", "-f", "-n"),
    map_source="dumpe2fs",
    cleaner="e2fsck",
    list_clearer="e2fsck",
    shrinkable=True,
    recreate="mke2fs",
)
EXT = ("ext2", "ext3", "ext4")
FILE_SYSTEMS = {
    **dict.fromkeys(EXT, _EXT4),
    "xfs": FileSystem(
        checker=("xfs_repair", "-n"),
        map_source="xfs_db",
        why_not_shrinkable="XFS cannot be shrunk (xfs_growfs(8)); copy its files to another disk",
        recreate="mkfs.xfs",
    ),
    "btrfs": FileSystem(
        checker=("btrfs", "check", "--readonly"),
        map_source="partclone.btrfs",
        shrinkable=True,
        least_size=256 * MIB,  # btrfs_ioctl_resize() in the kernel's fs/btrfs/ioctl.c
    ),
    "ntfs": FileSystem(
        # ntfsfix does not count every cluster.
        checker=("ntfsresize", "--info", "--bad-sectors", "--no-progress-bar"),
        map_source="partclone.ntfs",
        list_clearer="ntfsfix",
        shrinkable=True,
        recreate="mkfs.ntfs",
    ),
    "vfat": FileSystem(
        checker=("fsck.fat", "-n"),
        map_source="the allocation table",
        cleaner="fsck.fat",
        why_not_shrinkable="no tool here shrinks a FAT",
    ),
    "exfat": FileSystem(
        checker=("fsck.exfat", "-n"),
        map_source="partclone.exfat",
        cleaner="fsck.exfat",
        why_not_shrinkable="no tool here shrinks an exFAT",
        recreate="mkfs.exfat",
    ),
    # partclone.f2fs maps file systems of mkfs.f2fs and sload.f2fs, but was not tested on one that a kernel wrote.
    "f2fs": FileSystem(checker=("fsck.f2fs", "--dry-run"), why_not_shrinkable="no tool here shrinks an F2FS"),
}
_ROUNDED = 64 * KIB  # bytes to which mkfs, resizers and partition programs round; the largest block of ext4
SHRINKABLE = frozenset(kind for kind, each in FILE_SYSTEMS.items() if each.shrinkable)


def file_system(kind: str) -> FileSystem:
    """Return the row of a file system; one without programs for any other content."""
    return FILE_SYSTEMS.get(kind, FileSystem())


def has_length(layer: Layer, length: int) -> bool:
    """Return whether a file system has `length` bytes, or fewer by no more than a tool rounds down."""
    return 0 <= length - (layer.claims_size or 0) <= max(layer.data_unit or 0, _ROUNDED)


def name_for_e2fsck(path: str, start: int) -> str:
    """Return the name by which e2fsck opens the file system at byte `start` of a disk or image, or "" if it cannot: it
    expects options after the first question mark.
    """
    return "" if "?" in path else f"{path}?offset={start}"
