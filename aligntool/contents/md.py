"""md superblocks (0.90 and 1.x) and firmware RAID metadata."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

from aligntool.formats.numbers import be32, be64, le16, le32, le64, text_at, uuid_at
from aligntool.formats.reader import MAY_BE_SHARED, Area, Magic, checksum_problem, crc32_seeded, folded_sum
from aligntool.inventory import Layer
from aligntool.units import KIB, MIB, Extent

# Members of RAID sets made by firmware or a controller's BIOS.
#
# All of these formats have their metadata at the disk's end and the data from its first sector on, so the partition
# table in sector 0 belongs to the RAID volume. Layouts: mdadm super-intel.c and super-ddf.c, the others in libblkid.

SECTOR = 512
SMALLEST = 64 * KIB

INTEL = b"Intel Raid ISM Cfg Sig. "
INTEL_LEVELS = {0: "raid0", 1: "raid1", 5: "raid5"}
INTEL_DISKS_AT, INTEL_DISK = 216, 48
INTEL_MAP_AT, INTEL_MAP = 112, 17  # offset in struct imsm_dev; bytes of struct imsm_map that are read
MOST_DISKS = 32
LONGEST_INTEL = 32 * KIB

PROMISE = (63, 255, 256, 16, 399, 591, 675, 735, 911, 974, 991, 951, 3087)  # sectors from the end, as in libblkid

SIGNATURES = (
    Magic("lsi_mega_raid_member", -SECTOR, b"$XIDE$"),
    Magic("nvidia_raid_member", -2 * SECTOR, b"NVIDIA  \x1e\0\0\0", version_at=(-2 * SECTOR + 16, 2)),
    *(Magic("promise_fasttrack_raid_member", -at * SECTOR, b"Promise Technology, Inc.") for at in PROMISE),
    *(Magic("hpt45x_raid_member", -11 * SECTOR, magic) for magic in (b"\xf3\x16\x78\x5a", b"\xfd\x16\x78\x5a")),
    Magic("adaptec_raid_member", -SECTOR + 256, b"DPTM", version_at=(-SECTOR + 63, 1)),
    *(Magic("hpt37x_raid_member", 9 * SECTOR + 32, magic) for magic in (b"\xf0\x16\x78\x5a", b"\xfd\x16\x78\x5a")),
)
# FreeBSD's classes that keep a table inside an array, in the last sector, of 512 or 4096 bytes: sys/geom/*/g_*.h. Not
# of them: LABEL, MULTIPATH and ELI, which leave the bytes of a single disk in their places or encrypt all of them.
GEOM = tuple(
    Magic("geom_raid_member", -sector, b"GEOM::" + name.ljust(10, b"\0"), version=name.decode().lower())
    for sector in (SECTOR, 8 * SECTOR)
    for name in (b"MIRROR", b"RAID3", b"STRIPE", b"CONCAT", b"JOURNAL", b"SHSEC", b"VIRSTOR", b"CACHE")
)


def read_ddf(area: Area) -> Layer | None:
    """Return a member of a SNIA Common RAID Disk Data Format (DDF) set, on a disk or a partition. The anchor of a last
    partition is at the end of the disk, too: the primary header, or the secondary one, of which mdadm makes use if the
    primary one is damaged, has to be where the anchor states.
    """
    for sectors in (1, 257):  # from the end
        anchor = area.read((area.size // SECTOR - sectors) * SECTOR, SECTOR)
        if len(anchor) < SECTOR or be32(anchor, 0) != 0xDE11DE11:
            continue
        headers = [area.read(be64(anchor, at) * SECTOR, 4) for at in (96, 104)]
        if not be64(anchor, 96) or anchor[:4] in headers:
            blanked = anchor[:4] + b"\xff" * 4 + anchor[8:]
            return replace(
                area.layer("ddf_raid_member"), version=text_at(anchor, 32, 8, "ascii"), uuid=text_at(anchor, 8, 24),
                problems=checksum_problem("the DDF anchor", be32(anchor, 4), crc32_seeded(blanked, 0)),
            )  # fmt: skip
    return None


def read_intel(area: Area) -> Layer | None:
    """Return a member of an Intel Matrix Storage set: its anchor is in the second last sector, the rest of a longer
    block directly before it.
    """
    if not area.is_whole or area.size < SMALLEST:
        return None
    sector = area.sector_size
    anchor_at = (area.size // sector - 2) * sector
    anchor = area.read(anchor_at, sector)
    if anchor[:24] != INTEL:
        return None
    layer, length = replace(area.layer("isw_raid_member"), version=text_at(anchor, 24, 6, "ascii")), le32(anchor, 36)
    if not INTEL_DISKS_AT <= length <= LONGEST_INTEL:
        return layer
    more = -(-length // sector) - 1
    block = (anchor + area.read(anchor_at - more * sector, more * sector))[:length]
    words = sum(le32(block, at) for at in range(0, length & ~3, 4)) - le32(block, 32)
    problems = checksum_problem("the Intel RAID block", le32(block, 32), words & 0xFFFFFFFF)
    return _with_first_volume(replace(layer, problems=problems), block)


def _with_first_volume(layer: Layer, block: bytes) -> Layer:
    """Return the layer with the first volume of the set; disks with two volumes are rare."""
    disks, volumes = (block[56], block[57]) if len(block) > 57 else (0, 0)
    at = INTEL_DISKS_AT + disks * INTEL_DISK + INTEL_MAP_AT
    if not 0 < disks <= MOST_DISKS or not volumes or at + INTEL_MAP > len(block):
        return layer
    level, members = INTEL_LEVELS.get(block[at + 15]), block[at + 16]
    if level == "raid1" and members > 2:
        level = "raid10"  # nothing else indicates it
    chunk = le16(block, at + 12) * SECTOR if level != "raid1" else 0
    start = layer.extent.start + le32(block, at) * SECTOR
    return replace(layer, data_start=start, raid_level=level, raid_chunk=chunk or None, raid_members=members)


def read_other_firmware(area: Area) -> Layer | None:
    if not area.is_whole or area.size < SMALLEST:
        return None
    # A partition that covers the last sector has its own metadata there; one in a GEOM array never reaches that sector.
    marks = SIGNATURES if area.last_end == area.size else (*SIGNATURES, *GEOM)
    found = next((layer for mark in marks if (layer := mark.layer(area))), None)
    return replace(found, data_start=area.start) if found else _read_with_checksum(area)


def _read_with_checksum(area: Area) -> Layer | None:
    """Return a member of a VIA, Silicon Image or JMicron set: their magics in the last sector are too weak
    without the checksums.
    """
    last = area.read((area.size // SECTOR - 1) * SECTOR, SECTOR)
    if len(last) < SECTOR:
        return None
    words = [le16(last, at) for at in range(0, 320, 2)]
    if last[:2] == b"\x55\xaa" and last[2] <= 2 and sum(last[:50]) & 0xFF == last[50]:
        kind, version = "via_raid_member", str(last[2])
    elif le32(last, 0x60) == 0x2F000000 and sum(words) & 0xFFFF == 0:
        kind, version = "silicon_medley_raid_member", f"{le16(last, 0x10A)}.{le16(last, 0x108)}"
    elif last[:2] == b"JM" and sum(words[:64]) & 0xFFFF in (0, 1) and last[0x30] <= 5:
        kind, version = "jmicron_raid_member", f"{last[3]}.{last[2]}"
    else:
        return None
    return replace(area.layer(kind), version=version)


# Linux software RAID members: superblocks of version 0.90, 1.0, 1.1 and 1.2.
#
# The content of a mirror is read through any one member, which has all of it. Layout:
# linux/include/uapi/linux/raid/md_p.h.

MAGIC = 0xA92B4EFC
RESERVED = 64 * KIB  # version 0.90 reserves the last aligned 64 KiB
SUPERBLOCK_0 = 4096
SUPERBLOCK_1 = 256
SPARE = 0xFFFF  # MD_DISK_ROLE_SPARE: nothing of the array is on it yet, and what was there before is not wiped
HAS_BITMAP, CLUSTERED_BITMAP = 1, 5  # MD_FEATURE_BITMAP_OFFSET, BITMAP_MAJOR_CLUSTERED
LARGEST_CHUNK = 16 * MIB  # a larger one is implausible
MOST_DEVICES = (4096 - SUPERBLOCK_1) // 2  # the kernel keeps a version-1 superblock in one page

_LEVELS = {
    0: "raid0", 1: "raid1", 4: "raid4", 5: "raid5", 6: "raid6", 10: "raid10", 0xFFFFFFFF: "linear",
    0xFFFFFFFC: "multipath", 0xFFFFFFFB: "faulty",
}  # fmt: skip
CHUNKED = ("raid0", "raid4", "raid5", "raid6", "raid10", "linear")
_WHOLE_ON_ONE_MEMBER = ("raid1", "multipath")


def read_0_90(area: Area) -> Layer | None:
    """Return a member of version 0.90: its superblock is at the last multiple of 64 KiB with 64 KiB after it, in the
    byte order of the machine that made it.
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
        area.layer("linux_raid_member"), uuid=uuid_at(uuid, 0),
        version=".".join(str(number(superblock, 4 * word)) for word in (1, 2, 3)),
        problems=checksum_problem("the md superblock", number(superblock, 4 * 38), folded_sum(blanked, order)),
    )  # fmt: skip
    return _with_array(area, layer, Extent(0, size), level, members, chunk)


