"""XFS, and the log device of one that keeps its log elsewhere.

In: the area of a partition. Out: its layer. Everything is big endian but the checksum. Layout:
linux/fs/xfs/libxfs/ xfs_format.h, struct xfs_dsb; xfs_log_format.h, struct xlog_rec_header.
"""

from aligntool.inventory import Layer
from aligntool.probe.layers.area import Area, be16, be32, be64, checksum_problem, le32, text_at, uuid_at
from aligntool.probe.layers.checksums import crc32c_inverted
from aligntool.probe.layers.xfs_log import read_log
from aligntool.units import Extent

MAGIC = b"XFSB"
SMALLEST_SECTOR = 512  # the superblock has one, which a cut-off image may not have whole
LOG_MAGIC = b"\xfe\xed\xba\xbe"
LOG_FORMATS = (1, 2, 3)  # XLOG_FMT_LINUX_LE, _LINUX_BE, _IRIX_BE


def read_xfs(area: Area) -> Layer | None:
    superblock = area.head[: 32 * 1024]
    if superblock[:4] != MAGIC or len(superblock) < SMALLEST_SECTOR or not _is_plausible(superblock):
        return None
    block = be32(superblock, 4)
    claims = be64(superblock, 8) * block
    return Layer(
        kind="xfs",
        extent=Extent(area.start, claims),
        label=text_at(superblock, 108, 12),
        uuid=uuid_at(superblock, 32),
        data_start=area.start,
        data_unit=block,
        claims_size=claims,
        stripe_unit=be32(superblock, 184) * block,
        stripe_width=be32(superblock, 188) * block,
        problems=_problems(superblock),
        unclean=read_log(area, superblock),
    )


def _is_plausible(superblock: bytes) -> bool:
    """The sizes against their own logarithms, and the groups against the blocks, as mount and blkid want them."""
    block, sector, inode = be32(superblock, 4), be16(superblock, 102), be16(superblock, 104)
    block_log, sector_log, inode_log = superblock[120], superblock[121], superblock[122]
    blocks, group, groups = be64(superblock, 8), be32(superblock, 84), be32(superblock, 88)
    return (
        9 <= block_log <= 16
        and block == 1 << block_log
        and 9 <= sector_log <= 15
        and sector == 1 << sector_log
        and 8 <= inode_log <= 11
        and inode == 1 << inode_log
        and groups > 0
        and (groups - 1) * group < blocks <= groups * group
    )


def _problems(superblock: bytes) -> tuple[str, ...]:
    if be16(superblock, 100) & 0xF != 5:
        return ()
    sector = superblock[: be16(superblock, 102)]
    blanked = sector[:224] + bytes(4) + sector[228:]
    return checksum_problem("the XFS superblock", le32(sector, 224), crc32c_inverted(blanked))


def read_xfs_log(area: Area) -> Layer | None:
    """An external log has no superblock: the first record header stands at a sector of its first KiBs."""
    if area.head[:4] == MAGIC:
        return None  # those are the records of its own log
    for at in range(0, min(len(area.head), 64 * 1024), 512):
        if area.head[at : at + 4] != LOG_MAGIC:
            continue
        version, length = be32(area.head, at + 8), be32(area.head, at + 12)
        if version in (1, 2) and 0 < length < 1 << 31 and be32(area.head, at + 300) in LOG_FORMATS:
            return Layer(kind="xfs_external_log", extent=area.extent)
    return None
