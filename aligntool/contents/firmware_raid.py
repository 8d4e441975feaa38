"""Members of RAID sets made by firmware or a controller's BIOS, and by FreeBSD."""

from collections.abc import Callable
from dataclasses import replace

from aligntool.contents.kind import Kind
from aligntool.contents.signatures import Signature, from_end, magic
from aligntool.formats.numbers import be32, be64, le16, le32, text_at
from aligntool.formats.reader import Area, Magic, checksum_problem, crc32_seeded
from aligntool.inventory import Layer
from aligntool.units import KIB

# All of these formats have their metadata at the disk's end and the data from its first sector on, so the
# partition table in sector 0 belongs to the RAID volume. Layouts: mdadm super-intel.c and super-ddf.c, the
# others in libblkid.

SECTOR = 512
SMALLEST = 64 * KIB

INTEL = b"Intel Raid ISM Cfg Sig. "
INTEL_LEVELS = {0: "raid0", 1: "raid1", 5: "raid5"}
INTEL_DISKS_AT = 216
INTEL_DISK = 48
INTEL_MAP_AT = 112  # offset in struct imsm_dev
INTEL_MAP = 17  # bytes of struct imsm_map that are read
MOST_DISKS = 32
LONGEST_INTEL = 32 * KIB

# sectors from the end, as in libblkid
PROMISE = (63, 255, 256, 16, 399, 591, 675, 735, 911, 974, 991, 951, 3087)

_MAGICS = (
    Magic("lsi_mega_raid_member", -SECTOR, b"$XIDE$"),
    Magic("nvidia_raid_member", -2 * SECTOR, b"NVIDIA  \x1e\0\0\0", version_at=(-2 * SECTOR + 16, 2)),
    *(Magic("promise_fasttrack_raid_member", -at * SECTOR, b"Promise Technology, Inc.") for at in PROMISE),
    *(
        Magic("hpt45x_raid_member", -11 * SECTOR, magic)
        for magic in (b"\xf3\x16\x78\x5a", b"\xfd\x16\x78\x5a")
    ),
    Magic("adaptec_raid_member", -SECTOR + 256, b"DPTM", version_at=(-SECTOR + 63, 1)),
    *(
        Magic("hpt37x_raid_member", 9 * SECTOR + 32, magic)
        for magic in (b"\xf0\x16\x78\x5a", b"\xfd\x16\x78\x5a")
    ),
)
# FreeBSD's classes that keep a table inside an array, in the last sector, of 512 or 4096 bytes:
# sys/geom/*/g_*.h. Not of them: LABEL, MULTIPATH and ELI, which leave the bytes of a single disk in their
# places or encrypt all of them.
GEOM = tuple(
    Magic("geom_raid_member", -sector, b"GEOM::" + name.ljust(10, b"\0"), version=name.decode().lower())
    for sector in (SECTOR, 8 * SECTOR)
    for name in (b"MIRROR", b"RAID3", b"STRIPE", b"CONCAT", b"JOURNAL", b"SHSEC", b"VIRSTOR", b"CACHE")
)


