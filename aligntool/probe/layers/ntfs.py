"""Windows: NTFS, ReFS and BitLocker.

In: the area of a partition. Out: its layer. Layout of NTFS: linux/fs/ntfs3/ntfs.h, struct NTFS_BOOT; of
BitLocker: cryptsetup lib/bitlk/bitlk.c and libbde's format notes; of ReFS: libfsrefs's format notes.
"""

from collections.abc import Iterator

from aligntool.inventory import Layer
from aligntool.probe.layers.area import Area, guid_at, le16, le32, le64, text_at
from aligntool.probe.layers.ntfs_state import read_state
from aligntool.units import KIB, MIB, Extent, is_power_of_two

LARGEST_CLUSTER = 2 * MIB
VOLUME_RECORD = 3  # the fourth record of the MFT is $Volume
VOLUME_NAME = 0x60
LARGEST_RECORD = 64 * KIB
MOST_ATTRIBUTES = 64
UNUSED = ((14, 2), (16, 1), (17, 2), (19, 2), (22, 2), (32, 4))  # fields of FAT that are zero on NTFS

VISTA, WINDOWS_7, TO_GO = b"\xeb\x52\x90-FVE-FS-", b"\xeb\x58\x90-FVE-FS-", b"\xeb\x58\x90MSWIN4.1"
METADATA_MAGIC = b"-FVE-FS-"
LONGEST_METADATA = 64 * KIB
DESCRIPTION, STRING = 7, 2


def read_ntfs(area: Area) -> Layer | None:
    boot = area.head[:512]
    if len(boot) < 512 or boot[3:11] != b"NTFS    " or any(any(boot[at : at + size]) for at, size in UNUSED):
        return None
    sector, cluster = le16(boot, 11), _cluster(boot)
    sectors = le64(boot, 40)
    if not is_power_of_two(sector) or not 256 <= sector <= 4096 or not cluster or not sectors:
        return None
    if max(le64(boot, 48), le64(boot, 56)) * cluster > sectors * sector:
        return None  # the MFT or its mirror outside the volume
    claims = (sectors + 1) * sector  # the copy of the boot sector lies behind the volume and is not counted
    return Layer(
        kind="ntfs",
        extent=Extent(area.start, claims),
        label=_ntfs_label(area, boot, cluster),
        uuid=f"{le64(boot, 72):016X}",
        data_start=area.start,
        data_unit=cluster,
        claims_size=claims,
        unclean=read_state(area, le64(boot, 48), cluster, _record_size(boot, cluster)),
        hidden_sectors=le32(boot, 28),
        backup_boot=sectors * sector,
    )


def _cluster(boot: bytes) -> int:
    """Bytes; 0 when the field makes no sense. Above 128 it is a negative power of two."""
    sectors = boot[13]
    if sectors > 128:
        sectors = 1 << 256 - sectors if sectors >= 240 else 0
    size = sectors * le16(boot, 11)
    return size if is_power_of_two(size) and size <= LARGEST_CLUSTER else 0


def _record_size(boot: bytes, cluster: int) -> int:
    """Bytes; 0 when the field makes no sense."""
    raw = boot[64]
    size = raw * cluster if raw < 128 else 1 << 256 - raw if raw > 225 else 0
    return size if 256 <= size <= LARGEST_RECORD else 0


def _ntfs_label(area: Area, boot: bytes, cluster: int) -> str | None:
    record_size = _record_size(boot, cluster)
    record = area.read(le64(boot, 48) * cluster + VOLUME_RECORD * record_size, record_size)
    if record[:4] != b"FILE":
        return None
    at = le16(record, 20)
    for _ in range(MOST_ATTRIBUTES):
        length = le32(record, at + 4)
        if length < 24 or at + length > len(record):
            return None
        if le32(record, at) == VOLUME_NAME:
            return text_at(record, at + le16(record, at + 20), min(le32(record, at + 16), 256), "utf-16-le")
        at += length
    return None


def read_refs(area: Area) -> Layer | None:
    boot = area.head[:512]
    if boot[:8] != b"\0\0\0ReFS\0":
        return None
    sector, per_cluster = le32(boot, 32), le32(boot, 36)
    known = sector in (512, 4096) and is_power_of_two(per_cluster) and sector * per_cluster <= 64 * KIB
    claims = le64(boot, 24) * sector if known else None
    return Layer(
        kind="ReFS",
        extent=Extent(area.start, claims or area.size),
        data_start=area.start,
        data_unit=sector * per_cluster if known else None,
        claims_size=claims or None,
    )


def read_bitlocker(area: Area) -> Layer | None:
    boot = area.head[:512]
    start = boot[:11] if len(boot) == 512 else b""
    if start == VISTA:
        return _bitlocker(area, boot, b"")
    if start not in (WINDOWS_7, TO_GO):
        return None
    at = le64(boot, 176 if start == WINDOWS_7 else 440)
    metadata = area.read(at, LONGEST_METADATA) if at and at % 64 == 0 else b""
    return _bitlocker(area, boot, metadata) if metadata[:8] == METADATA_MAGIC else None


def _bitlocker(area: Area, boot: bytes, metadata: bytes) -> Layer:
    sector, cluster = le16(boot, 11), _cluster(boot)
    return Layer(
        kind="BitLocker",
        extent=area.extent,
        version=str(le16(metadata, 10)) if metadata else None,
        label=next(_descriptions(metadata), None),
        uuid=guid_at(metadata, 64 + 16),
        data_start=area.start,  # encrypted in place: byte for byte where the file system would have it
        data_unit=cluster or (sector if is_power_of_two(sector) else None),
    )


def _descriptions(metadata: bytes) -> Iterator[str]:
    """The names among the metadata's entries: size, entry type, value type, version, value."""
    end, at = min(64 + le32(metadata, 64), len(metadata)), 64 + 48
    while at + 8 < end:
        size = le16(metadata, at)
        if size < 8 or at + size > end:
            return
        if le16(metadata, at + 2) == DESCRIPTION and le16(metadata, at + 4) == STRING:
            text = text_at(metadata, at + 8, size - 8, "utf-16-le")
            if text:
                yield text
        at += size
