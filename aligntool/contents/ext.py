"""ext2, ext3, ext4 and their external journal."""

import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile

from aligntool.commands import ByHand
from aligntool.contents.kind import (
    Answers,
    Kind,
    NewArray,
    OnArray,
    Read,
    Shrinker,
    contains_no_device,
    in_whole_blocks,
)
from aligntool.contents.signatures import magic
from aligntool.contents.used_blocks import NoMap, used_between
from aligntool.device import Medium
from aligntool.formats.numbers import le16, le32, le64, text_at, uuid_at
from aligntool.formats.reader import MAY_BE_SHARED, Area, checksum_problem, crc32c
from aligntool.inventory import Layer
from aligntool.units import GIB, KIB, Extent, format_size

# Layout: linux/fs/ext4/ext4.h, struct ext4_super_block; the superblock lies at byte 1024.

COMPAT_HAS_JOURNAL = 0x4
INCOMPAT_FILETYPE = 0x2
INCOMPAT_RECOVER = 0x4
INCOMPAT_JOURNAL_DEV = 0x8
INCOMPAT_META_BG = 0x10
INCOMPAT_64BIT = 0x80
INCOMPAT_MMP = 0x100
RO_COMPAT_EXT3 = 0x7  # sparse_super, large_file, btree_dir: all that ext2 and ext3 may have
RO_COMPAT_METADATA_CSUM = 0x400
RO_COMPAT_ORPHAN_PRESENT = 0x10000
STATE_VALID = 0x1
STATE_ERROR = 0x2
FLAGS_TEST_FILESYS = 0x4


def read_ext(area: Area) -> Layer | None:
    superblock = area.read(1024, 1024)
    if len(superblock) < 1024 or le16(superblock, 0x38) != 0xEF53:
        return None
    log_block = le32(superblock, 0x18)
    revision = le32(superblock, 0x4C)
    if log_block > 6 or revision > 1 or not le32(superblock, 0x20):  # blocks of at most 64 KiB
        return None  # a two-byte magic alone is weak evidence
    block = 1024 << log_block
    incompat = le32(superblock, 0x60)
    ro_compat = le32(superblock, 0x64)
    high = le32(superblock, 0x150) if incompat & INCOMPAT_64BIT else 0
    claims = (high << 32 | le32(superblock, 4)) * block
    if not claims:
        return None
    kind = _ext_kind(superblock)
    layer = replace(
        area.layer(kind, claims, block),
        version=f"{revision}.{le16(superblock, 0x3E)}",
        label=text_at(superblock, 0x78, 16),
        uuid=uuid_at(superblock, 0x68),
    )
    if ro_compat & RO_COMPAT_METADATA_CSUM:
        wrong = checksum_problem("the ext4 superblock", le32(superblock, 0x3FC), crc32c(superblock[:0x3FC]))
        layer = replace(layer, problems=wrong)
    if kind == "jbd":
        return layer
    return replace(
        layer,
        stripe_unit=le16(superblock, 0x164) * block,
        stripe_width=le32(superblock, 0x170) * block,
        unclean=_mmp_unclean(area, superblock, block) or _ext_unclean(superblock),
    )


def _ext_kind(superblock: bytes) -> str:
    has_journal = le32(superblock, 0x5C) & COMPAT_HAS_JOURNAL
    incompat = le32(superblock, 0x60)
    ro_compat = le32(superblock, 0x64)
    if incompat & INCOMPAT_JOURNAL_DEV:
        return "jbd"
    if le32(superblock, 0x160) & FLAGS_TEST_FILESYS:
        return "ext4dev"
    known = INCOMPAT_FILETYPE | INCOMPAT_META_BG | (INCOMPAT_RECOVER if has_journal else 0)
    if incompat & ~known or ro_compat & ~RO_COMPAT_EXT3:
        return "ext4"
    return "ext3" if has_journal else "ext2"


