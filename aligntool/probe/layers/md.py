"""Linux software RAID members: superblocks of version 0.90, 1.0, 1.1 and 1.2.

In: the area of one member. Out: one layer for each version that lies there. The mirror's content is read
through the member, because one half of a mirror is all of it. Layout: linux/include/uapi/linux/raid/md_p.h.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from aligntool.inventory import Layer
from aligntool.probe.layers.area import Area, be32, checksum_problem, le32, le64, text_at, uuid_at
from aligntool.probe.layers.checksums import folded_sum
from aligntool.units import KIB, MIB, Extent

MAGIC = 0xA92B4EFC
RESERVED = 64 * KIB  # version 0.90 keeps the last aligned 64 KiB for itself
SECTOR = 512  # md counts in these whatever the disk's sectors are
SUPERBLOCK_0 = 4096
SUPERBLOCK_1 = 256
LARGEST_CHUNK = 16 * MIB  # that is believed
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
_CHUNKED = ("raid0", "raid4", "raid5", "raid6", "raid10", "linear")
_WHOLE_ON_ONE_MEMBER = ("raid1", "multipath")


@dataclass(frozen=True, slots=True)
class _Member:
    version: str
    level: int
    members: int
    chunk: int
    uuid: str | None
    data: Extent  # relative to the area; length 0: the superblock does not say
    label: str | None = None
    problems: tuple[str, ...] = ()


def read_0_90(area: Area) -> Layer | None:
    """At the last multiple of 64 KiB that leaves 64 KiB, in the byte order of the machine that made it."""
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
    member = _Member(
        version=".".join(str(number(superblock, 4 * word)) for word in (1, 2, 3)),
        level=number(superblock, 4 * 7),
        members=number(superblock, 4 * 10),
        chunk=number(superblock, 4 * 65),
        uuid=uuid_at(uuid, 0),
        data=Extent(0, size),
        problems=checksum_problem(
            "the md superblock", number(superblock, 4 * 38), folded_sum(blanked, order)
        ),
    )
    return _layer(area, member)


def _belongs_to_a_partition(area: Area, at: int, size: int, chunk: int) -> bool:
    """The superblock of a member at the end of the disk's last partition lies where the whole disk's own would lie.

    A member that is the whole disk uses all of it up to the superblock, less a part of a chunk. A disk that has a table
    and a superblock that speaks of clearly less is a disk with a member partition.
    """
    return area.ends_with_a_partition and at - size > max(min(chunk, LARGEST_CHUNK), RESERVED)


def read_1_0(area: Area) -> Layer | None:
    return _read_1(area, (area.size & ~4095) - 8192, "1.0")


def read_1_1(area: Area) -> Layer | None:
    return _read_1(area, 0, "1.1")


def read_1_2(area: Area) -> Layer | None:
    return _read_1(area, 4096, "1.2")


def _read_1(area: Area, at: int, version: str) -> Layer | None:
    superblock = area.read(at, 4096)
    if len(superblock) < SUPERBLOCK_1 or le32(superblock, 0) != MAGIC or le32(superblock, 4) != 1:
        return None
    if le64(superblock, 144) * SECTOR != at:
        return None  # written for another device: the disk around this partition, or one inside this disk
    member = _Member(
        version=version,
        level=le32(superblock, 72),
        members=le32(superblock, 92),
        chunk=le32(superblock, 88) * SECTOR,
        uuid=uuid_at(superblock, 16),
        data=Extent(le64(superblock, 128) * SECTOR, le64(superblock, 136) * SECTOR),
        label=text_at(superblock, 32, 32),
        problems=_checksum_1(superblock),
    )
    return _layer(area, member)


def _checksum_1(superblock: bytes) -> tuple[str, ...]:
    devices = le32(superblock, 220)
    if devices > MOST_DEVICES or SUPERBLOCK_1 + 2 * devices > len(superblock):
        return (f"the md superblock speaks of {devices} devices, at most {MOST_DEVICES} fit",)
    summed = superblock[:216] + bytes(4) + superblock[220 : SUPERBLOCK_1 + 2 * devices]
    return checksum_problem("the md superblock", le32(superblock, 216), folded_sum(summed))


def _layer(area: Area, member: _Member) -> Layer:
    level = _LEVELS.get(member.level, f"level {member.level}")
    claims = member.data.end if member.data.length else None
    inner: tuple[Layer, ...] = ()
    if level in _WHOLE_ON_ONE_MEMBER or (member.members == 1 and level in ("raid0", "linear")):
        length = member.data.length or area.size - member.data.start
        if length > 0 and member.data.start + length <= area.size:
            inner = area.inside(area.reader, Extent(area.start + member.data.start, length))
    return Layer(
        kind="linux_raid_member",
        extent=Extent(area.start, claims or area.size),
        version=member.version,
        label=member.label,
        uuid=member.uuid,
        data_start=area.start + member.data.start,
        data_unit=None,
        claims_size=claims,
        raid_level=level,
        raid_chunk=member.chunk if level in _CHUNKED and member.chunk else None,
        raid_members=member.members,
        inner=inner,
        problems=member.problems,
    )


READERS: tuple[Callable[[Area], Layer | None], ...] = (read_0_90, read_1_0, read_1_1, read_1_2)
