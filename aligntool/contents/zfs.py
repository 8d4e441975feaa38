"""Members of ZFS pools."""

from collections.abc import Iterator
from dataclasses import replace

from aligntool.contents.kind import Kind, contains_no_device
from aligntool.contents.signatures import Signature
from aligntool.formats.numbers import be32, be64, le64, text_at
from aligntool.formats.reader import MAY_BE_SHARED, Area
from aligntool.inventory import Layer
from aligntool.units import KIB, MIB, align_down

# There are four copies of the label, two at each end; each has an XDR name-value list with pool name,
# identifiers and ashift. Source: ZFS on-disk specification, chapter 1; openzfs module/nvpair/nvpair.c.

LABEL = 256 * KIB  # two at either end; those at the end are aligned to their own size
PAIRS_READ = 48 * KIB  # of up to 112 KiB; real lists are a few KiB long
SMALLEST = 64 * MIB
UINT64 = 8
STRING = 9
LIST = 19
MOST_PAIRS = 512
EXPORTED = 1  # POOL_STATE_EXPORTED: openzfs include/sys/fs/zfs.h
MULTIHOST = 0xA11CEA11  # MMP_MAGIC: openzfs include/sys/uberblock_impl.h
_UBERBLOCKS = {b"\x0c\xb1\xba\0\0\0\0\0": le64, b"\0\0\0\0\0\xba\xb1\x0c": be64}  # in either byte order


def read_zfs(area: Area) -> Layer | None:
    if area.size < SMALLEST:
        return None
    last = area.size // LABEL * LABEL - 2 * LABEL
    for label in (0,) if area.ends_with_a_partition else (0, last):
        facts = dict(_nvlist_pairs(area.read(label + 16 * KIB, PAIRS_READ)))
        if isinstance(facts.get("pool_guid"), int) or isinstance(facts.get("guid"), int):
            ring = area.read(label + 128 * KIB, 128 * KIB)
            is_shared = facts.get("state") != EXPORTED and _is_multihost(ring)
            return replace(
                _zfs_layer(area, facts), unclean=f"{MAY_BE_SHARED} (multihost)" if is_shared else None
            )
    ring = area.read(128 * KIB, 128 * KIB)
    if sum(ring[at : at + 8] in _UBERBLOCKS for at in range(0, len(ring), KIB)) >= 4:
        return _zfs_layer(area, {})  # as in blkid: fewer than four may be remnants
    return None


def _is_multihost(ring: bytes) -> bool:
    """Return whether the newest uberblock has the property multihost on: machines that may import the pool
    then detect each other by the delay of its last write, which is 0 if it is off.
    """
    newest = (-1, -1)
    found = False
    for at in range(0, len(ring) - KIB + 1, KIB):
        number = _UBERBLOCKS.get(ring[at : at + 8])
        if number:
            group, time, mark, delay = (number(ring, at + field) for field in (16, 32, 176, 184))
            if (group, time) > newest:
                newest = (group, time)
                found = mark == MULTIHOST and delay > 0
    return found


def _zfs_layer(area: Area, facts: dict[str, int | str]) -> Layer:
    name, ashift, guid, version = (facts.get(key) for key in ("name", "ashift", "pool_guid", "version"))
    return Layer(
        kind="zfs_member",
        extent=area.extent,
        version=str(version) if isinstance(version, int) else None,
        label=name if isinstance(name, str) else None,
        uuid=str(guid) if isinstance(guid, int) else None,
        data_start=area.start + 4 * MIB,  # two labels and the boot block lie before it
        data_unit=1 << ashift if isinstance(ashift, int) and 9 <= ashift <= 24 else None,
    )


def _nvlist_pairs(packed: bytes) -> Iterator[tuple[str, int | str]]:
    """Yield (name, value) of the numbers and strings of the label, and the ashift from its vdev tree."""
    if packed[:1] != b"\x01" or packed[1:2] not in (b"\0", b"\x01"):
        return  # encoding 1 is XDR, the only one on disk
    at = 12
    depth = 0
    seen = set()
    for _ in range(MOST_PAIRS):
        size = be32(packed, at)
        name_length = be32(packed, at + 8)
        if not size:
            if not depth:
                return
            depth -= 1
            at += 8
            continue
        value = at + 12 + (name_length + 3 & ~3)
        if value + 8 > min(at + size, len(packed)):
            return
        name = packed[at + 12 : at + 12 + name_length].decode("ascii", "replace")
        kind = be32(packed, value)
        if kind == LIST:
            depth += 1
            at = value + 16
            continue
        if (not depth or name == "ashift") and name not in seen:
            seen.add(name)
            if kind == UINT64:
                yield name, be64(packed, value + 8)
            elif kind == STRING:
                yield name, text_at(packed, value + 12, min(be32(packed, value + 8), 256)) or ""
        at += size


def zfs_labels(length: int) -> tuple[int, ...]:
    """Return the offsets of the four labels of a pool member."""
    end = align_down(length, LABEL)
    return (0, LABEL, end - 2 * LABEL, end - LABEL)


def _nvlists(length: int) -> Iterator[int]:
    yield from (label + 16 * KIB for label in zfs_labels(length))


def _uberblocks(length: int) -> Iterator[int]:
    yield from (at for label in zfs_labels(length) for at in range(label + 128 * KIB, label + LABEL, KIB))


NVLIST = Signature("zfs_member", rb"\x01[\0\x01]\0\0\0{7}\x01", 12, more=_nvlists)
UBERBLOCK = Signature("zfs_member", rb"\x0c\xb1\xba\0{5}|\0{5}\xba\xb1\x0c", 24, more=_uberblocks)
UBERBLOCKS_WANTED = 4  # libblkid before 2.41 recognises a pool by any four of them

# The kernel does not resume from a swap area on a volume of ZFS.
ZFS = Kind(
    "zfs_member",
    readers=(read_zfs,),
    signatures=(NVLIST, UBERBLOCK),
    short_title=lambda layer: "ZFS",
    unsharer="zpool",
    held_ends=(2 * LABEL, 3 * LABEL),
    leaves_label_free=True,
    is_seen_through=contains_no_device,
)
