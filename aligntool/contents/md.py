"""Linux software RAID members: superblocks of version 0.90, 1.0, 1.1 and 1.2."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

from aligntool.contents.kind import Kind
from aligntool.contents.signatures import both_orders, magic
from aligntool.formats.numbers import be32, le16, le32, le64, text_at, uuid_at
from aligntool.formats.reader import MAY_BE_SHARED, Area, checksum_problem, folded_sum
from aligntool.inventory import Layer
from aligntool.units import KIB, MIB, Extent

# The content of a mirror is read through any one member, which has all of it. Layout:
# linux/include/uapi/linux/raid/md_p.h.

SECTOR = 512
MAGIC = 0xA92B4EFC
_MD = both_orders(MAGIC)
RESERVED = 64 * KIB  # version 0.90 reserves the last aligned 64 KiB
SUPERBLOCK_0 = 4096
SUPERBLOCK_1 = 256
# MD_DISK_ROLE_SPARE: nothing of the array is on it yet, and what was there before is not wiped
SPARE = 0xFFFF
HAS_BITMAP = 1  # MD_FEATURE_BITMAP_OFFSET
BITMAP = 4  # BITMAP_MAJOR_HI
CLUSTERED_BITMAP = 5  # BITMAP_MAJOR_CLUSTERED
LARGEST_CHUNK = 16 * MIB  # a larger one is implausible
MOST_DEVICES = (4096 - SUPERBLOCK_1) // 2  # the kernel keeps a version-1 superblock in one page

_LEVELS = {
    0: "raid0",
    1: "raid1",
    4: "raid4",
    5: "raid5",
    6: "raid6",
    10: "raid10",
    0xFFFFFFFF: "linear",
    0xFFFFFFFC: "multipath",
    0xFFFFFFFB: "faulty",
}
CHUNKED = ("raid0", "raid4", "raid5", "raid6", "raid10", "linear")
_WHOLE_ON_ONE_MEMBER = ("raid1", "multipath")


def read_0_90(area: Area) -> Layer | None:
    """Return a member of version 0.90: its superblock is at the last multiple of 64 KiB with 64 KiB after it,
    in the byte order of the machine that made it.
    """
    at = (area.size & ~(RESERVED - 1)) - RESERVED
    if at < 0:
        return None
    superblock = area.read(at, SUPERBLOCK_0)
    if len(superblock) < SUPERBLOCK_0:
        return None
    order: Literal["little", "big"] = "little" if le32(superblock, 0) == MAGIC else "big"
    number = le32 if order == "little" else be32
    if number(superblock, 0) != MAGIC or number(superblock, 4) != 0:
        return None
    size = number(superblock, 4 * 8) * KIB
    if size > at or _belongs_to_a_partition(area, at, size, number(superblock, 4 * 65)):
        return None
    words = (5, 13, 14, 15) if number(superblock, 8) >= 90 else (5,)
    uuid = b"".join(number(superblock, 4 * word).to_bytes(4, "big") for word in words).ljust(16, b"\0")
    blanked = superblock[: 4 * 38] + bytes(4) + superblock[4 * 39 :]
    level, members, chunk = (number(superblock, 4 * word) for word in (7, 10, 65))
    layer = replace(
        area.layer("linux_raid_member"),
        uuid=uuid_at(uuid, 0),
        version=".".join(str(number(superblock, 4 * word)) for word in (1, 2, 3)),
        problems=checksum_problem(
            "the md superblock", number(superblock, 4 * 38), folded_sum(blanked, order)
        ),
    )
    return _with_array(area, layer, Extent(0, size), level, members, chunk)


def _belongs_to_a_partition(area: Area, at: int, size: int, chunk: int) -> bool:
    """Return whether the superblock belongs to the last partition: there it can be in the same place as that
    of the whole disk.

    A member that is the whole disk uses all of it up to the superblock, less a part of a chunk. If the disk
    has a table and the superblock states a clearly smaller size, the member is a partition.
    """
    return area.ends_with_a_partition and at - size > max(min(chunk, LARGEST_CHUNK), RESERVED)


def _read_1(area: Area, version: str) -> Layer | None:
    at = {"1.0": (area.size & ~4095) - 8192, "1.1": 0, "1.2": 4096}[version]
    superblock = area.read(at, 4096)
    if len(superblock) < SUPERBLOCK_1 or le32(superblock, 0) != MAGIC or le32(superblock, 4) != 1:
        return None
    if le64(superblock, 144) * SECTOR != at:
        # written for another device: the disk that contains this partition, or a partition of this disk
        return None
    bitmap = _read_bitmap(area, at, superblock)
    kind_of_bitmap = le32(bitmap, 4) if bitmap else None
    layer = replace(
        area.layer("linux_raid_member"),
        version=version,
        label=text_at(superblock, 32, 32),
        uuid=uuid_at(superblock, 16),
        problems=_problems_1(superblock),
        unclean=f"{MAY_BE_SHARED} (cluster bitmap)" if kind_of_bitmap == CLUSTERED_BITMAP else None,
        raid_cleared=le64(bitmap, 32) if kind_of_bitmap == BITMAP else None,  # events_cleared
    )
    data = Extent(le64(superblock, 128) * SECTOR, le64(superblock, 136) * SECTOR)
    level = le32(superblock, 72)
    members = le32(superblock, 92)
    chunk = le32(superblock, 88) * SECTOR
    array = _with_array(area, layer, data, level, members, chunk)
    role = le16(superblock, SUPERBLOCK_1 + 2 * le32(superblock, 160))  # dev_number
    # Data from the first byte may also be content over the remnant of an array, whose superblock is at the
    # end.
    is_blank = role == SPARE and data.start and not array.problems
    return replace(array, inner=()) if is_blank else array


def _read_bitmap(area: Area, at: int, superblock: bytes) -> bytes:
    """Return the start of the superblock of the array's write-intent bitmap, or b"" if there is none
    (drivers/md/md-bitmap.h).
    """
    distance = int.from_bytes(superblock[96:100], "little", signed=True) * SECTOR
    bitmap = area.read(at + distance, 40) if le32(superblock, 8) & HAS_BITMAP else b""
    return (
        bitmap if bitmap[:4] == b"bitm" and bitmap[8:24] == superblock[16:32] and len(bitmap) == 40 else b""
    )


def _problems_1(superblock: bytes) -> tuple[str, ...]:
    devices = le32(superblock, 220)
    if devices > MOST_DEVICES or SUPERBLOCK_1 + 2 * devices > len(superblock):
        return (f"the md superblock lists {devices} devices, but at most {MOST_DEVICES} fit",)
    summed = superblock[:216] + bytes(4) + superblock[220 : SUPERBLOCK_1 + 2 * devices]
    return checksum_problem("the md superblock", le32(superblock, 216), folded_sum(summed))


def _with_array(area: Area, layer: Layer, data: Extent, level_number: int, members: int, chunk: int) -> Layer:
    """Return the layer with the array. `data` is relative to the area; length 0: not stated by the
    superblock.
    """
    level = _LEVELS.get(level_number, f"level {level_number}")
    claims = data.end if data.length else None
    inner: tuple[Layer, ...] = ()
    length = data.length or area.size - data.start
    if length > 0 and data.start + length <= area.size:
        inner = area.inside(area.reader, Extent(area.start + data.start, length))
    if not (level in _WHOLE_ON_ONE_MEMBER or (members == 1 and level in ("raid0", "linear"))):
        # One of the members has the start of the content: there, nothing but a suspended system is certain.
        inner = tuple(replace(found, problems=()) for found in inner if found.kind == "swsuspend")
    return replace(
        layer,
        extent=Extent(area.start, claims or area.size),
        data_start=area.start + data.start,
        claims_size=claims,
        raid_level=level,
        raid_chunk=chunk if level in CHUNKED and chunk else None,
        raid_members=members,
        inner=inner,
    )


READERS: tuple[Callable[[Area], Layer | None], ...] = (
    read_0_90,
    *(partial(_read_1, version=version) for version in ("1.0", "1.1", "1.2")),
)


def _is_seen_through(layer: Layer) -> bool:
    """Return whether the member has the start of the content; one of another level may not."""
    is_whole = layer.raid_level == "raid1" or (
        layer.raid_level in ("raid0", "linear") and layer.raid_members == 1
    )
    return is_whole and not layer.problems


MD = Kind(
    "linux_raid_member",
    readers=READERS,
    is_owner=True,
    signatures=(
        magic("linux_raid_member", *_MD, tails=((64 * KIB, 64 * KIB), (4 * KIB, 8 * KIB))),
        magic("linux_raid_member", *_MD, heads=(0, 4 * KIB)),
    ),
    title=lambda layer: f"md {layer.version or ''}".strip(),
    short_title=lambda layer: "md",
    array_title="md",
    examiner="mdadm --examine",
    unsharer="mdadm",
    is_container=True,
    updates_superblock=True,
    is_seen_through=_is_seen_through,
)