def _mmp_unclean(area: Area, superblock: bytes, block: int) -> str | None:
    """Return the reason if another machine has it mounted or may have (multiple mount protection), otherwise
    None.

    linux/fs/ext4/mmp.c; include/linux/ext4.h, struct mmp_struct.
    """
    if not le32(superblock, 0x60) & INCOMPAT_MMP:
        return None
    found = area.read(le64(superblock, 0x168) * block, 128)
    if len(found) < 128 or le32(found, 0) != 0x004D4D50:  # EXT4_MMP_MAGIC
        return "its block for multiple mount protection (MMP) is damaged"
    node = text_at(found, 16, 64) or "an unnamed machine"
    match le32(found, 4):
        case 0xFF4D4D50:  # EXT4_MMP_SEQ_CLEAN
            return f"{MAY_BE_SHARED} (MMP)"
        case 0xE24D4D50:  # EXT4_MMP_SEQ_FSCK
            return f"it is being checked by {node}, or the check was interrupted (MMP)"
    return (
        f"it is mounted on {node}, or that machine stopped without unmounting it (MMP); unmount it there"
        " first"
    )


NEEDS_REPLAY = "needs its journal replayed (recovery flag set)"


def _ext_unclean(superblock: bytes) -> str | None:
    state = le16(superblock, 0x3A)
    if le32(superblock, 0x60) & INCOMPAT_RECOVER:
        return NEEDS_REPLAY
    if state & STATE_ERROR:
        return "has errors that the kernel detected (error flag set)"
    if not state & STATE_VALID:
        return "was not unmounted cleanly (valid flag clear)"
    if le32(superblock, 0xE8) or le32(superblock, 0x64) & RO_COMPAT_ORPHAN_PRESENT:
        return "has deleted files that are not yet released (orphan list)"
    return None


# Used blocks of ext2, ext3 and ext4, from the free ones that dumpe2fs lists. dumpe2fs accepts an offset into
# an image: neither root nor a loop device is required. Clusters of bigalloc are listed by their first block,
# groups without a bitmap (BLOCK_UNINIT) as the library computes them.

_DUMPE2FS = "dumpe2fs"

_FREE_BLOCKS = "  Free blocks: "


def _used_blocks(medium: Medium, layer: Layer, shrunk: bool) -> Generator[Extent]:
    with medium.at_offset() as disk, disk.lines_of(_DUMPE2FS, disk.name) as lines:
        yield from used_in_dumpe2fs(lines, layer.claims_size or 0)


def _least_length(medium: Medium) -> int:
    """Return the bytes that resize2fs leaves at least; 0 if it does not print them. It writes nothing for
    that, and opens the disk only for reading (resize/main.c, print_min_size).
    """
    with suppress(NoMap, OSError), medium.at_offset() as disk:
        with disk.lines_of("resize2fs", "-P", disk.name) as lines:
            found = re.search(r": (\d+)$", "".join(lines).rstrip())
        block = KIB << min(le32(medium.read(1024 + 24, 4), 0), 6)  # s_log_block_size
        return int(found[1]) * block if found else 0
    return 0