def read_ddf(area: Area) -> Layer | None:
    """Return a member of a SNIA Common RAID Disk Data Format (DDF) set, on a disk or a partition. The anchor
    of a last partition is at the end of the disk, too: the primary header, or the secondary one, of which
    mdadm makes use if the primary one is damaged, has to be where the anchor states.
    """
    for sectors in (1, 257):  # from the end
        anchor = area.read((area.size // SECTOR - sectors) * SECTOR, SECTOR)
        if len(anchor) < SECTOR or be32(anchor, 0) != 0xDE11DE11:
            continue
        headers = [area.read(be64(anchor, at) * SECTOR, 4) for at in (96, 104)]
        if not be64(anchor, 96) or anchor[:4] in headers:
            blanked = anchor[:4] + b"\xff" * 4 + anchor[8:]
            return replace(
                area.layer("ddf_raid_member"),
                version=text_at(anchor, 32, 8, "ascii"),
                uuid=text_at(anchor, 8, 24),
                problems=checksum_problem("the DDF anchor", be32(anchor, 4), crc32_seeded(blanked, 0)),
            )
    return None


def read_intel(area: Area) -> Layer | None:
    """Return a member of an Intel Matrix Storage set: its anchor is in the second last sector, the rest of a
    longer block directly before it.
    """
    if not area.is_whole or area.size < SMALLEST:
        return None
    sector = area.sector_size
    anchor_at = (area.size // sector - 2) * sector
    anchor = area.read(anchor_at, sector)
    if anchor[:24] != INTEL:
        return None
    layer = replace(area.layer("isw_raid_member"), version=text_at(anchor, 24, 6, "ascii"))
    length = le32(anchor, 36)
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
    level = INTEL_LEVELS.get(block[at + 15])
    members = block[at + 16]
    if level == "raid1" and members > 2:
        level = "raid10"  # nothing else indicates it
    chunk = le16(block, at + 12) * SECTOR if level != "raid1" else 0
    start = layer.extent.start + le32(block, at) * SECTOR
    return replace(layer, data_start=start, raid_level=level, raid_chunk=chunk or None, raid_members=members)


def read_other_firmware(area: Area) -> Layer | None:
    if not area.is_whole or area.size < SMALLEST:
        return None
    # A partition that covers the last sector has its own metadata there; one in a GEOM array never reaches
    # that sector.
    marks = _MAGICS if area.last_end == area.size else (*_MAGICS, *GEOM)
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
        kind = "via_raid_member"
        version = str(last[2])
    elif le32(last, 0x60) == 0x2F000000 and sum(words) & 0xFFFF == 0:
        kind = "silicon_medley_raid_member"
        version = f"{le16(last, 0x10A)}.{le16(last, 0x108)}"
    elif last[:2] == b"JM" and sum(words[:64]) & 0xFFFF in (0, 1) and last[0x30] <= 5:
        kind = "jmicron_raid_member"
        version = f"{last[3]}.{last[2]}"
    else:
        return None
    return replace(area.layer(kind), version=version)


def _kind(
    name: str, *signatures: Signature, title: str = "", reader: Callable[[Area], Layer | None] | None = None
) -> Kind:
    readers = () if reader is None else (reader,)
    return Kind(name, readers=readers, is_owner=True, signatures=signatures, array_title=title)


FIRMWARE_RAID = (
    _kind(
        "ddf_raid_member",
        magic("ddf_raid_member", b"\xde\x11\xde\x11", tails=from_end(1, 257)),
        title="DDF",
        reader=read_ddf,
    ),
    _kind(
        "isw_raid_member",
        magic("isw_raid_member", b"Intel Raid ISM Cfg Sig. ", tails=(*from_end(2), (4 * KIB, 8 * KIB))),
        title="Intel RST (IMSM)",
        reader=read_intel,
    ),
    _kind(
        "lsi_mega_raid_member",
        magic("lsi_mega_raid_member", b"$XIDE$", tails=from_end(1)),
        title="LSI MegaRAID",
        reader=read_other_firmware,
    ),
    _kind("via_raid_member", magic("via_raid_member", b"\x55\xaa", tails=from_end(1))),
    _kind(
        "silicon_medley_raid_member",
        magic("silicon_medley_raid_member", b"\0\0\0\x2f", tails=from_end(1, at=0x60)),
        title="Silicon Image Medley",
    ),
    _kind("nvidia_raid_member", magic("nvidia_raid_member", b"NVIDIA  ", tails=from_end(2)), title="NVIDIA"),
    _kind(
        "promise_fasttrack_raid_member",
        magic("promise_fasttrack_raid_member", b"Promise Technology, Inc.", tails=from_end(*PROMISE)),
        title="Promise FastTrak",
    ),
    _kind(
        "hpt45x_raid_member",
        magic("hpt45x_raid_member", b"\xf3\x16\x78\x5a", b"\xfd\x16\x78\x5a", tails=from_end(11)),
    ),
    _kind(
        "hpt37x_raid_member",
        magic("hpt37x_raid_member", b"\xf0\x16\x78\x5a", b"\xfd\x16\x78\x5a", heads=(4 * KIB + 544,)),
    ),
    _kind("adaptec_raid_member", magic("adaptec_raid_member", b"\x37\xfc\x4d\x1e", tails=from_end(1))),
    _kind("jmicron_raid_member", magic("jmicron_raid_member", b"JM", tails=from_end(1))),
    _kind("geom_raid_member", title="FreeBSD GEOM"),
)
