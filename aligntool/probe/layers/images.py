"""Read-only file systems that are made once and copied: squashfs, EROFS and cramfs.

In: the area of a partition. Out: its layer. squashfs and cramfs pack their data byte after byte, so they have
no unit to align. Layouts: linux/fs/squashfs/squashfs_fs.h, linux/fs/erofs/erofs_fs.h,
linux/include/uapi/linux/cramfs_fs.h.
"""

from aligntool.inventory import Layer
from aligntool.probe.layers.area import Area, be16, be32, checksum_problem, le16, le32, le64, text_at, uuid_at
from aligntool.probe.layers.checksums import crc32c
from aligntool.units import Extent

EROFS_AT = 1024
EROFS_MAGIC = 0xE0F5E1E2
CRAMFS_MAGIC = 0x28CD3D45


def read_squashfs(area: Area) -> Layer | None:
    superblock = area.head[:96]
    magic = superblock[:4]
    if magic not in (b"hsqs", b"sqsh"):
        return None
    number = le16 if magic == b"hsqs" else be16
    major, minor = number(superblock, 28), number(superblock, 30)
    claims = le64(superblock, 40) if major == 4 and magic == b"hsqs" else None
    return Layer(
        kind="squashfs" if major >= 4 else "squashfs3",
        extent=Extent(area.start, claims or area.size),
        version=f"{major}.{minor}",
        data_start=area.start,
        claims_size=claims,
    )


def read_erofs(area: Area) -> Layer | None:
    superblock = area.read(EROFS_AT, 128)
    block_bits = superblock[12] if len(superblock) == 128 else 0
    if le32(superblock, 0) != EROFS_MAGIC or not 9 <= block_bits <= 16:
        return None
    block = 1 << block_bits
    claims = le32(superblock, 36) * block
    return Layer(
        kind="erofs",
        extent=Extent(area.start, claims),
        label=text_at(superblock, 64, 16),
        uuid=uuid_at(superblock, 48),
        data_start=area.start,
        data_unit=block,
        claims_size=claims,
        problems=_erofs_checksum(area, superblock, block),
    )


def _erofs_checksum(area: Area, superblock: bytes, block: int) -> tuple[str, ...]:
    if not le32(superblock, 8) & 1 or block <= EROFS_AT:
        return ()
    covered = area.read(EROFS_AT, block - EROFS_AT)
    blanked = covered[:4] + bytes(4) + covered[8:]
    return checksum_problem("the EROFS superblock", le32(superblock, 4), crc32c(blanked))


def read_cramfs(area: Area) -> Layer | None:
    superblock = area.head[:64]
    number = {CRAMFS_MAGIC: le32, 0x453DCD28: be32}.get(le32(superblock, 0))
    if number is None or superblock[16:32] != b"Compressed ROMFS":
        return None
    second = number(superblock, 8) & 1
    claims = number(superblock, 4) if second else None
    return Layer(
        kind="cramfs",
        extent=Extent(area.start, claims or area.size),
        version="2" if second else "1",
        label=text_at(superblock, 48, 16),
        data_start=area.start,
        claims_size=claims,
    )
