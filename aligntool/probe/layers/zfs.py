"""A member of a ZFS pool.

In: the area of a vdev. Out: its layer. Four copies of the label, two at each end; pool name, identifiers and
ashift stand in an XDR name-value list in each. Source: ZFS on-disk specification, chapter 1; openzfs
module/nvpair/nvpair.c.
"""

from collections.abc import Iterator

from aligntool.inventory import Layer
from aligntool.probe.layers.area import Area, be32, be64, text_at
from aligntool.units import KIB, MIB

LABEL = 256 * KIB
PAIRS_AT = 16 * KIB
PAIRS_READ = 48 * KIB  # of up to 112 KiB; real lists take a few
RING_AT, RING = 128 * KIB, 128 * KIB
SMALLEST = 64 * MIB
DATA_AT = 4 * MIB  # two labels and the boot block lie before it
UBERBLOCK = 0x00BAB10C
WANTED_UBERBLOCKS = 4  # as blkid: one alone may be left over
UINT64, STRING, LIST = 8, 9, 19
MOST_PAIRS = 512


def read_zfs(area: Area) -> Layer | None:
    if area.size < SMALLEST:
        return None
    last = area.size // LABEL * LABEL - 2 * LABEL
    for label in (0,) if area.ends_with_a_partition else (0, last):
        facts = dict(_pairs(area.read(label + PAIRS_AT, PAIRS_READ)))
        if isinstance(facts.get("pool_guid"), int) or isinstance(facts.get("guid"), int):
            return _layer(area, facts)
    if _uberblocks(area.read(RING_AT, RING)) >= WANTED_UBERBLOCKS:
        return _layer(area, {})
    return None


def _layer(area: Area, facts: dict[str, int | str]) -> Layer:
    name, ashift, guid, version = (facts.get(key) for key in ("name", "ashift", "pool_guid", "version"))
    return Layer(
        kind="zfs_member",
        extent=area.extent,
        version=str(version) if isinstance(version, int) else None,
        label=name if isinstance(name, str) else None,
        uuid=str(guid) if isinstance(guid, int) else None,
        data_start=area.start + DATA_AT,
        data_unit=1 << ashift if isinstance(ashift, int) and 9 <= ashift <= 24 else None,
    )


def _pairs(packed: bytes) -> Iterator[tuple[str, int | str]]:
    """Numbers and texts of the label, those of the vdev tree among them where they are not in the list above."""
    if packed[:1] != b"\x01" or packed[1:2] not in (b"\0", b"\x01"):
        return  # 1: XDR, the only encoding on disk
    at, inside, seen = 12, 0, set()
    for _ in range(MOST_PAIRS):
        size, name_length = be32(packed, at), be32(packed, at + 8)
        if not size:
            if not inside:
                return
            inside, at = inside - 1, at + 8
            continue
        value = at + 12 + (name_length + 3 & ~3)
        if value + 8 > min(at + size, len(packed)):
            return
        name, kind = packed[at + 12 : at + 12 + name_length].decode("ascii", "replace"), be32(packed, value)
        if kind == LIST:
            inside, at = inside + 1, value + 16
            continue
        if (not inside or name == "ashift") and name not in seen:
            seen.add(name)
            if kind == UINT64:
                yield name, be64(packed, value + 8)
            elif kind == STRING:
                yield name, text_at(packed, value + 12, min(be32(packed, value + 8), 256)) or ""
        at += size


def _uberblocks(ring: bytes) -> int:
    marks = (UBERBLOCK.to_bytes(8, "little"), UBERBLOCK.to_bytes(8, "big"))
    return sum(ring[at : at + 8] in marks for at in range(0, len(ring), KIB))
