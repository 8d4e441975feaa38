"""Apple's file systems: HFS, HFS+ (also wrapped in HFS) and APFS.

In: the area of a partition. Out: its layer. Sources: Apple Technical Note TN1150 (HFS Plus), Inside Macintosh:
Files (HFS), Apple File System Reference (APFS).
"""

import hashlib

from aligntool.inventory import Layer
from aligntool.probe.layers.area import Area, be16, be32, checksum_problem, le16, le32, le64, text_at, uuid_at
from aligntool.probe.layers.checksums import fletcher64
from aligntool.units import KIB, Extent, is_power_of_two

HEADER_AT = 1024
SECTOR = 512
FORKS = 8
CATALOG_EXTENTS = 272 + 16  # of the volume header: catalog fork, behind its sizes
NAMESPACE = bytes.fromhex("b3e20f39f29211d697a400306543ecac")  # Apple's, for version-3 identifiers of volumes


def read_hfs(area: Area) -> Layer | None:
    header = area.read(HEADER_AT, 512)
    if header[:2] in (b"H+", b"HX"):
        return _read_plus(area, 0, header)
    if header[:2] != b"BD" or len(header) < SECTOR:
        return None
    block, first = be32(header, 20), be16(header, 28) * SECTOR
    if not block or block % SECTOR:
        return None
    if header[124:126] in (b"H+", b"HX"):
        offset = first + be16(header, 126) * block
        return _read_plus(area, offset, area.read(offset + HEADER_AT, 512))
    blocks = be16(header, 18)
    claims = first + blocks * block + 2 * SECTOR  # the copy of the header and a spare sector end the volume
    return Layer(
        kind="hfs",
        extent=Extent(area.start, claims),
        label=text_at(header, 37, min(header[36], 27), "mac_roman"),
        uuid=_volume_uuid(header[116:124]),
        data_start=area.start + first,
        data_unit=block,
        claims_size=claims,
    )


def _read_plus(area: Area, offset: int, header: bytes) -> Layer | None:
    block, blocks = be32(header, 40), be32(header, 44)
    if header[:2] not in (b"H+", b"HX") or block < SECTOR or not is_power_of_two(block):
        return None
    claims = blocks * block
    return Layer(
        kind="hfsplus",
        extent=Extent(area.start + offset, claims),
        label=_plus_label(area, offset, header, block),
        uuid=_volume_uuid(header[104:112]),
        data_start=area.start + offset,
        data_unit=block,
        claims_size=claims,
    )


def _volume_uuid(finder_id: bytes) -> str | None:
    if len(finder_id) < 8 or not any(finder_id):
        return None
    digest = bytearray(hashlib.md5(NAMESPACE + finder_id, usedforsecurity=False).digest())
    digest[6] = 0x30 | digest[6] & 0x0F
    digest[8] = 0x80 | digest[8] & 0x3F
    return uuid_at(bytes(digest), 0)


def _plus_label(area: Area, offset: int, header: bytes, block: int) -> str | None:
    """The volume's name is the key of the catalog tree's first leaf record."""
    extents = [
        (be32(header, CATALOG_EXTENTS + 8 * index), be32(header, CATALOG_EXTENTS + 8 * index + 4))
        for index in range(FORKS)
    ]
    tree = area.read(offset + extents[0][0] * block, 512)
    node, leaf_head = be16(tree, 14 + 18), be32(tree, 14 + 10)
    if node < SECTOR or not leaf_head:
        return None
    wanted = leaf_head * node // block
    for first, count in extents:
        if wanted < count:
            place = offset + (first + wanted) * block + leaf_head * node % block
            leaf = area.read(place, min(node, 4 * KIB))
            is_root_folder = be32(leaf, 14 + 2) == 1
            return (
                text_at(leaf, 14 + 8, min(be16(leaf, 14 + 6), 255) * 2, "utf-16-be")
                if is_root_folder
                else None
            )
        wanted -= count
    return None


def read_apfs(area: Area) -> Layer | None:
    superblock = area.head[:4096]
    if superblock[32:36] != b"NXSB" or le16(superblock, 24) != 1 or len(superblock) < 4096:
        return None
    block = le32(superblock, 36)
    if not is_power_of_two(block) or not 4 * KIB <= block <= 64 * KIB:
        return None
    claims = le64(superblock, 40) * block
    whole = area.read(0, block)
    return Layer(
        kind="apfs",
        extent=Extent(area.start, claims),
        uuid=uuid_at(superblock, 72),
        data_start=area.start,
        data_unit=block,
        claims_size=claims,
        problems=checksum_problem("the APFS superblock", le64(whole, 0), fletcher64(whole[8:])),
    )