def _belongs_to_a_partition(area: Area, at: int, size: int, chunk: int) -> bool:
    """Return whether the superblock belongs to the last partition: there it can be in the same place as that of the
    whole disk.

    A member that is the whole disk uses all of it up to the superblock, less a part of a chunk. If the disk has a table
    and the superblock states a clearly smaller size, the member is a partition.
    """
    return area.ends_with_a_partition and at - size > max(min(chunk, LARGEST_CHUNK), RESERVED)


def _read_1(area: Area, version: str) -> Layer | None:
    at = {"1.0": (area.size & ~4095) - 8192, "1.1": 0, "1.2": 4096}[version]
    superblock = area.read(at, 4096)
    if len(superblock) < SUPERBLOCK_1 or le32(superblock, 0) != MAGIC or le32(superblock, 4) != 1:
        return None
    if le64(superblock, 144) * SECTOR != at:
        return None  # written for another device: the disk that contains this partition, or a partition of this disk
    layer = replace(
        area.layer("linux_raid_member"), version=version, label=text_at(superblock, 32, 32),
        uuid=uuid_at(superblock, 16), problems=_problems_1(superblock),
        unclean=f"{MAY_BE_SHARED} (cluster bitmap)" if _is_clustered(area, at, superblock) else None,
    )  # fmt: skip
    data = Extent(le64(superblock, 128) * SECTOR, le64(superblock, 136) * SECTOR)
    level, members, chunk = le32(superblock, 72), le32(superblock, 92), le32(superblock, 88) * SECTOR
    array = _with_array(area, layer, data, level, members, chunk)
    role = le16(superblock, SUPERBLOCK_1 + 2 * le32(superblock, 160))  # dev_number
    # Data from the first byte may also be content over the remnant of an array, whose superblock is at the end.
    is_blank = role == SPARE and data.start and not array.problems
    return replace(array, inner=()) if is_blank else array


