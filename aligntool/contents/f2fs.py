"""F2FS: the first of two superblocks, at byte 1024."""

from dataclasses import replace

from aligntool.contents.kind import Kind, contains_no_device
from aligntool.contents.signatures import magic
from aligntool.errors import Refusal
from aligntool.formats.numbers import le16, le32, le64, text_at, uuid_at
from aligntool.formats.reader import Area, checksum_problem, crc32_seeded
from aligntool.inventory import Layer
from aligntool.units import KIB

# Layout: linux/include/linux/f2fs_fs.h, struct f2fs_super_block.

F2FS_MAGIC = 0xF2F52010
COPIES = (1024, 4096 + 1024)
CP_UMOUNT_FLAG = 0x1
CP_ERROR_FLAG = 0x8


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
        area.layer("f2fs", claims or None, block),
        version=f"{le16(superblock, 4)}.{le16(superblock, 6)}",
        label=text_at(superblock, 0x7C, 1024, "utf-16-le"),
        uuid=uuid_at(superblock, 0x6C),
        data_start=area.start + le32(superblock, 0x5C) * block,
        problems=(*lost, *_f2fs_problems(superblock)),
        unclean=_f2fs_unclean(area, superblock, block),
    )


def _f2fs_unclean(area: Area, superblock: bytes, block: int) -> str | None:
    """Return why the file system is not clean by the newer of its two checkpoints. A valid checkpoint is a
    pack whose first and last block have the same version.
    """
    first = le32(superblock, 0x4C)
    per_segment = 1 << min(le32(superblock, 0x14), 16)
    newest = -1
    flags = CP_UMOUNT_FLAG
    for number in (first, first + per_segment):
        header = area.read(number * block, block)
        end = number + le32(header, 136) - 1
        version = le64(header, 0)
        if len(header) == block and le64(area.read(end * block, 8), 0) == version and version > newest:
            newest = version
            flags = le32(header, 132)
    if flags & CP_ERROR_FLAG:
        return "has errors that the kernel detected (checkpoint error flag)"
    return None if flags & CP_UMOUNT_FLAG else "was not unmounted cleanly (checkpoint without unmount flag)"


def _f2fs_problems(superblock: bytes) -> tuple[str, ...]:
    at = le32(superblock, 0x20)
    if not at:
        return ()  # mkfs.f2fs before 1.13 wrote none
    if at % 4 or at + 4 > len(superblock):
        return (f"the f2fs superblock states byte {at} for its checksum, which is outside the superblock",)
    return checksum_problem(
        "the f2fs superblock", le32(superblock, at), crc32_seeded(superblock[:at], F2FS_MAGIC)
    )


def _why_fixed(layer: Layer) -> Refusal | None:
    if layer.claims_size is not None:  # it has the sum over all devices, or 0
        return None
    return Refusal("content-kind", "", "is part of an F2FS on several devices, and no tool checks it alone")


# partclone.f2fs maps file systems of mkfs.f2fs and sload.f2fs, but was not tested on one that a kernel wrote.
F2FS = Kind(
    "f2fs",
    readers=(read_f2fs,),
    signatures=(magic("f2fs", b"\x10\x20\xf5\xf2", heads=(KIB,)),),
    checker=("fsck.f2fs", "--dry-run"),
    why_fixed=_why_fixed,
    why_not_shrinkable="no tool here shrinks an F2FS",
    is_mountable=True,
    works_anywhere=True,
    is_seen_through=contains_no_device,
    states_length=True,
)
