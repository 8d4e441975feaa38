"""ext2, ext3, ext4 and their external journal.

In: the area of a partition. Out: its layer, with the kind told from the feature flags as blkid does it (there
is no field that names it). Layout: linux/fs/ext4/ext4.h, struct ext4_super_block; the superblock lies at byte
1024.
"""

from aligntool.inventory import Layer
from aligntool.probe.layers.area import Area, checksum_problem, le16, le32, le64, text_at, uuid_at
from aligntool.probe.layers.checksums import crc32c
from aligntool.units import Extent

AT = 1024
SIZE = 1024
LARGEST_LOG_BLOCK = 6  # 64 KiB

COMPAT_HAS_JOURNAL = 0x4
INCOMPAT_FILETYPE, INCOMPAT_RECOVER, INCOMPAT_JOURNAL_DEV, INCOMPAT_META_BG = 0x2, 0x4, 0x8, 0x10
INCOMPAT_64BIT, INCOMPAT_MMP = 0x80, 0x100
RO_COMPAT_EXT3 = 0x7  # sparse_super, large_file, btree_dir: all that ext2 and ext3 may have
RO_COMPAT_METADATA_CSUM = 0x400
RO_COMPAT_ORPHAN_PRESENT = 0x10000
MMP_MAGIC, MMP_SIZE = 0x004D4D50, 128
STATE_VALID, STATE_ERROR = 0x1, 0x2
FLAGS_TEST_FILESYS = 0x4


def read_ext(area: Area) -> Layer | None:
    superblock = area.read(AT, SIZE)
    if len(superblock) < SIZE or le16(superblock, 0x38) != 0xEF53:
        return None
    log_block = le32(superblock, 0x18)
    if log_block > LARGEST_LOG_BLOCK or le32(superblock, 0x4C) > 1 or not le32(superblock, 0x20):
        return None  # a two-byte magic alone proves little
    block = 1024 << log_block
    claims = _blocks(superblock) * block
    if not claims:
        return None
    kind = _kind(superblock)
    striped = kind != "jbd"
    return Layer(
        kind=kind,
        extent=Extent(area.start, claims),
        version=f"{le32(superblock, 0x4C)}.{le16(superblock, 0x3E)}",
        label=text_at(superblock, 0x78, 16),
        uuid=uuid_at(superblock, 0x68),
        data_start=area.start,
        data_unit=block,
        claims_size=claims,
        stripe_unit=le16(superblock, 0x164) * block if striped else None,
        stripe_width=le32(superblock, 0x170) * block if striped else None,
        problems=_problems(superblock),
        unclean=_guarded(area, superblock, block) or _unclean(superblock) if striped else None,
    )


def _blocks(superblock: bytes) -> int:
    high = le32(superblock, 0x150) if le32(superblock, 0x60) & INCOMPAT_64BIT else 0
    return high << 32 | le32(superblock, 4)


def _kind(superblock: bytes) -> str:
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


def _guarded(area: Area, superblock: bytes, block: int) -> str | None:
    """Multiple mount protection: whether another machine has it mounted, or may have.

    linux/fs/ext4/mmp.c; include/linux/ext4.h, struct mmp_struct.
    """
    if not le32(superblock, 0x60) & INCOMPAT_MMP:
        return None
    found = area.read(le64(superblock, 0x168) * block, MMP_SIZE)
    if len(found) < MMP_SIZE or le32(found, 0) != MMP_MAGIC:
        return "its block against mounting on two machines is damaged (MMP)"
    node = text_at(found, 16, 64) or "a machine without a name"
    match le32(found, 4):
        case 0xFF4D4D50:  # EXT4_MMP_SEQ_CLEAN
            return "it may be shared with another machine, which would look for it at its old place (MMP)"
        case 0xE24D4D50:  # EXT4_MMP_SEQ_FSCK
            return f"it is being checked by {node}, or was when that check stopped (MMP)"
    return f"it is mounted on {node}, or was when that machine stopped (MMP); unmount it there first"


def _unclean(superblock: bytes) -> str | None:
    state = le16(superblock, 0x3A)
    if le32(superblock, 0x60) & INCOMPAT_RECOVER:
        return "needs its journal replayed (recovery flag set)"
    if state & STATE_ERROR:
        return "has errors that the kernel saw (error flag set)"
    if not state & STATE_VALID:
        return "was not unmounted cleanly (valid flag clear)"
    if le32(superblock, 0xE8) or le32(superblock, 0x64) & RO_COMPAT_ORPHAN_PRESENT:
        return "has deleted files that are not released yet (orphan list)"
    return None


def _problems(superblock: bytes) -> tuple[str, ...]:
    if not le32(superblock, 0x64) & RO_COMPAT_METADATA_CSUM:
        return ()
    return checksum_problem("the ext4 superblock", le32(superblock, 0x3FC), crc32c(superblock[:0x3FC]))
