"""f2fs: the first of two superblocks, at byte 1024.

In: the area of a partition. Out: its layer. Layout: linux/include/linux/f2fs_fs.h, struct f2fs_super_block.
"""

from aligntool.inventory import Layer
from aligntool.probe.layers.area import Area, checksum_problem, le16, le32, le64, text_at, uuid_at
from aligntool.probe.layers.checksums import crc32_seeded
from aligntool.units import Extent

MAGIC = 0xF2F52010
COPIES = (1024, 4096 + 1024)
CP_UMOUNT_FLAG, CP_ERROR_FLAG = 0x1, 0x8


def read_f2fs(area: Area) -> Layer | None:
    for at in COPIES:
        superblock = area.read(at, 4096 - 1024)
        if (
            len(superblock) == 4096 - 1024
            and le32(superblock, 0) == MAGIC
            and 9 <= le32(superblock, 16) <= 16
        ):
            return _layer(area, superblock, at)
    return None


def _layer(area: Area, superblock: bytes, at: int) -> Layer:
    block = 1 << le32(superblock, 16)
    several_devices = superblock[0x899:0x89A] not in (
        b"",
        b"\0",
    )  # devs[0].path: the count is over all of them
    claims = None if several_devices else le64(superblock, 0x24) * block
    lost = ("the first f2fs superblock is missing, the second is in its place",) if at != COPIES[0] else ()
    return Layer(
        kind="f2fs",
        extent=Extent(area.start, claims or area.size),
        version=f"{le16(superblock, 4)}.{le16(superblock, 6)}",
        label=text_at(superblock, 0x7C, 1024, "utf-16-le"),
        uuid=uuid_at(superblock, 0x6C),
        data_start=area.start + le32(superblock, 0x5C) * block,
        data_unit=block,
        claims_size=claims,
        problems=(*lost, *_checksum(superblock)),
        unclean=_unclean(area, superblock, block),
    )


def _unclean(area: Area, superblock: bytes, block: int) -> str | None:
    """By the newer of two checkpoints: each a pack of blocks that begins and ends with the same one."""
    first, per_segment = le32(superblock, 0x4C), 1 << min(le32(superblock, 0x14), 16)
    newest = -1
    flags = CP_UMOUNT_FLAG
    for number in (first, first + per_segment):
        head = area.read(number * block, block)
        end = number + le32(head, 136) - 1
        version = le64(head, 0)
        if len(head) == block and le64(area.read(end * block, 8), 0) == version and version > newest:
            newest, flags = version, le32(head, 132)
    if flags & CP_ERROR_FLAG:
        return "has errors that the kernel saw (checkpoint error flag)"
    return None if flags & CP_UMOUNT_FLAG else "was not unmounted cleanly (checkpoint without unmount flag)"


def _checksum(superblock: bytes) -> tuple[str, ...]:
    at = le32(superblock, 0x20)
    if not at:
        return ()  # made before mkfs.f2fs 1.13, which began to write one
    if at % 4 or at + 4 > len(superblock):
        return (f"the f2fs superblock wants its checksum at byte {at}, which is outside of it",)
    return checksum_problem("the f2fs superblock", le32(superblock, at), crc32_seeded(superblock[:at], MAGIC))
