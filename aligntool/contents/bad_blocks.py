"""Count the blocks that a file system lists as bad places of its medium: after a move, such a list is wrong."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from aligntool.contents.exfat import exfat_table
from aligntool.contents.ext import INCOMPAT_64BIT
from aligntool.contents.fat import BAD_CLUSTER, FIRST_CLUSTER, fat_entries, parse_fat_boot_sector
from aligntool.contents.ntfs import CannotFollow, bad_clusters, open_ntfs
from aligntool.contents.swap import swap_number
from aligntool.formats.numbers import le16, le32
from aligntool.formats.reader import LONGEST_READ, Area


def bad_blocks(area: Area, kind: str) -> int:
    """Return how many blocks the content of this kind lists as bad, 0 for a kind without a list. Raises OSError."""
    match kind:
        case "ext2" | "ext3" | "ext4":
            return _in_ext(area)
        case "vfat":
            return _in_fat(area)
        case "exfat":
            return _in_exfat(area)
        case "ntfs":
            with suppress(CannotFollow):  # ntfsresize, which checks the volume before a move, rejects it
                return bad_clusters(open_ntfs(area))
        case "swap":
            return swap_number(area.head, 8)  # nr_badpages in union swap_header
    return 0


def _in_ext(area: Area) -> int:
    """Return the length of inode 1, which consists of the bad blocks: its inode is the first in the table of group 0.

    linux/fs/ext4/ext4.h, EXT4_BAD_INO, struct ext4_group_desc, struct ext4_inode.
    """
    superblock = area.read(1024, 1024)
    block = 1024 << min(le32(superblock, 0x18), 6)
    group = area.read((1024 // block + 1) * block, 64)  # the descriptors follow the block with the superblock
    long = le32(superblock, 0x60) & INCOMPAT_64BIT and le16(superblock, 0xFE) >= 64
    table = le32(group, 8) | (le32(group, 0x28) << 32 if long else 0)
    inode = area.read(table * block, 128)
    return max(le32(inode, 4) // block, 1) if le32(inode, 28) else 0


def _in_fat(area: Area) -> int:
    boot = parse_fat_boot_sector(area.head[:512])
    if boot is None:
        return 0
    length = -(-(boot.clusters + FIRST_CLUSTER) * boot.bits // 8)
    entries = fat_entries(boot.bits, _pieces(area, boot.reserved * boot.sector, length))
    return sum(map(BAD_CLUSTER[boot.bits].__eq__, islice(entries, FIRST_CLUSTER, boot.clusters + FIRST_CLUSTER)))


def _in_exfat(area: Area) -> int:
    table = exfat_table(area)
    # A search is much faster than a comparison of each entry, of which a large volume has 100 million.
    marked = (piece for piece in _pieces(area, table.start, table.length) if b"\xf7\xff\xff\xff" in piece)
    return sum(map(BAD_CLUSTER[32].__eq__, fat_entries(32, marked)))


def _pieces(area: Area, start: int, length: int) -> Iterator[bytes]:
    """Yield the bytes in pieces, up to the first one that is cut off."""
    for done in range(0, length, LONGEST_READ):
        size = min(LONGEST_READ, length - done)
        piece = area.read(start + done, size)
        if len(piece) < size:
            return
        yield piece
