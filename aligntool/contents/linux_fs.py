"""ext2/3/4, XFS, btrfs, F2FS and swap: superblocks to layers."""

import hashlib
from bisect import bisect_left
from dataclasses import replace

from aligntool.formats.numbers import be16, be32, be64, le16, le32, le64, text_at, uuid_at
from aligntool.formats.reader import MAY_BE_SHARED, Area, checksum_problem, crc32_seeded, crc32c, crc32c_inverted, xxh64
from aligntool.inventory import Layer
from aligntool.units import KIB, is_power_of_two

# btrfs: the first superblock, at 64 KiB.
#
# The trees that place chunks are not needed for alignment: chunks start at multiples of 64 KiB of the device, and
# inside them btrfs uses its sector size. Layout: linux/include/uapi/linux/btrfs_tree.h, struct btrfs_super_block.


def read_btrfs(area: Area) -> Layer | None:
    superblock = area.read(64 * KIB, 4 * KIB)
    if len(superblock) < 4 * KIB or superblock[64:72] != b"_BHRfS_M":
        return None
    sector = le32(superblock, 144)
    if not is_power_of_two(sector) or not 512 <= sector <= 64 * KIB:
        return None
    claims = le64(superblock, 209)  # this device's share (dev_item.total_bytes), not the sum over all devices
    return replace(
        area.layer("btrfs", claims, sector), label=text_at(superblock, 299, 256), uuid=uuid_at(superblock, 32),
        problems=_btrfs_problems(superblock),
        unclean="needs its log tree replayed (log root set)" if le64(superblock, 96) else None,
    )  # fmt: skip


def _btrfs_problems(superblock: bytes) -> tuple[str, ...]:
    covered, stored = superblock[32:], superblock[:32]
    of = "the btrfs superblock"
    match le16(superblock, 196):
        case 0:  # BTRFS_CSUM_TYPE_CRC32, then _XXHASH, _SHA256, _BLAKE2
            return checksum_problem(of, le32(stored, 0), crc32c_inverted(covered))
        case 1:
            return checksum_problem(of, le64(stored, 0), xxh64(covered))
        case 2:
            return checksum_problem(of, stored.hex(), hashlib.sha256(covered).hexdigest())
        case 3:
            return checksum_problem(of, stored.hex(), hashlib.blake2b(covered, digest_size=32).hexdigest())
        case unknown:
            return (f"the btrfs superblock's checksum type {unknown} is not known",)


# ext2, ext3, ext4 and their external journal.
#
# Layout: linux/fs/ext4/ext4.h, struct ext4_super_block; the superblock lies at byte 1024.

COMPAT_HAS_JOURNAL = 0x4
INCOMPAT_FILETYPE, INCOMPAT_RECOVER, INCOMPAT_JOURNAL_DEV, INCOMPAT_META_BG = 0x2, 0x4, 0x8, 0x10
INCOMPAT_64BIT, INCOMPAT_MMP = 0x80, 0x100
RO_COMPAT_EXT3 = 0x7  # sparse_super, large_file, btree_dir: all that ext2 and ext3 may have
RO_COMPAT_METADATA_CSUM, RO_COMPAT_ORPHAN_PRESENT = 0x400, 0x10000
STATE_VALID, STATE_ERROR = 0x1, 0x2
FLAGS_TEST_FILESYS = 0x4


def read_ext(area: Area) -> Layer | None:
    superblock = area.read(1024, 1024)
    if len(superblock) < 1024 or le16(superblock, 0x38) != 0xEF53:
        return None
    log_block, revision = le32(superblock, 0x18), le32(superblock, 0x4C)
    if log_block > 6 or revision > 1 or not le32(superblock, 0x20):  # blocks of at most 64 KiB
        return None  # a two-byte magic alone is weak evidence
    block = 1024 << log_block
    incompat, ro_compat = le32(superblock, 0x60), le32(superblock, 0x64)
    high = le32(superblock, 0x150) if incompat & INCOMPAT_64BIT else 0
    claims = (high << 32 | le32(superblock, 4)) * block
    if not claims:
        return None
    kind = _ext_kind(superblock)
    layer = replace(
        area.layer(kind, claims, block), version=f"{revision}.{le16(superblock, 0x3E)}",
        label=text_at(superblock, 0x78, 16), uuid=uuid_at(superblock, 0x68),
    )  # fmt: skip
    if ro_compat & RO_COMPAT_METADATA_CSUM:
        wrong = checksum_problem("the ext4 superblock", le32(superblock, 0x3FC), crc32c(superblock[:0x3FC]))
        layer = replace(layer, problems=wrong)
    if kind == "jbd":
        return layer
    return replace(
        layer, stripe_unit=le16(superblock, 0x164) * block, stripe_width=le32(superblock, 0x170) * block,
        unclean=_mmp_unclean(area, superblock, block) or _ext_unclean(superblock),
    )  # fmt: skip


