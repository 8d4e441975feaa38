"""bcache (backing and caching devices) and bcachefs: cousins with one superblock place and two magics.

In: the area of a partition. Out: its layer; through a backing device its content is read as well (a write-back
cache may hold newer blocks of it). Layout: linux/include/uapi/linux/bcache.h (kernel 5.x),
linux/fs/bcachefs/sb-members_format.h.
"""

from aligntool.inventory import Layer
from aligntool.probe.layers.area import Area, checksum_problem, le16, le32, le64, text_at, uuid_at
from aligntool.probe.layers.checksums import crc64
from aligntool.units import Extent

AT = 4096
SECTOR = 512  # both count in these
BCACHE_MAGIC = bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")
BCACHEFS_MAGIC = bytes.fromhex("c68573f666ce90a9d96a60cf803df7ef")
BACKING = (1, 4, 6)  # versions: backing device, with data offset, with features
DEFAULT_DATA_OFFSET = 16  # sectors: BDEV_DATA_START_DEFAULT, for the version without the field
MOST_KEYS = 256
FIELDS_AT = 752
MEMBERS_V1, MEMBERS_V2 = 1, 11


def read_bcache(area: Area) -> Layer | None:
    superblock = area.read(AT, 4096)
    if superblock[24:40] != BCACHE_MAGIC or le64(superblock, 8) * SECTOR != AT:
        return None
    version = le64(superblock, 16)
    block, bucket = le16(superblock, 192) * SECTOR, le16(superblock, 194) * SECTOR
    inner: tuple[Layer, ...] = ()
    if version in BACKING:
        offset = (DEFAULT_DATA_OFFSET if version == 1 else le64(superblock, 184)) * SECTOR
        claims = None
        if 0 < offset < area.size:
            inner = area.inside(area.reader, Extent(area.start + offset, area.size - offset))
    else:
        offset = le16(superblock, 204) * bucket
        claims = le64(superblock, 184) * bucket or None
    return Layer(
        kind="bcache",
        extent=Extent(area.start, claims or area.size),
        version=str(version),
        label=text_at(superblock, 72, 32),
        uuid=uuid_at(superblock, 40),
        data_start=area.start + offset,
        data_unit=block or None,
        claims_size=claims,
        inner=inner,
        problems=_checksum(superblock),
    )


def _checksum(superblock: bytes) -> tuple[str, ...]:
    keys = le16(superblock, 206)
    if keys > MOST_KEYS:
        return (f"the bcache superblock speaks of {keys} journal buckets, at most {MOST_KEYS} fit",)
    return checksum_problem(
        "the bcache superblock", le64(superblock, 0), crc64(superblock[8 : 208 + 8 * keys])
    )


def read_bcachefs(area: Area) -> Layer | None:
    superblock = area.read(AT, 4096)
    magic, is_bcache = superblock[24:40], le64(superblock, 8) * SECTOR == AT
    if magic not in (BCACHEFS_MAGIC, BCACHE_MAGIC) or is_bcache or le64(superblock, 104) * SECTOR != AT:
        return None  # before 2022 bcachefs used its parent's magic
    superblock = area.read(AT, min(FIELDS_AT + 8 * le32(superblock, 124), 64 * 1024))
    version = le16(superblock, 16)
    member = _own_member(superblock)
    bucket = le16(member, 26) * SECTOR
    claims = le64(member, 16) * bucket or None
    return Layer(
        kind="bcachefs",
        extent=Extent(area.start, claims or area.size),
        version=f"{version >> 10}.{version & 0x3FF}",
        label=text_at(superblock, 72, 32),
        uuid=uuid_at(superblock, 56),
        data_start=area.start + le16(member, 24) * bucket if bucket else None,
        data_unit=le16(superblock, 120) * SECTOR or None,
        claims_size=claims,
    )


def _own_member(superblock: bytes) -> bytes:
    """What the member list says of this device; empty when there is no list that fits."""
    index, at = superblock[122] if len(superblock) > 122 else 0, FIELDS_AT
    while at + 8 <= len(superblock):
        length, field = 8 * le32(superblock, at), le32(superblock, at + 4)
        if length < 8 or at + length > len(superblock):
            break
        if field in (MEMBERS_V1, MEMBERS_V2):
            size, first = (56, 8) if field == MEMBERS_V1 else (le16(superblock, at + 8), 16)
            begin = at + first + index * size
            if size >= 28 and begin + size <= at + length:
                return superblock[begin : begin + size]
        at += length
    return b""