def used_in_dumpe2fs(report: Iterable[str], claims: int) -> Iterator[Extent]:
    """Yield the used runs from the output of dumpe2fs. Raises NoMap if it is inconsistent.

    The number of listed free blocks must be the superblock's.
    """
    lines = iter(report)
    header = "".join(takewhile(lambda line: not line.startswith("Group 0:"), lines))
    block, count, expected = (
        _header_number(header, name) for name in ("Block size", "Block count", "Free blocks")
    )
    cluster = _header_number(header, "Cluster size", missing=block)
    if count * block != claims or cluster % block:
        raise NoMap(f"{_DUMPE2FS} counts {count} blocks of {block} bytes, but the superblock {claims} bytes")
    lists = (line.removeprefix(_FREE_BLOCKS).split(",") for line in lines if line.startswith(_FREE_BLOCKS))
    items = (item.strip().partition("-") for items in lists for item in items)
    runs = (_parse_run(first, last or first, cluster // block) for first, _, last in items if first)
    free = ((first, min(end, count)) for first, end in runs)  # the last cluster may be cut short
    listed = yield from used_between(free, count, block, _DUMPE2FS)
    if listed != expected:
        raise NoMap(f"{_DUMPE2FS} lists {listed} free blocks, the superblock counts {expected}")


def _parse_run(first: str, last: str, ratio: int) -> tuple[int, int]:
    if not (first.isdecimal() and last.isdecimal()) or int(first) > int(last):
        raise NoMap(f"{_DUMPE2FS} prints {first!r}-{last!r}, which is not a run of blocks")
    return int(first), int(last) + ratio


def _header_number(report: str, name: str, *, missing: int | None = None) -> int:
    found = re.search(rf"^{name}: +(\d+)$", report, re.MULTILINE)
    if found:
        return int(found[1])
    if missing is None:
        raise NoMap(f"{_DUMPE2FS} does not print its {name.lower()}")
    return missing


def _bad_blocks(area: Area) -> int:
    """Return the length of inode 1, which consists of the bad blocks: its inode is the first in the table of
    group 0.

    linux/fs/ext4/ext4.h, EXT4_BAD_INO, struct ext4_group_desc, struct ext4_inode.
    """
    superblock = area.read(1024, 1024)
    block = 1024 << min(le32(superblock, 0x18), 6)
    group = area.read((1024 // block + 1) * block, 64)  # the descriptors follow the block with the superblock
    long = le32(superblock, 0x60) & INCOMPAT_64BIT and le16(superblock, 0xFE) >= 64
    table = le32(group, 8) | (le32(group, 0x28) << 32 if long else 0)
    inode = area.read(table * block, 128)
    return max(le32(inode, 4) // block, 1) if le32(inode, 28) else 0


# On an array. mke2fs takes stripes in blocks.

_LONGEST_LABEL = 16  # bytes
_LARGE = GIB // 2  # smaller ones get an inode for every 4 KiB: mke2fs.conf, "small"
_INODE_RATIO = 4 * KIB
_LARGEST_STRIDE = 0xFFFF  # s_raid_stride has 16 bits, and mke2fs truncates larger values
_SUPERBLOCK = KIB
_TIME = 0x2C  # s_mtime
_COUNT = 0x34  # s_mnt_count (and s_magic)
_PLACE = 0x88  # s_last_mounted


def _options(array: NewArray) -> Iterator[str]:
    """Yield the options of mke2fs(8), which would ask if it found the content of a former array at the same
    place.
    """
    yield from ("-F", "-U", array.uuid, "-L", array.name[:_LONGEST_LABEL], "-b", str(array.block))
    if array.inode_size:
        yield from ("-I", str(array.inode_size))
    width = array.chunk * array.data // array.block if array.wants_stripes else 0
    # Both are given: for an omitted value mke2fs takes what the device reports, before 1.47.3 the width on
    # flash too.
    stripes = f"stride={array.chunk // array.block},stripe_width={width}"
    yield from ("-E", stripes if array.discards else f"{stripes},nodiscard")


def _notes(array: NewArray) -> Iterator[str]:
    """Yield the stripe settings. A stripe width makes ext4 collect whole stripes, which saves reads on parity
    levels and seeks on rotating disks; on flash without parity it only slows the allocator (mke2fs.c,
    "set_raid_stripe").
    """
    width = "a stripe width" if array.wants_stripes else "no stripe width, which slows its allocator on flash"
    if array.chunk:
        yield f"ext4: a stride of one chunk and {width}"
    else:
        yield "ext4: no stride, because a RAID1 has no chunk"


def _chunk_problem(array: NewArray) -> str:
    if array.chunk // array.block > _LARGEST_STRIDE:
        return f"a chunk of {format_size(array.chunk)} is too large for the stride of ext4"
    return ""


def _sizes_in(head: bytes) -> tuple[int | None, int | None]:
    """Return s_inode_size, which revision 0 lacks; a log of its own is not requested."""
    block = head[_SUPERBLOCK:]
    has_size = len(block) >= KIB and le16(block, 0x38) == 0xEF53 and le32(block, 0x4C)
    return le16(block, 0x58) if has_size else None, None


def _was_never_mounted(head: bytes) -> bool:
    block = head[_SUPERBLOCK:]
    used = le32(block, _TIME) or le16(block, _COUNT) or any(block[_PLACE : _PLACE + 1])
    return le16(block, 0x38) == 0xEF53 and not used


_ON_ARRAY = OnArray(
    options=_options,
    notes=_notes,
    # mke2fs refuses inodes as long as the space for which it makes one: mke2fs.conf(5), inode_ratio.
    inode_sizes=lambda block: (128, min(block, 4 * KIB)),
    least_size=lambda array: _LARGE if (array.inode_size or 0) >= _INODE_RATIO else 0,
    if_too_small="omit inode_size",
    chunk_problem=_chunk_problem,
    sizes_in=_sizes_in,
    was_never_mounted=_was_never_mounted,
)

# The answers of e2fsck(8).

# What e2fsck prints, with exit code 4, if only the counts of blocks and inodes of users, groups or projects
# are wrong (e2fsprogs, lib/support/mkquota.c), which mkfs.ext4 -O quota -d leaves so: it copies the files
# after it has counted. Bitmaps and files are right, and Linux mounts it.
_QUOTA_USAGE = (
    r"(?:e2fsck \d\S* \(\S+\)|Pass \d: Checking [a-z ,]+"
    r"|\[QUOTA WARNING\] Usage inconsistent for ID \d+: ?actual \(-?\d+, -?\d+\) != expected \(-?\d+, -?\d+\)"
    r"|Update quota info for quota type \d\? no"
    r"|.*: \*+ WARNING: Filesystem still has errors \*+|.*: \d+/\d+ files \(\S+ non-contiguous\), \d+/\d+"
    r" blocks)$"
)
_LEFT_UNCORRECTED = 4
_NOT_CHECKED = (8, 12)  # operational error, alone or with "errors left uncorrected"


def _journal_elsewhere(read: Read) -> str:
    """Return that a file system has a journal (s_feature_compat) that is no inode of its own
    (s_journal_inum); e2fsck reports in many ways that it does not find it.
    """
    superblock = read(1024, 1024)
    is_elsewhere = superblock[0x5C] & COMPAT_HAS_JOURNAL and not any(superblock[0xE0:0xE4])
    return "its journal is on another device" if is_elsewhere else ""


_ANSWERS = Answers(
    harmless=(_LEFT_UNCORRECTED, _QUOTA_USAGE),
    # For a feature that it does not know, or the version of a character encoding. With another exit code it
    # may be the name of a file that is damaged.
    unable=r".+ has unsupported (?:feature\(s\)|encoding): ",
    unable_codes=_NOT_CHECKED,
    elsewhere=_journal_elsewhere,
)


def _least(output: str, read: Read) -> int:
    """Return what resize2fs -P prints: "Estimated minimum size of the filesystem: N", in blocks
    (resize/main.c).
    """
    return int(output.split()[-1]) * (KIB << le32(read(1024 + 24, 4), 0))  # s_log_block_size


# resize2fs(8) requires a check first; e2fsck -p repairs only what is safe, and the plan found the file system
# clean.
_SHRINKER = Shrinker(
    check=lambda device, length: (("resize2fs", "-P", device),),
    shrink=lambda device, folder, length: (
        ("e2fsck", "-f", "-p", device),
        ("resize2fs", device, f"{length // KIB}K"),
    ),
    verify=("e2fsck", "-f", "-n"),
    least=_least,
    uses_unwritten=True,
)


def name_for_e2fsck(path: str, start: int) -> str:
    """Return the name by which e2fsck opens the file system at byte `start` of a disk or image, or "" if it
    cannot: it expects options after the first question mark.
    """
    return "" if "?" in path else f"{path}?offset={start}"


_EXT2 = Kind(
    "ext2",
    checker=("e2fsck", "-f", "-n"),
    name_in_image=name_for_e2fsck,
    answers=_ANSWERS,
    cleaning=lambda layer: (ByHand.UNCLEAN, "e2fsck"),
    list_clearer="e2fsck",
    unsharer="tune2fs",
    recreator="mke2fs",
    shortener="resize2fs",
    is_mountable=True,
    is_checked_at_boot=True,
    map_source=_DUMPE2FS,
    used_blocks=_used_blocks,
    least_length=_least_length,
    shrinker=_SHRINKER,
    works_anywhere=True,
    leaves_first_sector=True,
    bad_blocks=_bad_blocks,
    smallest_unit=in_whole_blocks,
    is_seen_through=contains_no_device,
    starts_extlinux=True,
    states_length=True,
)
EXT = (
    _EXT2,
    replace(_EXT2, name="ext3"),
    replace(_EXT2, name="ext4", maker="mkfs.ext4", mount_options=("noatime",), on_array=_ON_ARRAY),
)
JOURNAL = Kind("jbd", is_seen_through=contains_no_device)
TEST = Kind("ext4dev", unsharer="tune2fs", is_seen_through=contains_no_device)
# Any of them, by the name that its signature has.
ANY = Kind(
    "ext",
    readers=(read_ext,),
    signatures=(magic("ext", b"\x53\xef", heads=(KIB + 56,)),),
    is_seen_through=contains_no_device,
)