def _ext_kind(superblock: bytes) -> str:
    has_journal = le32(superblock, 0x5C) & COMPAT_HAS_JOURNAL
    incompat, ro_compat = le32(superblock, 0x60), le32(superblock, 0x64)
    if incompat & INCOMPAT_JOURNAL_DEV:
        return "jbd"
    if le32(superblock, 0x160) & FLAGS_TEST_FILESYS:
        return "ext4dev"
    known = INCOMPAT_FILETYPE | INCOMPAT_META_BG | (INCOMPAT_RECOVER if has_journal else 0)
    if incompat & ~known or ro_compat & ~RO_COMPAT_EXT3:
        return "ext4"
    return "ext3" if has_journal else "ext2"


def _mmp_unclean(area: Area, superblock: bytes, block: int) -> str | None:
    """Return the reason if another machine has it mounted or may have (multiple mount protection), otherwise None.

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
    return f"it is mounted on {node}, or that machine stopped without unmounting it (MMP); unmount it there first"


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


# f2fs: the first of two superblocks, at byte 1024.
#
# Layout: linux/include/linux/f2fs_fs.h, struct f2fs_super_block.

F2FS_MAGIC = 0xF2F52010
COPIES = (1024, 4096 + 1024)
CP_UMOUNT_FLAG, CP_ERROR_FLAG = 0x1, 0x8


def read_f2fs(area: Area) -> Layer | None:
    copies = ((at, area.read(at, 4096 - 1024)) for at in COPIES)
    marked = (pair for pair in copies if len(pair[1]) == 4096 - 1024 and le32(pair[1], 0) == F2FS_MAGIC)
    at, superblock = next((pair for pair in marked if 9 <= le32(pair[1], 16) <= 16), (0, b""))
    if not superblock:
        return None
    block = 1 << le32(superblock, 16)
    several_devices = superblock[0x899] != 0  # devs[0].path: the block count is the sum over all devices
    claims = None if several_devices else le64(superblock, 0x24) * block
    lost = ("the first f2fs superblock is missing, the second is used",) if at != COPIES[0] else ()
    return replace(
        area.layer("f2fs", claims or None, block), version=f"{le16(superblock, 4)}.{le16(superblock, 6)}",
        label=text_at(superblock, 0x7C, 1024, "utf-16-le"), uuid=uuid_at(superblock, 0x6C),
        data_start=area.start + le32(superblock, 0x5C) * block, problems=(*lost, *_f2fs_problems(superblock)),
        unclean=_f2fs_unclean(area, superblock, block),
    )  # fmt: skip


def _f2fs_unclean(area: Area, superblock: bytes, block: int) -> str | None:
    """Return why the file system is not clean by the newer of its two checkpoints. A valid checkpoint is a pack whose
    first and last block have the same version.
    """
    first, per_segment = le32(superblock, 0x4C), 1 << min(le32(superblock, 0x14), 16)
    newest, flags = -1, CP_UMOUNT_FLAG
    for number in (first, first + per_segment):
        header = area.read(number * block, block)
        end = number + le32(header, 136) - 1
        version = le64(header, 0)
        if len(header) == block and le64(area.read(end * block, 8), 0) == version and version > newest:
            newest, flags = version, le32(header, 132)
    if flags & CP_ERROR_FLAG:
        return "has errors that the kernel detected (checkpoint error flag)"
    return None if flags & CP_UMOUNT_FLAG else "was not unmounted cleanly (checkpoint without unmount flag)"


def _f2fs_problems(superblock: bytes) -> tuple[str, ...]:
    at = le32(superblock, 0x20)
    if not at:
        return ()  # mkfs.f2fs before 1.13 wrote none
    if at % 4 or at + 4 > len(superblock):
        return (f"the f2fs superblock states byte {at} for its checksum, which is outside the superblock",)
    return checksum_problem("the f2fs superblock", le32(superblock, at), crc32_seeded(superblock[:at], F2FS_MAGIC))


# Swap space, and the image of a suspended system in it.
#
# The signature is at the end of the first page, in the page size of the machine that made it, so it is at one of
# five offsets. Layout: linux/include/linux/swap.h, union swap_header.

PAGES = tuple(4 * KIB << step for step in range(5))
HEADER_AT = 1024
TUX_ON_ICE = b"\xed\xc3\x02\xe9\x98\x56\xe5\x0c"
SUSPENDED = (b"S1SUSPEND", b"S2SUSPEND", b"ULSUSPEND", b"LINHIB0001")


def read_swap(area: Area) -> Layer | None:
    if area.size < 40 * KIB:
        return None
    marks = {page: area.head[page - 10 : page] for page in PAGES}
    if area.head.startswith(TUX_ON_ICE):
        page = next((page for page, mark in marks.items() if mark in (b"SWAPSPACE2", b"SWAP-SPACE")), PAGES[0])
        return _swap_layer(area, "swsuspend", "tuxonice", page)
    for page, mark in marks.items():
        if mark == b"SWAPSPACE2":
            return _swap_layer(area, "swap", "1", page) if _last_page(area.head) else None
        if mark == b"SWAP-SPACE":
            return Layer(kind="swap", extent=area.extent, version="0", data_start=area.start + page, data_unit=page)
        for suspended in SUSPENDED:
            if mark.startswith(suspended):
                return _swap_layer(area, "swsuspend", suspended.decode().lower(), page)
    return None


def _swap_layer(area: Area, kind: str, version: str, page: int) -> Layer:
    header = area.head[HEADER_AT : HEADER_AT + 512]
    last_page = _last_page(area.head)
    layer = replace(
        area.layer(kind, (last_page + 1) * page if last_page else None, page), version=version,
        data_start=area.start + page,
        unclean=f"holds a hibernated system ({version.upper()})" if kind == "swsuspend" else None,
    )  # fmt: skip
    if any(header[172:180]):  # as in blkid: with nonzero padding, label and UUID are not valid
        return layer
    return replace(layer, label=text_at(header, 28, 16), uuid=uuid_at(header, 12))


def _last_page(head: bytes) -> int:
    """Return the number of the last page, or 0 if the header is not of version 1 in either byte order."""
    return swap_number(head, 4)


def swap_number(head: bytes, at: int) -> int:
    """Return a field of a swap header of version 1, in either byte order; 0 if it is of another version."""
    number = {1: le32, 1 << 24: be32}.get(le32(head, HEADER_AT))
    return number(head, HEADER_AT + at) if number else 0


# Whether the log of an XFS was closed by an unmount.
#
# Only the log itself shows it: each of its 512-byte blocks has the number of the cycle in which it was written,
# the head is where that number changes, and the last record before the head of a clean log has one operation, the
# unmount. Layout: linux/fs/xfs/libxfs/xfs_log_format.h; the search: xlog_find_head() and xlog_check_unmount_rec()
# in linux/fs/xfs/xfs_log_recover.c.

BLOCK = 512  # the unit of the log, whatever the sector size
XFS_LOG_MAGIC = b"\xfe\xed\xba\xbe"
CYCLE_DATA = 32 * KIB  # data bytes whose cycle numbers fit into one header block
LOOK_BACK = 256 * KIB // BLOCK + 8  # blocks of the largest record and its headers
UNMOUNT = 0x20  # XLOG_UNMOUNT_TRANS, in oh_flags of an operation


def xfs_log_unclean(area: Area, superblock: bytes) -> str | None:
    """Return why the file system is not clean. None: it was unmounted, or the state is unknown, because the log is
    external, truncated or unwritten.
    """
    block, number, shift = be32(superblock, 4), be64(superblock, 48), superblock[124]
    # A block number has the allocation group in its upper bits; that of an external log is 0.
    start = ((number >> shift) * be32(superblock, 84) + (number & (1 << shift) - 1)) * block
    count = be32(superblock, 96) * block // BLOCK
    if not start or count <= LOOK_BACK:
        return None
    first, last = _cycle(area, start), _cycle(area, start + (count - 1) * BLOCK)
    if not first:
        return None
    head = 0  # the first block with another cycle than the first block
    if first != last:
        head = bisect_left(range(count - 1), True, key=lambda at: _cycle(area, start + at * BLOCK) != first)
    before = _blocks_before(area, start, count, head)
    at = before.rfind(XFS_LOG_MAGIC)
    while at > 0 and at % BLOCK:  # a magic in the middle of a block is data
        at = before.rfind(XFS_LOG_MAGIC, 0, at)
    if at < 0 or at % BLOCK:
        return "needs its log replayed (no record where it ends)"
    return None if _is_unmount(before[at:]) else "needs its log replayed (the last record is not an unmount)"


def _cycle(area: Area, at: int) -> int:
    """Return the cycle in which a block was written; in a record header it follows the magic."""
    data = area.read(at, 8)
    return be32(data, 4 if data[:4] == XFS_LOG_MAGIC else 0)


def _blocks_before(area: Area, start: int, count: int, head: int) -> bytes:
    """Return the last LOOK_BACK blocks before the head; before the start of the log come the blocks at its end."""
    direct = min(head, LOOK_BACK)
    wrapped = LOOK_BACK - direct
    data = area.read(start + (head - direct) * BLOCK, direct * BLOCK)
    return area.read(start + (count - wrapped) * BLOCK, wrapped * BLOCK) + data if wrapped else data


def _is_unmount(record: bytes) -> bool:
    """Return whether the bytes are exactly one record, with the unmount as its only operation."""
    version, length, operations, size = (be32(record, at) for at in (8, 12, 40, 320))
    headers = -(-size // CYCLE_DATA) if version & 2 and size > CYCLE_DATA else 1
    whole = headers * BLOCK + -(-length // BLOCK) * BLOCK == len(record)
    operation = record[headers * BLOCK : headers * BLOCK + 12]
    return whole and operations == 1 and len(operation) == 12 and bool(operation[9] & UNMOUNT)


# XFS, and external XFS logs.
#
# Everything but the checksum is big-endian. Layout: linux/fs/xfs/libxfs/xfs_format.h, struct xfs_dsb;
# xfs_log_format.h, struct xlog_rec_header.

XFS_MAGIC = b"XFSB"
INCOMPAT_ZONED = 0x200  # Linux 6.15; sb_rtstart


def read_xfs(area: Area) -> Layer | None:
    superblock = area.head[: 32 * 1024]
    if superblock[:4] != XFS_MAGIC or len(superblock) < 512 or not _is_consistent(superblock):
        return None
    block = be32(superblock, 4)
    claims = None if _has_zones(superblock) else be64(superblock, 8) * block
    return replace(
        area.layer("xfs", claims, block), label=text_at(superblock, 108, 12), uuid=uuid_at(superblock, 32),
        stripe_unit=be32(superblock, 184) * block, stripe_width=be32(superblock, 188) * block,
        problems=_xfs_problems(superblock), unclean=xfs_log_unclean(area, superblock),
    )  # fmt: skip


def _has_zones(superblock: bytes) -> bool:
    """Return whether a section of zones with the data of files may follow the blocks that the superblock counts."""
    return be16(superblock, 100) & 0xF == 5 and bool(be32(superblock, 216) & INCOMPAT_ZONED)


def _is_consistent(superblock: bytes) -> bool:
    """Return whether the sizes match their logarithms, and the groups match the blocks, as mount and blkid require."""
    sizes = be32(superblock, 4), be16(superblock, 102), be16(superblock, 104)  # of a block, a sector, an inode
    logarithms, known = superblock[120:123], (range(9, 17), range(9, 16), range(8, 12))
    blocks, group, groups = be64(superblock, 8), be32(superblock, 84), be32(superblock, 88)
    fit = all(log in logs and size == 1 << log for size, log, logs in zip(sizes, logarithms, known, strict=True))
    return fit and groups > 0 and (groups - 1) * group < blocks <= groups * group


def _xfs_problems(superblock: bytes) -> tuple[str, ...]:
    if be16(superblock, 100) & 0xF != 5:
        return ()
    sector = superblock[: be16(superblock, 102)]
    blanked = sector[:224] + bytes(4) + sector[228:]
    return checksum_problem("the XFS superblock", le32(sector, 224), crc32c_inverted(blanked))


def read_xfs_log(area: Area) -> Layer | None:
    """Return an external log. It has no superblock: search its first 64 KiB for a record header."""
    if area.head[:4] == XFS_MAGIC:
        return None  # any records belong to its internal log
    for at in range(0, min(len(area.head), 64 * 1024), 512):
        if area.head[at : at + 4] != XFS_LOG_MAGIC:
            continue
        version, length = be32(area.head, at + 8), be32(area.head, at + 12)
        if version in (1, 2) and 0 < length < 1 << 31 and be32(area.head, at + 300) in (1, 2, 3):  # XLOG_FMT_
            return Layer(kind="xfs_external_log", extent=area.extent)
    return None