def _is_clustered(area: Area, at: int, superblock: bytes) -> bool:
    """Return whether the array has a write-intent bitmap for each of several machines (drivers/md/md-bitmap.h)."""
    distance = int.from_bytes(superblock[96:100], "little", signed=True) * SECTOR
    bitmap = area.read(at + distance, 24) if le32(superblock, 8) & HAS_BITMAP else b""
    return bitmap[:4] == b"bitm" and le32(bitmap, 4) == CLUSTERED_BITMAP and bitmap[8:] == superblock[16:32]


def _problems_1(superblock: bytes) -> tuple[str, ...]:
    devices = le32(superblock, 220)
    if devices > MOST_DEVICES or SUPERBLOCK_1 + 2 * devices > len(superblock):
        return (f"the md superblock lists {devices} devices, but at most {MOST_DEVICES} fit",)
    summed = superblock[:216] + bytes(4) + superblock[220 : SUPERBLOCK_1 + 2 * devices]
    return checksum_problem("the md superblock", le32(superblock, 216), folded_sum(summed))


def _with_array(area: Area, layer: Layer, data: Extent, level_number: int, members: int, chunk: int) -> Layer:
    """Return the layer with the array. `data` is relative to the area; length 0: not stated by the superblock."""
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
        layer, extent=Extent(area.start, claims or area.size), data_start=area.start + data.start, claims_size=claims,
        raid_level=level, raid_chunk=chunk if level in CHUNKED and chunk else None, raid_members=members, inner=inner,
    )  # fmt: skip


READERS: tuple[Callable[[Area], Layer | None], ...] = (
    read_0_90, *(partial(_read_1, version=version) for version in ("1.0", "1.1", "1.2")),
)  # fmt: skip
